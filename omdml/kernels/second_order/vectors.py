"""Steps over one vector in compiled code, as loops, of which numba makes vector instructions."""

from __future__ import annotations

from numba import njit

from omdml.kernels import Array


@njit(cache=True)
def subtract(x: Array, y: Array, difference: Array) -> None:
    """``difference = x - y``, of vectors (n,)."""
    for j in range(difference.shape[0]):
        difference[j] = x[j] - y[j]


@njit(cache=True)
def copy(x: Array, target: Array) -> None:
    """Copy a vector (n,). This is faster than to assign to a slice, which numba does one number at a time."""
    for j in range(target.shape[0]):
        target[j] = x[j]


@njit(cache=True)
def scale(x: Array, factor: float) -> None:
    """Multiply a vector (n,) by a factor, in place."""
    if factor != 1.0:
        for j in range(x.shape[0]):
            x[j] *= factor


@njit(cache=True)
def add_scaled(x: Array, factor: float, total: Array) -> None:
    """``total += factor x``, of vectors (n,)."""
    for j in range(x.shape[0]):
        total[j] += factor * x[j]
