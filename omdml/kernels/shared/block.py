"""The open block of low-rank learners: rank-one updates that wait before they go into W (MATHS 2.1).

An update changes all of W, but only by a term of rank one. Writing each one into W would read and write the whole
matrix for every comparison. So the updates of up to 16 comparisons are kept as rows, and the matrix is
``W_now = W - (c P)' X`` over the ``used`` rows of the open block. X holds the differences, P their projections at the
time of the update, c the signed rates. A new pair is projected with the old W, and ``correct`` subtracts what the rows
would have changed: that takes inner products only. ``flush`` writes all rows into W at once. The numbers are those of
immediate updates, up to rounding.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.shared.dots import TILE, project
from omdml.kernels.shared.memory import at_address

# The only flag of ``fastmath`` here: a product and a sum may become one fused multiply-add.
CONTRACT = {"contract"}
# Columns that are handled at a time, so that their rows of X and W stay in the nearest caches.
CHUNK = 2048


@njit(cache=True)
def gather(address: int, rows: Array, D: Array) -> None:
    """``D[2i], D[2i+1] = x[rows[i,0]] - x[rows[i,1]], x[rows[i,2]] - x[rows[i,3]]``.

    Parameters
    ----------
    address
        Address of a C-contiguous matrix x of D's type, with rows as long as D's. The caller must have checked ``rows``.
    rows : (e, 4)
    D : (2e, n)
        Written.
    """
    n = D.shape[1]
    x = at_address(address, 1 << 40, n, D)
    for i in range(rows.shape[0]):
        near_left, near_right = x[rows[i, 0]], x[rows[i, 1]]
        far_left, far_right = x[rows[i, 2]], x[rows[i, 3]]
        a, b = D[2 * i], D[2 * i + 1]
        for j in range(n):
            a[j] = near_left[j] - near_right[j]
            b[j] = far_left[j] - far_right[j]


@njit(cache=True, fastmath=CONTRACT)
def correct(D: Array, PQ: Array, X: Array, P: Array, c: Array, used: int, grams: Array) -> None:
    """Correct the projections of a near and a far difference.

    They were made with W as it was before the block. The result is what the current W makes of the differences.

    Parameters
    ----------
    D : (2, n)
        The two differences.
    PQ : (2, r)
        Their projections. Changed in place.
    X, P, c : (2B, n), (2B, r), (2B,)
        Rows of the block; the first ``used`` count.
    grams : (2, 2B)
        Working space.
    """
    if used == 0:
        return
    # ``project`` is fastest for multiples of TILE rows. What it computes beyond ``used`` is not read.
    project(D, X[: -(-used // TILE) * TILE], grams)
    p, q = PQ[0], PQ[1]
    for s in range(0, used, 2):
        g0, g1 = c[s] * grams[0, s], c[s + 1] * grams[0, s + 1]
        h0, h1 = c[s] * grams[1, s], c[s + 1] * grams[1, s + 1]
        u, v = P[s], P[s + 1]
        for k in range(p.shape[0]):
            p[k] -= g0 * u[k] + g1 * v[k]
            q[k] -= h0 * u[k] + h1 * v[k]


@njit(cache=True)
def store(D: Array, PQ: Array, rate: float, X: Array, P: Array, c: Array, used: int) -> None:
    """Append the update ``W <- W - 2 rate (p a' - q b')`` to the block, as rows ``used`` and ``used + 1``."""
    # Loops, because a slice assignment would go through a temporary array.
    for i in range(2):
        x, p = X[used + i], P[used + i]
        for j in range(D.shape[1]):
            x[j] = D[i, j]
        for k in range(PQ.shape[1]):
            p[k] = PQ[i, k]
    c[used] = 2 * rate
    c[used + 1] = -2 * rate


@njit(cache=True, fastmath=CONTRACT)
def subtract_eight(w: Array, X: Array, s: int, f: Array) -> None:
    """``w -= f[:8] @ X[s:s+8]``, w (n,) in place."""
    x0, x1, x2, x3, x4, x5, x6, x7 = X[s], X[s + 1], X[s + 2], X[s + 3], X[s + 4], X[s + 5], X[s + 6], X[s + 7]
    f0, f1, f2, f3, f4, f5, f6, f7 = f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]
    for j in range(w.shape[0]):
        near = f0 * x0[j] + f1 * x1[j] + f2 * x2[j] + f3 * x3[j]
        w[j] -= near + (f4 * x4[j] + f5 * x5[j] + f6 * x6[j] + f7 * x7[j])


@njit(cache=True, fastmath=CONTRACT)
def subtract_two(w: Array, X: Array, s: int, f: Array) -> None:
    """``w -= f[:2] @ X[s:s+2]``, w (n,) in place."""
    x0, x1 = X[s], X[s + 1]
    f0, f1 = f[0], f[1]
    for j in range(w.shape[0]):
        w[j] -= f0 * x0[j] + f1 * x1[j]


@njit(cache=True, fastmath=CONTRACT)
def flush(W: Array, X: Array, P: Array, c: Array, used: int) -> None:
    """``W <- W - (c P)' X`` over the first ``used`` rows, an even number; W (r, n) changes in place.

    Eight rows of X stay in the nearest cache while W streams past them.
    """
    f = np.empty(8, W.dtype)
    s = 0
    while s + 8 <= used:
        for k in range(W.shape[0]):
            for i in range(8):
                f[i] = c[s + i] * P[s + i, k]
            subtract_eight(W[k], X, s, f)
        s += 8
    while s < used:
        for k in range(W.shape[0]):
            f[0], f[1] = c[s] * P[s, k], c[s + 1] * P[s + 1, k]
            subtract_two(W[k], X, s, f)
        s += 2
