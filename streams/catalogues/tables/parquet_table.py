"""Items from Parquet: each column of lists of numbers is a modality, and scalar columns are grouped by prefix."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError
from omdml.streams.bounded_files import opened
from omdml.streams.catalogues.tables.attributes import Row, plain
from omdml.streams.catalogues.tables.table import (
    CHUNK_ROWS,
    ID_LENGTH,
    Columns,
    ItemChunk,
    numbered_columns,
    require_columns,
    require_ids,
    require_modality,
    rows_at_once,
)

NUMBER_BYTES = 8
# A row group may become this many bytes in memory, or EXPANSION times the size of the file if that is more.
EXPANDED_BYTES = 256 << 20
EXPANSION = 20


class ParquetTable:
    """A Parquet file; needs pyarrow, which the extra ``omdml[parquet]`` brings.

    Parameters
    ----------
    path
        The file.
    id_column
        The column of the ids: text or whole numbers.
    columns
        The columns of each modality, lists or scalars, which are put side by side. The attribute ``others`` lists the
        columns of no modality whose type an attribute can have.
    with_vectors
        Whether to raise NoVectors if the file has no modality.
    """

    def __init__(
        self, path: Path, id_column: str = "id", columns: Columns | None = None, *, with_vectors: bool = True
    ) -> None:
        parquet = pyarrow_parquet(path)
        self.path = path
        self.name = str(path)
        self.id_column = id_column
        self.numbered = False
        with opened(path) as data, parquet.ParquetFile(data) as file:
            self.count: int | None = file.metadata.num_rows
            schema = file.schema_arrow
        require_ids(self.name, id_column, schema.names)
        self.columns = columns or self._grouped(schema)
        expected = "a column of lists, or columns color.0, color.1, ... or color_0, color_1, ..."
        if with_vectors:
            texts = [field.name for field in schema if field.name != id_column and str(field.type).endswith("string")]
            require_modality(self.name, self.columns, expected, schema.names, texts)
        for names in self.columns.values():
            require_columns(self.name, names, schema.names)
        used = {id_column, *(name for names in self.columns.values() for name in names)}
        self.others = [field.name for field in schema if field.name not in used and _is_attribute(field.type)]
        with opened(path) as data, parquet.ParquetFile(data) as file:
            self.widest = self._check_sizes(file.metadata, os.fstat(data.fileno()).st_size)

    def _check_sizes(self, metadata: Any, size: int) -> dict[str, int]:
        """How many numbers an item has in each column, at most.

        Raises CatalogueError if the file would become far larger in memory than it is on the disk.
        """
        limit, widest = max(EXPANDED_BYTES, EXPANSION * size), dict.fromkeys([*self._wanted, *self.others], 1)
        for number in range(metadata.num_row_groups):
            group, claimed = metadata.row_group(number), 0
            for index in range(group.num_columns):
                column = group.column(index)
                path = column.path_in_schema
                name = next((n for n in widest if path == n or path.startswith(f"{n}.")), "")
                if name in widest:
                    claimed += max(column.total_uncompressed_size, NUMBER_BYTES * column.num_values)
                    widest[name] = max(widest[name], column.num_values // max(1, group.num_rows))
            if claimed > limit:
                raise CatalogueError(
                    f"{self.path}: row group {number} would take {claimed:,} bytes of memory, the file has {size:,}, "
                    f"expected at most {limit:,}: write the file again with smaller row groups"
                )
        return widest

    @property
    def _wanted(self) -> list[str]:
        return [self.id_column, *(name for names in self.columns.values() for name in names)]

    def chunks(self, rows: int) -> Iterator[ItemChunk]:
        dims = {modality: sum(self.widest[name] for name in names) for modality, names in self.columns.items()}
        rows = rows_at_once(self.name, rows, dims)
        # Ids stay in their dictionary until their lengths are known, because one long id may be in every row.
        options = {"read_dictionary": [self.id_column]}
        with opened(self.path) as data, pyarrow_parquet(self.path).ParquetFile(data, **options) as file:
            for batch in file.iter_batches(batch_size=rows, columns=self._wanted):
                ids = self._ids(batch.column(self.id_column))
                vectors = {
                    modality: np.hstack([self._block(ids, name, batch.column(name)) for name in names])
                    for modality, names in self.columns.items()
                }
                yield ItemChunk(ids, vectors)

    def attributes(self, names: Sequence[str]) -> Iterator[Row]:
        with opened(self.path) as data, pyarrow_parquet(self.path).ParquetFile(data) as file:
            for batch in file.iter_batches(batch_size=CHUNK_ROWS, columns=[self.id_column, *names]):
                ids = self._ids(batch.column(self.id_column))
                columns = [[plain(value) for value in batch.column(name).to_pylist()] for name in names]
                for place, item in enumerate(ids):
                    values = ((name, column[place]) for name, column in zip(names, columns, strict=True))
                    yield item, {name: value for name, value in values if value is not None}

    def _grouped(self, schema: Any) -> dict[str, list[str]]:
        lists = [field.name for field in schema if _is_list(field.type) and not _is_attribute(field.type)]
        scalars = [name for name in schema.names if name not in (*lists, self.id_column)]
        return {**numbered_columns(self.name, scalars), **{name: [name] for name in lists}}

    def _ids(self, column: Any) -> list[str]:
        self._check_lengths(column)
        ids = [str(value) for value in column.to_pylist() if isinstance(value, str | int)]
        if len(ids) != len(column):
            kind = getattr(column.type, "value_type", column.type)
            raise CatalogueError(
                f"{self.path}: column {self.id_column!r} is {kind} with {column.null_count} nulls, "
                f"expected text or whole numbers in every row"
            )
        return ids

    def _check_lengths(self, column: Any) -> None:
        from pyarrow import compute, types

        distinct = column.dictionary if types.is_dictionary(column.type) else column
        if types.is_string(distinct.type) or types.is_large_string(distinct.type):
            longest = compute.max(compute.utf8_length(distinct)).as_py() or 0
            if longest > ID_LENGTH:
                raise CatalogueError(
                    f"{self.path}: an id of {longest:,} characters in column {self.id_column!r}, expected at most "
                    f"{ID_LENGTH}"
                )

    def _block(self, ids: list[str], name: str, column: Any) -> NDArray[Any]:
        """A column as (n, d); d is 1 for scalars."""
        if not _is_list(column.type):
            return np.asarray(column.to_numpy(zero_copy_only=False))[:, None]
        lengths = _list_lengths(column)
        for item, length in zip(ids, lengths, strict=True):
            if length is None or length != lengths[0]:
                raise CatalogueError(
                    f"{self.path}: item {item!r}, column {name!r} has {length or 'no'} numbers, expected {lengths[0]} "
                    "as in other items"
                )
        return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(len(ids), -1)


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_attribute(kind: Any) -> bool:
    """Whether values of this type can be attributes: numbers, true and false, texts, dates, lists of texts."""
    from pyarrow import types

    if types.is_dictionary(kind) or _is_list(kind):
        return bool(types.is_string(kind.value_type) or types.is_large_string(kind.value_type))
    number = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    text = types.is_string(kind) or types.is_large_string(kind) or types.is_date(kind) or types.is_timestamp(kind)
    return bool(number or text)


def _list_lengths(column: Any) -> list[int | None]:
    from pyarrow import compute

    lengths: list[int | None] = compute.list_value_length(column).to_pylist()
    return lengths


def pyarrow_parquet(path: Path) -> Any:
    """The module that reads Parquet; raises CatalogueError, which names the file, if it is missing."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise CatalogueError(f"{path}: reading Parquet needs pyarrow: pip install 'omdml[parquet]'") from error
    return parquet
