"""Views of memory at an address, so that one compiled signature serves any number of modalities.

numba compiles a function again for each number of arrays in a tuple. Addresses and flat buffers always have the same
type.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic

from omdml.kernels import Array


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """Convert an address (an integer) to a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(address), generate


@njit(cache=True)
def at_address(address: int, rows: int, columns: int, like: Array) -> Array:
    """The matrix (rows, columns) of ``like``'s type at an address. The caller must keep that memory alive."""
    return carray(pointer(address), (rows, columns), like.dtype)


@njit(cache=True)
def matrix(flat: Array, start: int, rows: int, columns: int) -> Array:
    """``flat[start:][:rows * columns].reshape(rows, columns)``, but without the 40 ns that numba's reshape takes."""
    return at_address(flat.ctypes.data + start * flat.itemsize, rows, columns, flat)
