"""The layout of an export, of which each part is a folder: npy and JSON lines, or Parquet.

=========================  ======================================================================
``ids.txt``                npy: the ids in UTF-8, one on each line
``embeddings.npy``         npy: float32 (n, width), a row for each id
``attributes.jsonl``       npy, if there are attributes: a JSON object for each id
``items.parquet``          Parquet: ``id``, ``embedding`` (a list of float32), the attributes
``removed.txt``            if items were removed: their ids, one on each line
=========================  ======================================================================
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError, ConfigurationError, CorruptError
from omdml.streams.bounded_files import open_regular, opened
from omdml.streams.disk import ASIDE, sync
from omdml.workers.operate.export.manifest import ExportPart, Format

IDS, EMBEDDINGS, ATTRIBUTES, REMOVED = "ids.txt", "embeddings.npy", "attributes.jsonl", "removed.txt"
TABLE = "items.parquet"
# Columns of a table that are not attributes.
ID, EMBEDDING = "id", "embedding"

Attributes = list[dict[str, Any]]


class Rows(NamedTuple):
    """Items under one version: n ids, embedding float32 (n, width), n attributes or None, and ids of removed items."""

    ids: Sequence[str]
    embedding: NDArray[np.float32]
    attributes: Attributes | None
    removed: Sequence[str] = ()


def write_part(folder: Path, name: str, kind: Format, rows: Rows) -> dict[str, str]:
    """Write a part under another name, and rename it when it is on the disk; returns the sha256 of each file.

    Raises ConfigurationError if it cannot be written, or pyarrow is missing.
    """
    aside = folder / f"{ASIDE}{secrets.token_hex(8)}"
    try:
        aside.mkdir(parents=True)
        (_write_parquet if kind == "parquet" else _write_npy)(aside, rows)
        if rows.removed:
            _write_lines(aside / REMOVED, rows.removed)
        files = {}
        for path in sorted(aside.iterdir()):
            sync(path)
            files[path.name] = digest(path)
        sync(aside)
        # An earlier export may have left this folder, if it was killed before it wrote its manifest.
        shutil.rmtree(folder / name, ignore_errors=True)
        os.rename(aside, folder / name)
        sync(folder)
        return files
    except OSError as error:
        raise ConfigurationError(
            f"{folder}: cannot be written ({error.strerror}): make room, or choose another folder"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read_part(folder: Path, part: ExportPart, kind: Format, width: int) -> Rows:
    """Read the rows of a part; raises CorruptError if its files are not those that the manifest names."""
    part_folder = folder / part.name
    try:
        for file, expected in part.files.items():
            if digest(part_folder / file) != expected:
                raise CorruptError(f"{part_folder / file}: its sha256 is not the one in the manifest: {AGAIN}")
        ids, embedding, attributes = (_read_parquet if kind == "parquet" else _read_npy)(part_folder, width)
        removed = _read_lines(part_folder / REMOVED) if REMOVED in part.files else []
    except (OSError, ValueError) as error:
        raise CorruptError(f"{part_folder}: cannot be read ({error}): {AGAIN}") from error
    return Rows(ids, embedding, attributes, removed)


AGAIN = "remove the folder of the export, and export again"


def digest(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with open(path, "rb", opener=open_regular) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_npy(folder: Path, rows: Rows) -> None:
    _write_lines(folder / IDS, rows.ids)
    np.save(folder / EMBEDDINGS, rows.embedding)
    if rows.attributes is not None:
        _write_lines(folder / ATTRIBUTES, [msgspec.json.encode(attribute).decode() for attribute in rows.attributes])


def _read_npy(folder: Path, width: int) -> tuple[list[str], NDArray[np.float32], Attributes | None]:
    attributes = None
    if (folder / ATTRIBUTES).exists():
        attributes = [msgspec.json.decode(line, type=dict[str, Any]) for line in _read_lines(folder / ATTRIBUTES)]
    return _read_lines(folder / IDS), np.load(folder / EMBEDDINGS), attributes


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def _read_lines(path: Path) -> list[str]:
    # Not splitlines: an id may contain other characters that splitlines takes for the end of a line.
    with opened(path) as file:
        text: str = file.read().decode()
    return text.split("\n")[:-1]


def _write_parquet(folder: Path, rows: Rows) -> None:
    arrow, parquet = pyarrow()
    width = rows.embedding.shape[1]
    numbers = arrow.array(np.ascontiguousarray(rows.embedding).reshape(-1), arrow.float32())
    columns = {
        ID: arrow.array(rows.ids, arrow.string()),
        EMBEDDING: arrow.FixedSizeListArray.from_arrays(numbers, width),
    }
    for name in dict.fromkeys(name for attribute in rows.attributes or () for name in attribute):
        if name == EMBEDDING:
            raise CatalogueError(f"attribute {name!r} has the name of the column of vectors: rename it, or export npy")
        columns[name] = _column(arrow, [row.get(name) for row in rows.attributes or ()])
    metadata = {b"attributes": b"yes" if rows.attributes is not None else b"no"}
    parquet.write_table(arrow.table(columns).replace_schema_metadata(metadata), folder / TABLE)


def _column(arrow: Any, values: list[Any]) -> Any:
    """A column of an attribute's values; whole numbers become float64 like other numbers."""
    numeric = any(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return arrow.array(values, arrow.float64()) if numeric else arrow.array(values)


def _read_parquet(folder: Path, width: int) -> tuple[list[str], NDArray[np.float32], Attributes | None]:
    _, parquet = pyarrow()
    table = parquet.read_table(folder / TABLE)
    embedding = np.concatenate([np.empty(0, np.float32), *(chunk.flatten() for chunk in table[EMBEDDING].chunks)])
    attributes = None
    if (table.schema.metadata or {}).get(b"attributes") == b"yes":
        rows = table.drop_columns([ID, EMBEDDING]).to_pylist() or [{} for _ in range(len(table))]
        attributes = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return table[ID].to_pylist(), embedding.reshape(-1, width), attributes


def pyarrow() -> tuple[Any, Any]:
    """Import pyarrow and its Parquet module; raises ConfigurationError if it is not installed."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigurationError("--format parquet needs pyarrow: pip install 'omdml[parquet]'") from error
    return arrow, parquet
