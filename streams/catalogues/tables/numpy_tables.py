"""Items from numpy: arrays, ``.npy`` files, ``.npz`` archives."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import structlog
from numpy.lib import format as npy
from numpy.typing import NDArray

from omdml.errors import CatalogueError
from omdml.streams.bounded_files import opened
from omdml.streams.catalogues.tables.table import ItemChunk, require_modality, rows_at_once

PREFIX = "X_"
# The most bytes of a header of a .npy file. It is numpy's own limit, which numpy checks only after reading all of it.
HEADER_BYTES = 10_000
# The most bytes of all ids together.
ID_BYTES = 1 << 30
# The most bytes of an array that must be read at once.
WHOLE_BYTES = 1 << 30
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}

log = structlog.get_logger(__name__)


class ArrayTable:
    """An array (n, d) for each modality, which may be memory-mapped. Without ``ids`` the row numbers are the ids."""

    def __init__(self, name: str, arrays: Mapping[str, NDArray[Any]], ids: Sequence[str] | None = None) -> None:
        self.name = name
        self.arrays = arrays
        self.ids, self.numbered = ids, ids is None
        self.count: int | None = row_count(name, {what: array.shape for what, array in arrays.items()}, ids)

    def chunks(self, rows: int) -> Iterator[ItemChunk]:
        rows = rows_at_once(self.name, rows, {name: array.shape[1] for name, array in self.arrays.items()})
        for start in range(0, self.count or 0, rows):
            vectors = {name: array[start : start + rows] for name, array in self.arrays.items()}
            yield ItemChunk(some_ids(self.ids, start, len(next(iter(vectors.values())))), vectors)


class NpzTable:
    """An archive with an array for each modality, named like it or ``X_<modality>``, and perhaps one named ``ids``.

    Labels (``y``, ``y_...``) are left out. If there is an array ``X_...``, all others are left out too. One log line
    names what was left out.
    """

    def __init__(self, path: Path, ids: Sequence[str] | None = None) -> None:
        self.path = path
        self.name = str(path)
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            self.members = self._modalities(names)
            require_modality(self.name, self.members, "an array (n, d) named like its modality, such as color", names)
            shapes = {name: _header(self.name, archive, member)[0] for name, member in self.members.items()}
            self.count: int | None = row_count(self.name, shapes, ids)
            self.dims = {name: shape[1] for name, shape in shapes.items()}
            rows_at_once(self.name, 1, self.dims)
            if "ids" in names:
                if ids is not None:
                    raise CatalogueError(f"{path}: ids come from its array `ids`; leave the other ids out")
                ids = _ids_as_text(self.name, _read_array(self.name, archive, "ids", ID_BYTES))
        self.ids, self.numbered = ids, ids is None
        self.count = row_count(self.name, shapes, ids)

    def chunks(self, rows: int) -> Iterator[ItemChunk]:
        """See :class:`omdml.streams.catalogues.tables.table.Table`.

        Arrays are decompressed as they are read, never whole.
        """
        rows = rows_at_once(self.name, rows, self.dims)
        with ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(stack.enter_context(opened(self.path))))
            arrays = {name: self._rows(archive, member, rows) for name, member in self.members.items()}
            for start in range(0, self.count or 0, rows):
                vectors = {name: next(array) for name, array in arrays.items()}
                yield ItemChunk(some_ids(self.ids, start, len(next(iter(vectors.values())))), vectors)

    def _modalities(self, names: Sequence[str]) -> dict[str, str]:
        arrays = {name.removeprefix(PREFIX): name for name in names if name.startswith(PREFIX)}
        if not arrays:
            arrays = {name: name for name in names if name not in ("ids", "y") and not name.startswith("y_")}
        if left_out := sorted(set(names) - set(arrays.values()) - {"ids"}):
            log.info("arrays_left_out", table=self.name, arrays=left_out)
        return arrays

    def _rows(self, archive: zipfile.ZipFile, member: str, rows: int) -> Iterator[NDArray[Any]]:
        shape, fortran, dtype = _header(self.name, archive, member)
        if fortran:
            array = _read_array(self.name, archive, member, WHOLE_BYTES)
            yield from (array[start : start + rows] for start in range(0, len(array), rows))
            return
        with archive.open(member + ".npy") as file:
            _read_header(self.name, member, file)
            for start in range(0, shape[0], rows):
                part_shape = (min(rows, shape[0] - start), *shape[1:])
                data = file.read(int(np.prod(part_shape)) * dtype.itemsize)
                yield np.frombuffer(data, dtype).reshape(part_shape)


def row_count(table: str, shapes: Mapping[str, tuple[int, ...]], ids: Sequence[str] | None) -> int:
    """Number of items; CatalogueError if an array is no matrix or has another number of rows."""
    for name, shape in shapes.items():
        if len(shape) != 2:
            raise CatalogueError(
                f"{table}: array {name!r} has shape {shape}, expected a row for each item and a column for each number"
            )
    counts = {name: shape[0] for name, shape in shapes.items()} | ({} if ids is None else {"ids": len(ids)})
    if len(set(counts.values())) > 1:
        counted = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise CatalogueError(
            f"{table}: the arrays have different numbers of rows ({counted}), expected a row for each item"
        )
    return next(iter(counts.values()), 0)


def some_ids(ids: Sequence[str] | None, start: int, count: int) -> Sequence[str]:
    """The ids of the items in these rows."""
    return ids[start : start + count] if ids is not None else [str(row) for row in range(start, start + count)]


def _ids_as_text(table: str, ids: NDArray[Any]) -> list[str]:
    if ids.ndim != 1 or ids.dtype.kind not in "iuUS":
        raise CatalogueError(f"{table}: array `ids` is {ids.dtype} {ids.shape}, expected text or whole numbers (n,)")
    texts: list[str] = ids.astype(np.str_).tolist()
    return texts


def _read_array(table: str, archive: zipfile.ZipFile, member: str, limit: int) -> NDArray[Any]:
    """Read a whole array; raises CatalogueError if it has more than ``limit`` bytes."""
    shape, fortran, dtype = _header(table, archive, member)
    size = math.prod(shape) * dtype.itemsize
    if size > limit:
        raise CatalogueError(
            f"{table}: array {member!r} has {size:,} bytes, expected at most {limit:,}: split the file"
            + (", or save it in C order" if fortran else "")
        )
    with archive.open(member + ".npy") as file:
        _read_header(table, member, file)
        data = file.read(size)
    array: NDArray[Any] = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    return array


def _header(table: str, archive: zipfile.ZipFile, member: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of an array; raises CatalogueError if they do not fit the size of its bytes."""
    info = archive.getinfo(member + ".npy")
    with archive.open(info) as file:
        check_header(table, member, file)
    with archive.open(info) as file:
        shape, fortran, dtype = _read_header(table, member, file)
        size, actual = math.prod(shape) * dtype.itemsize, info.file_size - file.tell()
    if min(shape, default=0) < 0 or size != actual:
        raise CatalogueError(
            f"{table}: the header of array {member!r} says {shape} {dtype}, {size:,} bytes, but the file has "
            f"{actual:,}: write the file again"
        )
    return shape, fortran, dtype


def check_header(table: str, member: str, file: IO[bytes]) -> None:
    """Raise CatalogueError if the header of a ``.npy`` file says that it is very long: numpy would read it all."""
    start = file.read(12)
    size = int.from_bytes(start[8 : 10 if start[6:7] == b"\x01" else 12], "little")
    if size > HEADER_BYTES:
        raise CatalogueError(f"{table}: the header of {member!r} has {size:,} bytes, expected at most {HEADER_BYTES:,}")


def _read_header(table: str, member: str, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        shape, fortran, dtype = _HEADERS[npy.read_magic(file)](file)
    except (KeyError, ValueError) as error:
        raise CatalogueError(f"{table}: array {member!r} is in no known format of numpy ({error})") from error
    if dtype.hasobject:
        raise CatalogueError(f"{table}: array {member!r} holds Python objects, expected numbers")
    return shape, fortran, dtype
