"""Dot products of one pair of rows with many: the arithmetic of every projection and every Gram entry.

The result for a pair depends only on the pair and the matrix, never on how many other pairs share the call. BLAS does
not promise that: a walk that uses it must always multiply the same number of rows. With these functions, a comparison
that comes alone costs its own arithmetic only, and gives the same bytes as among a thousand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from omdml.kernels import Array

# Single flags, because fastmath=True would let the compiler assume that no number is NaN, and break isfinite.
REORDER = {"reassoc", "contract", "nsz"}
# Rows that ``six`` takes. AVX2 has sixteen registers: the sums of eight rows would not fit, and their detour through
# memory costs 30 to 70 %.
TILE = 6


@njit(cache=True, fastmath=REORDER)
def six(a: Array, b: Array, W: Array, k: int, p: Array, q: Array) -> None:
    """``p[k:k+6], q[k:k+6] = W[k:k+6] @ a, W[k:k+6] @ b``: twelve sums in registers."""
    w0, w1, w2, w3, w4, w5 = W[k], W[k + 1], W[k + 2], W[k + 3], W[k + 4], W[k + 5]
    zero: Any = a.dtype.type(0)
    s0 = s1 = s2 = s3 = s4 = s5 = zero
    t0 = t1 = t2 = t3 = t4 = t5 = zero
    for j in range(a.shape[0]):
        x, y = a[j], b[j]
        s0 += x * w0[j]
        t0 += y * w0[j]
        s1 += x * w1[j]
        t1 += y * w1[j]
        s2 += x * w2[j]
        t2 += y * w2[j]
        s3 += x * w3[j]
        t3 += y * w3[j]
        s4 += x * w4[j]
        t4 += y * w4[j]
        s5 += x * w5[j]
        t5 += y * w5[j]
    p[k], p[k + 1], p[k + 2], p[k + 3], p[k + 4], p[k + 5] = s0, s1, s2, s3, s4, s5
    q[k], q[k + 1], q[k + 2], q[k + 3], q[k + 4], q[k + 5] = t0, t1, t2, t3, t4, t5


@njit(cache=True, fastmath=REORDER)
def two(a: Array, b: Array, W: Array, k: int, p: Array, q: Array) -> None:
    """``p[k:k+2], q[k:k+2] = W[k:k+2] @ a, W[k:k+2] @ b``."""
    w0, w1 = W[k], W[k + 1]
    zero: Any = a.dtype.type(0)
    s0 = s1 = t0 = t1 = zero
    for j in range(a.shape[0]):
        x, y = a[j], b[j]
        s0 += x * w0[j]
        t0 += y * w0[j]
        s1 += x * w1[j]
        t1 += y * w1[j]
    p[k], p[k + 1] = s0, s1
    q[k], q[k + 1] = t0, t1


@njit(cache=True, fastmath=REORDER)
def single(a: Array, b: Array, W: Array, k: int, p: Array, q: Array) -> None:
    """``p[k], q[k] = W[k] @ a, W[k] @ b``."""
    w = W[k]
    zero: Any = a.dtype.type(0)
    s = t = zero
    for j in range(a.shape[0]):
        s += a[j] * w[j]
        t += b[j] * w[j]
    p[k] = s
    q[k] = t


@njit(cache=True)
def project(X: Array, W: Array, P: Array) -> None:
    """``P = X @ W.T`` for pairs of rows.

    Parameters
    ----------
    X : (2e, n)
        Rows 2i and 2i + 1 are a pair.
    W : (r, n)
    P : (2e, r)
        Written. The bytes of a pair do not depend on the other pairs.
    """
    r = W.shape[0]
    k = 0
    while k + TILE <= r:
        for i in range(0, X.shape[0], 2):
            six(X[i], X[i + 1], W, k, P[i], P[i + 1])
        k += TILE
    while k + 2 <= r:
        for i in range(0, X.shape[0], 2):
            two(X[i], X[i + 1], W, k, P[i], P[i + 1])
        k += 2
    if k < r:
        for i in range(0, X.shape[0], 2):
            single(X[i], X[i + 1], W, k, P[i], P[i + 1])


@njit(cache=True, fastmath=REORDER)
def inner(a: Array, b: Array) -> tuple[float, float, float]:
    """``a.a, b.b, a.b`` of vectors (n,) in one pass, as float64: products of such numbers can overflow float32."""
    zero: Any = a.dtype.type(0)
    aa = bb = ab = zero
    for j in range(a.shape[0]):
        x, y = a[j], b[j]
        aa += x * x
        bb += y * y
        ab += x * y
    return np.float64(aa), np.float64(bb), np.float64(ab)
