"""Items from CSV in UTF-8: a header, then a line for each item, with commas.

It is read by Python's csv module, which is slow but exact.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError
from omdml.streams.bounded_files import LINE_CHARACTERS, text_lines
from omdml.streams.catalogues.tables.attributes import CellKind, Row
from omdml.streams.catalogues.tables.table import (
    Columns,
    ItemChunk,
    numbered_columns,
    require_columns,
    require_ids,
    require_modality,
    shown,
)

# The most cells in memory at a time. Each takes about 60 bytes.
CHUNK_CELLS = 500_000


class CsvTable:
    """A CSV file.

    Parameters
    ----------
    path
        The file.
    id_column
        The column of the ids.
    columns
        The columns of each modality. By default columns are grouped by prefix (``color.0, color.1`` or ``color_0,
        color_1``). The attribute ``others`` lists the columns of no modality. ``kinds`` says what the cells of each
        column are that :meth:`attributes` has read.
    with_vectors
        Whether to raise NoVectors if the file has no modality.
    """

    def __init__(
        self, path: Path, id_column: str = "id", columns: Columns | None = None, *, with_vectors: bool = True
    ) -> None:
        self.path = path
        self.name = str(path)
        self.count: int | None = None
        self.numbered = False
        header = next(csv_lines(path), [])
        if not header:
            raise CatalogueError(
                f"{path}: the file is empty, expected a line with the names of the columns, then items"
            )
        if len(header) == 1 and (other := next((sign for sign in ";\t|" if sign in header[0]), "")):
            raise CatalogueError(
                f"{path}: the first line {header[0]!r:.80} has no comma, but {other!r}. Save the file again with "
                f"commas between the columns, and with a decimal point in numbers"
            )
        if id_column not in header and all(map(_is_number, header)):
            raise CatalogueError(
                f"{self.name}: the first line looks like numbers ({shown(header)}): a table needs a header line, which "
                f"names its columns, such as {id_column},color.0,color.1"
            )
        require_ids(self.name, id_column, header)
        chosen = columns or numbered_columns(self.name, (name for name in header if name != id_column))
        if with_vectors:
            expected = "columns color.0, color.1, ... or color_0, color_1, ..."
            require_modality(self.name, chosen, expected, header, [name for name in header if name != id_column])
        for names in chosen.values():
            require_columns(self.name, names, header)
        used = {id_column, *(name for names in chosen.values() for name in names)}
        self.others = [name for name in header if name not in used]
        self.header = header
        self.kinds: dict[str, CellKind] = {}
        self.id_place = header.index(id_column)
        self.places = {modality: [header.index(name) for name in names] for modality, names in chosen.items()}

    def chunks(self, rows: int) -> Iterator[ItemChunk]:
        rows = max(1, min(rows, CHUNK_CELLS // len(self.header)))
        lines = islice(csv_lines(self.path), 1, None)
        while chunk := list(islice(lines, rows)):
            yield ItemChunk(
                [line[self.id_place] for line in chunk],
                {modality: self._numbers(chunk, places) for modality, places in self.places.items()},
            )

    def attributes(self, names: Sequence[str]) -> Iterator[Row]:
        """See :class:`omdml.streams.catalogues.tables.attributes.TableWithAttributes`. Reads the file twice."""
        places = {name: self.header.index(name) for name in names}
        kinds = self.kinds = {name: CellKind() for name in names}
        for line in islice(csv_lines(self.path), 1, None):
            for name, place in places.items():
                kinds[name].see(line[place], line[self.id_place])
        for line in islice(csv_lines(self.path), 1, None):
            values = {name: kinds[name].read(line[place]) for name, place in places.items()}
            yield line[self.id_place], {name: value for name, value in values.items() if value is not None}

    def _numbers(self, lines: Sequence[Sequence[str]], places: Sequence[int]) -> NDArray[np.float64]:
        try:
            return np.array([[float(line[place]) for place in places] for line in lines])
        except ValueError:
            self._refuse(lines, places)

    def _refuse(self, lines: Sequence[Sequence[str]], places: Sequence[int]) -> NoReturn:
        for line in lines:
            for place in places:
                try:
                    float(line[place])
                except ValueError as error:
                    raise CatalogueError(
                        f"{self.path}: item {line[self.id_place]!r}, column {self.header[place]!r} is {line[place]!r}, "
                        f"expected a number"
                    ) from error
        raise CatalogueError(f"{self.path}: the file changed while it was read: try again")


def csv_lines(path: Path) -> Iterator[list[str]]:
    """The cells of each line, the header first, without empty lines; raises CatalogueError if it is no CSV."""
    width = 0
    try:
        reader = csv.reader(text_lines(path, LINE_CHARACTERS, encoding="utf-8-sig", newline=""), strict=True)
        for line in reader:
            width = width or len(line)
            if line and len(line) != width:
                raise CatalogueError(
                    f"{path}: line {reader.line_num} has {len(line)} fields, the header has {width}: "
                    f'put a text that has a comma in double quotes ("mugs, red")'
                )
            if line:
                yield line
    except (csv.Error, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path}: not CSV in UTF-8 ({error})") from error


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
