"""What catalogues are described from: a folder of pictures, and tables with columns of text."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from omdml.errors import CatalogueError
from omdml.streams.bounded_files import LINE_CHARACTERS, opened, text_lines
from omdml.streams.catalogues.building.joined_ids import wrong_id
from omdml.streams.catalogues.tables.csv_table import csv_lines
from omdml.streams.catalogues.tables.parquet_table import pyarrow_parquet
from omdml.streams.catalogues.tables.table import UNREADABLE, require_columns
from omdml.streams.describers.onnx_model import Preparation
from omdml.streams.describers.pictures import ENDINGS

TABLES = (".csv", ".parquet")


class LeftOutFile(msgspec.Struct, frozen=True):
    """A file that was left out, and why."""

    file: str
    reason: str


class Sources(NamedTuple):
    """What a catalogue is described from, beside tables of numbers.

    ``pictures`` is a folder with a file for each item, named by its id. ``texts`` are columns of the tables. ``model``
    is an ONNX file, and ``preparation`` says how pictures are prepared for it.
    """

    pictures: Path | None = None
    texts: Sequence[str] = ()
    model: Path | None = None
    preparation: Preparation = Preparation()

    def __bool__(self) -> bool:
        """Whether there is anything to describe."""
        return self.pictures is not None or bool(self.texts)

    def check(self) -> None:
        """Raise CatalogueError if these do not go together."""
        if self.model is not None and self.pictures is None:
            raise CatalogueError("--onnx describes pictures: name their folder too, with --pictures")
        if self.pictures is not None and not self.pictures.is_dir():
            raise CatalogueError(f"--pictures {self.pictures}: no such folder, expected one with files such as ID.jpg")
        if twice := sorted({name for name in self.texts if list(self.texts).count(name) > 1}):
            raise CatalogueError(f"--text {twice[0]} is given twice: leave one out")


def printable(path: Path) -> str:
    """A path as text, also if its name is not UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")


def list_pictures(folder: Path) -> tuple[dict[str, Path], list[LeftOutFile]]:
    """The pictures of a folder by id, in the order of the ids; and the files that are not pictures.

    The id is the file's name without its ending. Folders inside the folder are not searched, and names that begin with
    a dot are passed over. Raises CatalogueError if the folder cannot be read.
    """
    path_of: dict[str, Path] = {}
    left_out: list[LeftOutFile] = []
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise CatalogueError(f"--pictures {folder}: cannot be read ({error.strerror})") from error
    for path in paths:
        if path.suffix.lower() not in ENDINGS:
            expected = ", ".join(ENDINGS)
            reason = "it is a folder" if path.is_dir() else f"its name does not end as a picture's does: {expected}"
            left_out.append(LeftOutFile(printable(path), reason))
        elif wrong := wrong_id(path.stem):
            left_out.append(LeftOutFile(printable(path), f"its name cannot be an id: it {wrong}"))
        elif path.stem in path_of:
            left_out.append(
                LeftOutFile(printable(path), f"{path_of[path.stem].name} is the picture of item {path.stem!r} already")
            )
        else:
            path_of[path.stem] = path
    return dict(sorted(path_of.items())), left_out


def read_columns(path: Path, id_column: str, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Id and these columns of each row of a CSV or Parquet table, as text. An empty cell is ``""``.

    Raises CatalogueError if the table cannot be read, or lacks a column.
    """
    rows = _read_csv if path.suffix.lower() == ".csv" else _read_parquet
    try:
        yield from rows(path, id_column, names)
    except UNREADABLE as error:
        raise CatalogueError(f"{path}: cannot be read to its end ({error})") from error


def columns_of(path: Path) -> list[str]:
    """The names of a table's columns; none for a file of another kind."""
    try:
        match path.suffix.lower():
            case ".csv":
                lines = text_lines(path, LINE_CHARACTERS, encoding="utf-8-sig", newline="")
                return next(csv.reader(lines, strict=True), [])
            case ".parquet":
                with opened(path) as data:
                    return list(pyarrow_parquet(path).read_schema(data).names)
    except (*UNREADABLE, csv.Error) as error:
        raise CatalogueError(f"{path}: cannot be read ({error})") from error
    return []


def _read_csv(path: Path, id_column: str, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    lines = csv_lines(path)
    header = next(lines, [])
    require_columns(str(path), [id_column, *names], header)
    id_place, places = header.index(id_column), [header.index(name) for name in names]
    for line in lines:
        yield line[id_place], [line[place] for place in places]


def _read_parquet(path: Path, id_column: str, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    with opened(path) as data, pyarrow_parquet(path).ParquetFile(data) as file:
        require_columns(str(path), [id_column, *names], file.schema_arrow.names)
        for batch in file.iter_batches(batch_size=4096, columns=[id_column, *names]):
            ids = batch.column(id_column).to_pylist()
            columns = [batch.column(name).to_pylist() for name in names]
            for row, item in enumerate(ids):
                if not isinstance(item, str | int):
                    raise CatalogueError(f"{path}: an id is {item!r:.80}, expected text or a whole number in every row")
                yield str(item), ["" if column[row] is None else str(column[row]) for column in columns]
