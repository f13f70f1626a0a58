"""Views of memory, so that any number of modalities passes through one compiled signature."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic

from omdml.kernels import Array


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """An address (an integer) as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(address), generate


@njit(cache=True)
def at_address(address: int, rows: int, columns: int, like: Array) -> Array:
    """The matrix (rows, columns) of ``like``'s type that begins at an address; whoever passed it keeps it alive."""
    return carray(pointer(address), (rows, columns), like.dtype)


@njit(cache=True)
def matrix(flat: Array, start: int, rows: int, columns: int) -> Array:
    """``flat[start:][:rows * columns].reshape(rows, columns)``, which costs 40 ns as numba does it."""
    return at_address(flat.ctypes.data + start * flat.itemsize, rows, columns, flat)
