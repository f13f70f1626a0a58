"""What the user names as input, opened as tables."""

from __future__ import annotations

import re
import shlex
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
# The kinds of files whose columns can be attributes.
WITH_ATTRIBUTES = (".csv", ".parquet")


def open_tables(
    inputs: Inputs,
    *,
    ids: str | Path | Sequence[str] | None,
    id_column: str,
    columns: Columns | None,
    described: bool = False,
) -> list[Table]:
    """Open a table for each input.

    The arguments are those of :func:`omdml.streams.catalogues.building.build.build_catalogue`. A table without vectors
    brings only ids and attributes. If pictures or texts are ``described`` as well, such tables are passed over.

    Raises
    ------
    CatalogueError
        There is no input, a file is missing or of an unknown kind, no input has vectors, or no input can use ``ids`` or
        ``columns``.
    """
    if not inputs and not described:
        raise CatalogueError(f"nothing to build from: name at least one input ({SUFFIXES})")
    id_list = _read_id_lines(Path(ids)) if isinstance(ids, str | Path) else ids
    if isinstance(inputs, Mapping):
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        tables: list[Table] = [ArrayTable("arrays", arrays, id_list)]
    else:
        tables = _open_all(list(map(str, inputs)), described, id_list, id_column, columns)
    if id_list is not None and not any(isinstance(table, ArrayTable | NpzTable) for table in tables):
        raise CatalogueError(f"ids are given, but every input has a column of ids ({id_column!r}): leave them out")
    if columns and not any(isinstance(table, CsvTable | ParquetTable) for table in tables):
        raise CatalogueError("columns are given, but no input is CSV or Parquet: leave them out")
    return tables


def tables_with_attributes(inputs: Iterable[str | Path], id_column: str) -> list[Table]:
    """The inputs whose columns can be attributes, with or without vectors; raises CatalogueError."""
    return [
        _open(text, None, id_column, None, with_vectors=False)
        for text in map(str, inputs)
        if Path(text).suffix.lower() in WITH_ATTRIBUTES
    ]


def _open_all(
    inputs: Sequence[str], described: bool, ids: Sequence[str] | None, id_column: str, columns: Columns | None
) -> list[Table]:
    """The inputs as tables: those with vectors, and, if nothing is ``described``, those that bring attributes alone."""
    tables: list[Table] = []
    without_vectors: list[NoVectors] = []
    for text in inputs:
        try:
            tables.append(_open(text, ids, id_column, columns))
        except NoVectors as error:
            if described:
                continue
            if Path(text).suffix.lower() not in WITH_ATTRIBUTES:
                raise
            without_vectors.append(error)
            tables.append(_open(text, ids, id_column, columns, with_vectors=False))
    if without_vectors and len(without_vectors) == len(tables):
        raise without_vectors[0]
    return tables


def _open(
    text: str, ids: Sequence[str] | None, id_column: str, columns: Columns | None, *, with_vectors: bool = True
) -> Table:
    suffix = Path(text).suffix.lower()
    try:
        match suffix:
            case ".npy":
                return _open_npy(text, ids)
            case ".npz":
                return NpzTable(Path(text), ids)
            case ".csv":
                return CsvTable(Path(text), id_column, columns, with_vectors=with_vectors)
            case ".parquet":
                return ParquetTable(Path(text), id_column, columns, with_vectors=with_vectors)
    except UNREADABLE as error:
        raise CatalogueError(f"{text}: cannot be read as {suffix} ({cause(error)})") from error
    if Path(text).is_dir():
        raise CatalogueError(
            f"{text} is a folder, expected a file that ends in one of {SUFFIXES}: name the catalogue's folder first, "
            "then the files"
        )
    raise CatalogueError(f"{text}: unknown kind {suffix!r}, expected one of {SUFFIXES}")


def _open_npy(text: str, ids: Sequence[str] | None) -> ArrayTable:
    """Open ``color=path/to.npy``, or ``color.npy``, whose name is the modality's."""
    modality, equals, path = text.partition("=")
    if not equals or not re.match(MODALITY_NAME, modality):
        if not re.match(MODALITY_NAME, Path(text).stem):
            raise CatalogueError(
                f"{text}: it holds the vectors of a modality, but its name holds other signs than letters, digits and "
                f"_ . - (100 at most): say what the modality is called, as in image={shlex.quote(path or text)}"
            )
        modality, path = Path(text).stem, text
    with opened(path) as file:
        check_header(path, modality, file)
    return ArrayTable(path, {modality: np.load(path, mmap_mode="r")}, ids)


def _read_id_lines(path: Path) -> list[str]:
    try:
        return read_regular(path, ID_BYTES).decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{path}: cannot be read as ids in UTF-8, one on each line ({error})") from error
