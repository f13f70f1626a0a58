"""A matrix of float32 in a ``.npy`` file that grows by rows.

numpy's header leaves room for more digits of the first dimension, so to grow is to append rows and write the header
again. The file is one that ``numpy.load`` reads at any time.
"""

from __future__ import annotations

import os
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from omdml.errors import CatalogueError
from omdml.streams.bounded_files import opened

DTYPE = np.dtype("<f4")
# What numpy raises of damaged files: it parses a header written in Python.
UNREADABLE = (OSError, ValueError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError)


def map_rows(path: Path, rows: int, dim: int, writable: bool = False) -> NDArray[np.float32]:
    """The first ``rows`` rows (rows, dim), memory-mapped; read-only unless asked otherwise.

    Raises
    ------
    CatalogueError
        The file is missing, too short, or no C-contiguous float32 matrix of this width.
    """
    try:
        with opened(path, "r+b" if writable else "rb") as file:
            start = _data_start(file, path, dim)
            if os.fstat(file.fileno()).st_size < start + rows * dim * DTYPE.itemsize:
                raise CatalogueError(
                    f"{path} is shorter than {rows} rows of {dim} numbers: restore it, or build the catalogue again"
                )
            mapped = np.memmap(file, DTYPE, "r+" if writable else "r", start, (rows, dim))
    except UNREADABLE as error:
        raise CatalogueError(
            f"{path} holds no matrix that can be read ({error}): restore it, or build the catalogue again"
        ) from error
    # A plain array over the same pages, because the subclass slows every indexing down.
    return np.asarray(mapped)


def extend(path: Path, rows: int, more: int, dim: int) -> NDArray[np.float32]:
    """Room for ``more`` rows after the first ``rows``, to be written to; whatever else followed them is gone.

    The disk's room is taken at once: a full disk is an OSError here, not a SIGBUS at some later write.
    """
    with opened(path, "r+b" if rows else "w+b") as file:
        if not rows:
            _write_header(file, 0, dim)
        start = _data_start(file, path, dim)
        row_bytes = dim * DTYPE.itemsize
        file.truncate(start + rows * row_bytes)
        os.posix_fallocate(file.fileno(), start + rows * row_bytes, more * row_bytes)
        _write_header(file, rows + more, dim)
    return map_rows(path, rows + more, dim, writable=True)[rows:]


def row_chunks(matrix: NDArray[np.float32], rows: int) -> Iterator[NDArray[np.float32]]:
    """The matrix, ``rows`` rows at a time."""
    return (matrix[start : start + rows] for start in range(0, len(matrix), rows))


def _write_header(file: IO[bytes], rows: int, dim: int) -> None:
    file.seek(0)
    npy.write_array_header_1_0(file, {"descr": npy.dtype_to_descr(DTYPE), "fortran_order": False, "shape": (rows, dim)})
    file.flush()


def _data_start(file: IO[bytes], path: Path, dim: int) -> int:
    file.seek(0)
    if npy.read_magic(file) != (1, 0):
        raise CatalogueError(f"{path} was not written by omdml: build the catalogue again")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    if fortran or dtype != DTYPE or len(shape) != 2 or shape[1] != dim:
        order = "Fortran" if fortran else "C"
        raise CatalogueError(
            f"{path} holds {dtype} {shape} in {order} order, expected float32 (n, {dim}) in C order: restore it, or "
            "build the catalogue again"
        )
    return file.tell()
