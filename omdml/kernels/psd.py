"""Staying positive semi-definite without a dense eigendecomposition an update (MATHS 3; LAW A.3).

``B - y y'`` with B positive semi-definite has at most one negative eigenvalue. Write ``phi(z) = y' (B - z)^-1 y`` for
z < 0: it rises with z, and the negative eigenvalue is where it is 1. Newton steps on 1/phi from the right approach it
from one side, quadratically; where phi is below 1 next to zero, there is none.

A block's matrix is ``M - sum_s c_s x_s x_s'``, c = 1 or -1. In the eigenbasis of M its resolvent costs
a small linear system, so one eigendecomposition serves a whole block.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.dots import project

STEPS = 60  # Newton steps at most; five or six are usual
SETTLED = 1e-14
LOW = 1e-3  # eigenvalues below this share of the largest stand apart


@njit(cache=True)
def rotate(QT: Array, X: Array, begin: int, end: int, Y: Array) -> None:
    """``Y[s] = QT @ X[s]`` for the rows ``begin`` to ``end``, in float64.

    Parameters
    ----------
    QT : (d, d)
        Eigenvectors as rows, float64.
    X, Y : (R, d)
        R is even: rows go by twos from an even one on, so that a row's bytes do not depend on ``begin``.
    """
    begin, end = begin - begin % 2, end + end % 2
    project(X[begin:end].astype(np.float64), QT, Y[begin:end])


@njit(cache=True)
def resolvent(
    low: Array, Z: Array, w: Array, lam: Array, Y: Array, y: Array, g: Array, z: float
) -> tuple[Array, Array]:
    """``(B - z)^-1 (w, y)``, once refined; NaN where rounding makes it singular.

    B is ``diag(low, lam)`` plus the terms ``g_s (Z_s, Y_s)(Z_s, Y_s)'``. Low eigenvalues stand apart because dividing
    by ``low - z`` would lose the digits of what the terms have put there since.

    Parameters
    ----------
    low, lam : (q,), (h,)
        At least 0; z < 0.
    Z, Y, g : (m, q), (m, h), (m,)
    w, y : (q,), (h,)
    """
    m, q = Z.shape
    inverse = 1.0 / (lam - z)
    scaled = Y * inverse
    system = np.zeros((q + m, q + m))  # in the low coordinates u, and in t = g (Z u + Y x)
    for k in range(q):
        system[k, k] = low[k] - z
        for s in range(m):
            system[k, q + s] = Z[s, k]
            system[q + s, k] = -g[s] * Z[s, k]
    gram = np.dot(scaled, Y.T)
    for s in range(m):
        system[q + s, q:] = g[s] * gram[s]
        system[q + s, q + s] += 1.0
    u, x, right = np.zeros_like(w), np.zeros_like(y), np.empty(q + m)
    try:
        solve = np.linalg.inv(system)
    except Exception:  # "singular to machine precision"
        return np.full_like(w, np.nan), np.full_like(y, np.nan)
    for _ in range(2):
        t = g * (np.dot(Z, u) + np.dot(Y, x))
        residual = y - (lam - z) * x - np.dot(t, Y)
        right[:q] = w - (low - z) * u - np.dot(t, Z)
        right[q:] = g * np.dot(scaled, residual)
        found = np.dot(solve, right)
        u += found[:q]
        x += inverse * residual - np.dot(found[q:], scaled)
    return u, x


@njit(cache=True)
def negative_eigenpair(lam: Array, Y: Array, g: Array, y: Array, near: float) -> tuple[float, Array]:
    """The one negative eigenvalue of ``B - y y'``, B being ``diag(lam) + sum_s g_s Y_s Y_s'``, and its unit vector.

    B must be positive semi-definite. Answers 0 where there is none below ``-near``.

    Parameters
    ----------
    lam : (d,)
        Rising; those under ``near`` count as 0.
    Y, g, y : (m, d), (m,), (d,)
    """
    terms = len(g) + 1
    count = int(np.searchsorted(lam, LOW * lam[-1]))
    many = count > 2 * terms  # too many to keep each: the null space alone, as far as the terms reach into it
    if many:
        count = int(np.searchsorted(lam, near))
    basis = np.eye(count)
    if many and count > terms:
        reached = np.empty((count, terms))
        reached[:, :-1], reached[:, -1] = Y[:, :count].T, y[:count]
        basis = np.ascontiguousarray(np.linalg.qr(reached)[0])
    low = np.zeros(basis.shape[1]) if many else np.maximum(lam[:count], 0.0)
    above, upper, tail = lam[count:].copy(), Y[:, count:].copy(), y[count:].copy()
    Z, w = np.dot(Y[:, :count].copy(), basis), np.dot(y[:count].copy(), basis)
    z = -near
    u, x = resolvent(low, Z, w, above, upper, tail, g, z)
    phi = np.dot(w, u) + np.dot(tail, x)
    while not phi >= 0.0 and math.isfinite(z):  # rounding left B an eigenvalue in (z, 0): look beyond it
        z *= 2.0
        u, x = resolvent(low, Z, w, above, upper, tail, g, z)
        phi = np.dot(w, u) + np.dot(tail, x)
    if not phi > 1.0:
        return 0.0, y
    for _ in range(STEPS):
        step = phi * (phi - 1.0) / (np.dot(u, u) + np.dot(x, x))
        next_u, next_x = resolvent(low, Z, w, above, upper, tail, g, z - step)
        phi = np.dot(w, next_u) + np.dot(tail, next_x)
        if not math.isfinite(phi):
            break
        z, u, x = z - step, next_u, next_x
        if step <= SETTLED * -z or not phi > 1.0 + SETTLED:
            break
    vector = np.concatenate((np.dot(basis, u), x))
    return z, vector / np.sqrt(np.dot(vector, vector))


@njit(cache=True)
def add_outer(M: Array, x: Array, sign: float) -> None:
    """``M += sign x x'``, sign being 1 or -1: what is symmetric to the bit stays so."""
    for j in range(M.shape[0]):
        for k in range(M.shape[0]):
            M[j, k] += sign * (x[j] * x[k])


@njit(cache=True)
def clip(M: Array, lam: Array, QT: Array, below: float) -> int:
    """Raise the eigenvalues of M under ``below`` (at most 0) to 0; answers how many there were.

    Parameters
    ----------
    M : (d, d)
        Changed in place.
    lam, QT : (d,), (d, d)
        Its eigenvalues, rising, and their vectors as rows.
    """
    count = int(np.searchsorted(lam, below))
    if 2 * count <= len(lam):
        for s in range(count):
            add_outer(M, np.sqrt(-lam[s]) * QT[s], 1.0)
    else:
        M[:] = 0.0
        for s in range(count, len(lam)):
            add_outer(M, np.sqrt(max(lam[s], 0.0)) * QT[s], 1.0)
    return count
