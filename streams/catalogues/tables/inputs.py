"""What the user names as input, opened as tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from omdml.errors import CatalogueError
from omdml.streams.bounded_files import opened, read_regular
from omdml.streams.catalogues.manifest import MODALITY_NAME
from omdml.streams.catalogues.tables.csv_table import CsvTable
from omdml.streams.catalogues.tables.numpy_tables import ID_BYTES, ArrayTable, NpzTable, check_header
from omdml.streams.catalogues.tables.parquet_table import ParquetTable
from omdml.streams.catalogues.tables.table import UNREADABLE, Columns, NoVectors, Table, cause

Inputs = Sequence[str | Path] | Mapping[str, Any]
SUFFIXES = ".npy, .npz, .csv, .parquet"


def open_tables(
    inputs: Inputs,
    *,
    ids: str | Path | Sequence[str] | None,
    id_column: str,
    columns: Columns | None,
    described: bool = False,
) -> list[Table]:
    """Open a table for each input.

    The arguments are those of :func:`omdml.streams.catalogues.building.build.build_catalogue`. If pictures or texts are
    ``described`` as well, tables without vectors are passed over.

    Raises
    ------
    CatalogueError
        There is no input, a file is missing or of an unknown kind, or no input can use ``ids`` or ``columns``.
    """
    if not inputs and not described:
        raise CatalogueError(f"nothing to build from: name at least one input ({SUFFIXES})")
    listed = _read_id_lines(Path(ids)) if isinstance(ids, str | Path) else ids
    if isinstance(inputs, Mapping):
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        tables: list[Table] = [ArrayTable("arrays", arrays, listed)]
    else:
        opened = (_open_if(described, str(path), listed, id_column, columns) for path in inputs)
        tables = [table for table in opened if table is not None]
    if listed is not None and not any(isinstance(table, ArrayTable | NpzTable) for table in tables):
        raise CatalogueError(f"ids are given, but every input has a column of ids ({id_column!r}): leave them out")
    if columns and not any(isinstance(table, CsvTable | ParquetTable) for table in tables):
        raise CatalogueError("columns are given, but no input is CSV or Parquet: leave them out")
    return tables


def tables_with_attributes(inputs: Iterable[str | Path], id_column: str) -> list[Table]:
    """The inputs whose columns can be attributes, with or without vectors; raises CatalogueError."""
    kinds: dict[str, type[CsvTable | ParquetTable]] = {".csv": CsvTable, ".parquet": ParquetTable}
    tables: list[Table] = []
    for text in map(str, inputs):
        kind = kinds.get(Path(text).suffix.lower())
        if kind is None:
            continue
        try:
            tables.append(kind(Path(text), id_column, with_vectors=False))
        except UNREADABLE as error:
            raise CatalogueError(f"{text}: cannot be read as {Path(text).suffix} ({cause(error)})") from error
    return tables


def _open_if(
    described: bool, text: str, ids: Sequence[str] | None, id_column: str, columns: Columns | None
) -> Table | None:
    """Open a table; None if it has no vectors, and ``described`` says that it need not have any."""
    try:
        return _open(text, ids, id_column, columns)
    except NoVectors:
        if described:
            return None
        raise


def _open(text: str, ids: Sequence[str] | None, id_column: str, columns: Columns | None) -> Table:
    suffix = Path(text).suffix.lower()
    try:
        match suffix:
            case ".npy":
                return _open_npy(text, ids)
            case ".npz":
                return NpzTable(Path(text), ids)
            case ".csv":
                return CsvTable(Path(text), id_column, columns)
            case ".parquet":
                return ParquetTable(Path(text), id_column, columns)
    except UNREADABLE as error:
        raise CatalogueError(f"{text}: cannot be read as {suffix} ({cause(error)})") from error
    raise CatalogueError(f"{text}: unknown kind {suffix!r}, expected one of {SUFFIXES}")


def _open_npy(text: str, ids: Sequence[str] | None) -> ArrayTable:
    """Open ``color=path/to.npy``, or ``color.npy``, whose name is the modality's."""
    modality, equals, path = text.partition("=")
    if not equals or not re.match(MODALITY_NAME, modality):
        modality, path = Path(text).stem, text
    with opened(path) as file:
        check_header(path, modality, file)
    return ArrayTable(path, {modality: np.load(path, mmap_mode="r")}, ids)


def _read_id_lines(path: Path) -> list[str]:
    try:
        return read_regular(path, ID_BYTES).decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path}: cannot be read as ids in UTF-8, one on each line ({error})") from error
