"""Vectors of groups of elements, and their gradients: soft assignment, NetVLAD pooling, reduction (MATHS 8; SETNET 3).

G groups have n elements in total. A group of one is a single element.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.shared.block import CHUNK, CONTRACT
from omdml.kernels.shared.dots import REORDER, project
from omdml.kernels.shared.memory import matrix


class Net(NamedTuple):
    """The parameters, or the gradient along each of them."""

    # Assignment.
    A: Array  # (K, D)
    bias: Array  # (1, K)
    # Centres.
    c: Array  # (K, D)
    # Reduction.
    P: Array  # (r, KD)
    p0: Array  # (1, r)
    # Scale w and shift b of a score.
    logistic: Array  # (1, 2)


class Shape(NamedTuple):
    """An element has D numbers, of m modalities side by side. There are K clusters, and a vector has r numbers."""

    D: int
    K: int
    r: int
    # Dimensions of the modalities.
    n: Array  # (m,)
    # Where (A, bias), c, (P, p0) and (w, b) begin among the parameters, and the number of parameters.
    blocks: Array  # (5,)


class Pooled(NamedTuple):
    """What ``forward`` computed, as far as ``backward`` needs it."""

    # Soft assignments.
    s: Array  # (n, K)
    # Residual blocks of unit length.
    U: Array  # (n, KD)
    # Their lengths before, float64.
    u: Array  # (n,)
    # Sums over each set's elements, of unit length. There are G or G + 1 rows, an even number.
    V: Array  # (G + 1, KD)
    # Lengths of these sums before.
    length: Array  # (G + 1,)
    # Vectors of unit length.
    v: Array  # (G + 1, r)
    # Lengths of these vectors before.
    y: Array  # (G + 1,)


@njit(cache=True)
def views(flat: Array, shape: Shape) -> Net:
    """The parameters in a flat buffer (N,), as views."""
    D, K, r, blocks = shape.D, shape.K, shape.r, shape.blocks
    return Net(
        A=matrix(flat, 0, K, D),
        bias=matrix(flat, K * D, 1, K),
        c=matrix(flat, blocks[1], K, D),
        P=matrix(flat, blocks[2], r, K * D),
        p0=matrix(flat, blocks[3] - r, 1, r),
        logistic=matrix(flat, blocks[3], 1, 2),
    )


@njit(cache=True)
def forward(X: Array, ends: Array, net: Net) -> Pooled:
    """Pool elements X (n, D) into one vector for each group; ``ends`` (G,) are the ends of the groups among them."""
    n, K, r, groups = X.shape[0], net.A.shape[0], net.P.shape[0], ends.shape[0]
    # Rows are projected in pairs.
    even = groups + groups % 2
    U, V = np.empty((n, net.P.shape[1]), X.dtype), np.zeros((even, net.P.shape[1]), X.dtype)
    s, u, length, y = np.empty((n, K), X.dtype), np.empty(n), np.zeros(even), np.zeros(even)
    v = np.empty((even, r), X.dtype)
    g = 0
    for e in range(n):
        assign(X[e], net.A, net.bias[0], s[e])
        residual(X[e], s[e], net.c, U[e])
        u[e] = normalise(U[e])
        while e >= ends[g]:
            g += 1
        add(U[e], V[g])
    for g in range(groups):
        length[g] = normalise(V[g])
    project(V, net.P, v)
    for g in range(groups):
        add(net.p0[0], v[g])
        y[g] = normalise(v[g])
    return Pooled(s, U, u, V, length, v, y)


@njit(cache=True, fastmath=REORDER)
def assign(x: Array, A: Array, bias: Array, s: Array) -> None:
    """``s = softmax(A x + bias)``."""
    top = -math.inf
    for k in range(A.shape[0]):
        total = bias[k]
        for j in range(x.shape[0]):
            total += A[k, j] * x[j]
        s[k] = total
        top = max(top, total)
    exponentials = 0.0
    for k in range(A.shape[0]):
        s[k] = math.exp(s[k] - top)
        exponentials += s[k]
    for k in range(A.shape[0]):
        s[k] /= exponentials


@njit(cache=True)
def residual(x: Array, s: Array, c: Array, block: Array) -> None:
    """``block[k D + j] = s_k (x_j - c_kj)``."""
    D = x.shape[0]
    for k in range(c.shape[0]):
        for j in range(D):
            block[k * D + j] = s[k] * (x[j] - c[k, j])


@njit(cache=True, fastmath=REORDER)
def normalise(x: Array) -> float:
    """Scale a vector (n,) to unit length, in place, and return the length it had. A vector of zeros stays as it is."""
    # Summed in float64, because squares of large float32 numbers do not fit into float32.
    total = 0.0
    for j in range(x.shape[0]):
        total += np.float64(x[j]) * np.float64(x[j])
    length = math.sqrt(total)
    if length > 0.0:
        for j in range(x.shape[0]):
            x[j] /= length
    return length


@njit(cache=True)
def backward(X: Array, ends: Array, pooled: Pooled, net: Net, dv: Array, slope: Net) -> None:
    """Write the gradient along all parameters except w and b to ``slope``.

    ``dv`` (G + 1, r) is the gradient along the vectors v; it is overwritten.
    """
    groups = ends.shape[0]
    slope.p0[:] = 0.0
    for g in range(groups):
        tangent(dv[g], pooled.v[g], pooled.y[g])
        add(dv[g], slope.p0[0])
    mix(np.ascontiguousarray(dv.T), pooled.V, slope.P)
    dV = np.empty_like(pooled.V)
    mix(dv, net.P, dV)
    slope.A[:], slope.bias[:], slope.c[:] = 0.0, 0.0, 0.0
    work = np.empty_like(dV[0])
    begin = 0
    for g in range(groups):
        tangent(dV[g], pooled.V[g], pooled.length[g])
        for e in range(begin, ends[g]):
            work[:] = dV[g]
            tangent(work, pooled.U[e], pooled.u[e])
            through_assignment(X[e], pooled.s[e], net.c, work, slope)
        begin = ends[g]


@njit(cache=True)
def tangent(d: Array, u: Array, length: float) -> None:
    """Turn the gradient ``d`` (n,) along ``u = x / length`` into that along x, in place; zero if x was zero."""
    if length > 0.0:
        axpy(-dot(d, u), u, d)
        for j in range(d.shape[0]):
            d[j] /= length
    else:
        d[:] = 0.0


@njit(cache=True, fastmath=CONTRACT)
def mix(C: Array, X: Array, out: Array) -> None:
    """``out = C X``, for C (i, j), X (j, n): a chunk of columns at a time, which then stays in the nearest caches."""
    rows, n = C.shape[1], X.shape[1]
    fours = rows - rows % 4
    for start in range(0, n, CHUNK):
        stop = min(n, start + CHUNK)
        for i in range(C.shape[0]):
            target = out[i, start:stop]
            target[:] = 0.0
            for j in range(0, fours, 4):
                a, b, c, d = C[i, j], C[i, j + 1], C[i, j + 2], C[i, j + 3]
                x0, x1, x2, x3 = X[j, start:stop], X[j + 1, start:stop], X[j + 2, start:stop], X[j + 3, start:stop]
                for k in range(stop - start):
                    target[k] += a * x0[k] + b * x1[k] + (c * x2[k] + d * x3[k])
            for j in range(fours, rows):
                axpy(C[i, j], X[j, start:stop], target)


@njit(cache=True, fastmath=REORDER)
def through_assignment(x: Array, s: Array, c: Array, d: Array, slope: Net) -> None:
    """Add an element's part to the gradients along A, bias and c; ``d`` (KD,) is the gradient along its residuals."""
    D, K = x.shape[0], s.shape[0]
    ds = np.empty(K)
    mean = 0.0
    for k in range(K):
        total = x.dtype.type(0)
        for j in range(D):
            total += d[k * D + j] * (x[j] - c[k, j])
            slope.c[k, j] -= s[k] * d[k * D + j]
        ds[k] = total
        mean += s[k] * ds[k]
    for k in range(K):
        along = s[k] * (ds[k] - mean)
        slope.bias[0, k] += along
        axpy(along, x, slope.A[k])


@njit(cache=True)
def add(x: Array, total: Array) -> None:
    """``total += x``, of vectors (n,)."""
    for j in range(x.shape[0]):
        total[j] += x[j]


@njit(cache=True, fastmath=REORDER)
def dot(x: Array, y: Array) -> float:
    """``x . y`` of vectors (n,), as float64."""
    total = x.dtype.type(0)
    for j in range(x.shape[0]):
        total += x[j] * y[j]
    return np.float64(total)


@njit(cache=True, fastmath=CONTRACT)
def axpy(a: float, x: Array, y: Array) -> None:
    """``y += a x``, of vectors (n,)."""
    factor = x.dtype.type(a)
    for j in range(x.shape[0]):
        y[j] += factor * x[j]
