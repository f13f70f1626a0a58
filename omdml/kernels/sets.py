"""The walk of SetNet over judgements of sets: soft assignment, pooling, reduction, and back (MATHS 8; SETNET 3).

A judgement is Q query elements, each a group of one, then R relevant and S irrelevant sets: G groups, n elements.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.block import CHUNK, CONTRACT
from omdml.kernels.counts import MISTAKES, UPDATES, VERSION
from omdml.kernels.dots import REORDER, project
from omdml.kernels.memory import at_address, matrix

REACH = 0.1  # how much of its start's length a block of parameters moves at most in one capped step
FASTEST = 1e30  # a rate that float32 holds


class Net(NamedTuple):
    """Parameters, or their gradient."""

    A: Array  # (K, D)   assignment
    bias: Array  # (1, K)
    c: Array  # (K, D)   centres
    P: Array  # (r, KD)  reduction
    p0: Array  # (1, r)
    logistic: Array  # (1, 2)  scale w and shift b of a score


class Shape(NamedTuple):
    """D numbers an element, K clusters, r numbers a vector, m modalities side by side."""

    D: int
    K: int
    r: int
    n: Array  # (m,) dimensions of the modalities
    blocks: Array  # (5,) where (A, bias), c, (P, p0), (w, b) begin among the parameters, and their number


class State(NamedTuple):
    """Everything that learning changes, and what it is measured by."""

    theta: Array  # (N,)     parameters, in the order of Net
    velocity: Array  # (N,)  their last change
    lengths: Array  # (4,)   of the blocks of parameters at the start
    scale: Array  # (m,)     what a modality is multiplied by
    sizes: Array  # (2,)     K and r
    counts: Array  # (4,)    see counts.py
    judged: Array  # (1,)    sets that the moments hold
    mean: Array  # (r,)      running mean of the vectors of judged sets; empty where nothing is whitened
    second: Array  # (r, r)  and of their products


class Rule(NamedTuple):
    """The hyperparameters as the walk takes them."""

    eta: float
    momentum: float
    decay: float
    exact: bool  # steps are capped
    memory: float  # sets that the moments go back


class Pooled(NamedTuple):
    """What the way back needs of the way there."""

    s: Array  # (n, K)        soft assignments
    U: Array  # (n, KD)       residual blocks of unit length
    u: Array  # (n,)          their lengths before, float64
    V: Array  # (G + 1, KD)   sums over the sets' elements, of unit length; G + 1 or G, so that they are even
    length: Array  # (G + 1,)
    v: Array  # (G + 1, r)    vectors of unit length
    y: Array  # (G + 1,)      their lengths before


@njit(cache=True)
def walk(
    rows: Array,
    ends: Array,
    parts: Array,
    addresses: Array,
    shape: Shape,
    state: State,
    rule: Rule,
    gradient: Array,
    scores: Array,
) -> int:
    """Learn judgements in order.

    Parameters
    ----------
    rows : (N,)
        Elements of all groups of all judgements.
    ends : (M,)
        Where each group ends among them.
    parts : (T, 3)
        Q, R and S of each judgement.
    addresses : (m,)
        Of the modalities' feature matrices.
    state
        Changed in place.
    gradient : (N,)
        Working space.
    scores : (T,)
        Written: ``f`` of each judgement before it was learned.

    Returns
    -------
    T, or the index of the first judgement whose numbers overflow. With capped steps the state is then as it was before
    that one, else it is spoilt: restore it.
    """
    group = begin = 0
    for t in range(parts.shape[0]):
        count = parts[t].sum()
        some = ends[group : group + count] - begin
        X = gather(rows[begin : begin + some[-1]], addresses, shape.n, state.scale, state.theta)
        scores[t] = decide(X, some, parts[t, 0], parts[t, 1], shape, state, rule, gradient)
        if not math.isfinite(scores[t]):
            return t
        group += count
        begin += some[-1]
    return parts.shape[0]


@njit(cache=True)
def gather(rows: Array, addresses: Array, n: Array, scale: Array, like: Array) -> Array:
    """Elements (n, D): the modalities side by side, each scaled."""
    X = np.empty((rows.shape[0], n.sum()), like.dtype)
    at = 0
    for i in range(n.shape[0]):
        table = at_address(addresses[i], 1 << 40, n[i], like)
        for e in range(rows.shape[0]):
            x = table[rows[e]]
            for j in range(n[i]):
                X[e, at + j] = x[j] * scale[i]
        at += n[i]
    return X


@njit(cache=True)
def decide(
    X: Array, ends: Array, queries: int, relevant: int, shape: Shape, state: State, rule: Rule, gradient: Array
) -> float:
    """Score one judgement and step; answers f, or NaN where numbers overflow."""
    net, slope = views(state.theta, shape), views(gradient, shape)
    pooled = forward(X, ends, net)
    dv = np.zeros_like(pooled.v)
    loss, f = judge(pooled.v, ends.shape[0], queries, relevant, net.logistic[0], dv, slope.logistic[0])
    if not (math.isfinite(loss) and math.isfinite(f)):
        return np.nan
    backward(X, ends, pooled, net, dv, slope)
    moved = step(state, gradient, shape.blocks, loss, rule)
    if not math.isfinite(moved):
        return np.nan
    state.counts[VERSION] += 1
    state.counts[MISTAKES] += f > 0.0
    state.counts[UPDATES] += moved > 0.0
    if state.mean.shape[0]:
        for g in range(queries, ends.shape[0]):
            remember(pooled.v[g], state, rule.memory)
    return f


@njit(cache=True)
def views(flat: Array, shape: Shape) -> Net:
    """The parts of a buffer of N numbers."""
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
    """Vectors of all groups."""
    n, K, r, groups = X.shape[0], net.A.shape[0], net.P.shape[0], ends.shape[0]
    even = groups + groups % 2  # rows are projected by twos
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
    whole = 0.0
    for k in range(A.shape[0]):
        s[k] = math.exp(s[k] - top)
        whole += s[k]
    for k in range(A.shape[0]):
        s[k] /= whole


@njit(cache=True)
def residual(x: Array, s: Array, c: Array, block: Array) -> None:
    """``block[k D + j] = s_k (x_j - c_kj)``."""
    D = x.shape[0]
    for k in range(c.shape[0]):
        for j in range(D):
            block[k * D + j] = s[k] * (x[j] - c[k, j])


@njit(cache=True, fastmath=REORDER)
def normalise(x: Array) -> float:
    """To unit length, in place; answers the length. A zero stays one."""
    total = 0.0  # float64: squares of large float32 numbers do not fit their type
    for j in range(x.shape[0]):
        total += np.float64(x[j]) * np.float64(x[j])
    length = math.sqrt(total)
    if length > 0.0:
        for j in range(x.shape[0]):
            x[j] /= length
    return length


@njit(cache=True)
def add(x: Array, total: Array) -> None:
    """``total += x``."""
    for j in range(x.shape[0]):
        total[j] += x[j]


@njit(cache=True, fastmath=REORDER)
def dot(x: Array, y: Array) -> float:
    """``x . y``, as float64."""
    total = x.dtype.type(0)
    for j in range(x.shape[0]):
        total += x[j] * y[j]
    return np.float64(total)


@njit(cache=True, fastmath=CONTRACT)
def axpy(a: float, x: Array, y: Array) -> None:
    """``y += a x``."""
    factor = x.dtype.type(a)
    for j in range(x.shape[0]):
        y[j] += factor * x[j]


@njit(cache=True)
def judge(
    v: Array, groups: int, queries: int, relevant: int, logistic: Array, dv: Array, slope: Array
) -> tuple[float, float]:
    """Logistic loss of query elements against sets, relevant and irrelevant pairs each averaged, and f (SETNET Eq. 2).

    Parameters
    ----------
    v : (>= groups, r)
        Queries, relevant sets, irrelevant sets.
    dv : (>= groups, r)
        Zeros; written: the slope along v.
    slope : (2,)
        Written: the slope along w and b.
    """
    loss = f = 0.0
    slope[:] = 0.0
    w, b = np.float64(logistic[0]), np.float64(logistic[1])
    for g in range(queries, groups):
        wanted = g < queries + relevant
        share = 1.0 / (queries * (relevant if wanted else groups - queries - relevant))
        sign = -1.0 if wanted else 1.0
        for q in range(queries):
            cosine = dot(v[q], v[g])
            z = w * cosine + b
            chance = sigmoid(sign * z)
            loss += share * (max(sign * z, 0.0) + math.log1p(math.exp(-abs(z))))
            f += sign * share * sigmoid(z)
            dz = share * sign * chance
            slope[0] += dz * cosine
            slope[1] += dz
            axpy(dz * w, v[g], dv[q])
            axpy(dz * w, v[q], dv[g])
    return loss, f


@njit(cache=True)
def sigmoid(z: float) -> float:
    """``1 / (1 + exp(-z))`` without overflow."""
    small = math.exp(-abs(z))
    return 1.0 / (1.0 + small) if z >= 0.0 else small / (1.0 + small)


@njit(cache=True)
def backward(X: Array, ends: Array, pooled: Pooled, net: Net, dv: Array, slope: Net) -> None:
    """The slope along all parameters but w and b, of which ``dv`` (G + 1, r) brings the slope along v; ``dv`` is spoilt."""
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
    """The slope along x, where ``d`` is that along ``u = x / length``; in place. Zero where x was zero."""
    if length > 0.0:
        axpy(-dot(d, u), u, d)
        for j in range(d.shape[0]):
            d[j] /= length
    else:
        d[:] = 0.0


@njit(cache=True, fastmath=CONTRACT)
def mix(C: Array, X: Array, out: Array) -> None:
    """``out = C X``, for C (i, j), X (j, n): some columns at a time, which then stay in the first cache levels."""
    rows, n = C.shape[1], X.shape[1]
    whole = rows - rows % 4
    for start in range(0, n, CHUNK):
        stop = min(n, start + CHUNK)
        for i in range(C.shape[0]):
            target = out[i, start:stop]
            target[:] = 0.0
            for j in range(0, whole, 4):
                a, b, c, d = C[i, j], C[i, j + 1], C[i, j + 2], C[i, j + 3]
                x0, x1, x2, x3 = X[j, start:stop], X[j + 1, start:stop], X[j + 2, start:stop], X[j + 3, start:stop]
                for k in range(stop - start):
                    target[k] += a * x0[k] + b * x1[k] + (c * x2[k] + d * x3[k])
            for j in range(whole, rows):
                axpy(C[i, j], X[j, start:stop], target)


@njit(cache=True, fastmath=REORDER)
def through_assignment(x: Array, s: Array, c: Array, d: Array, slope: Net) -> None:
    """Add an element's part of the slope along A, bias and c; ``d`` (KD,) is that along its residual block."""
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
def step(state: State, gradient: Array, blocks: Array, loss: float, rule: Rule) -> float:
    """``velocity <- momentum velocity - rate (gradient + decay theta)``, ``theta += velocity``; answers the length of the
    gradient, or what is not finite, where nothing was done.

    Capped, a block's rate is the least of eta, (1 - momentum) loss / |gradient|^2 (the loss is at least 0), and what
    moves the block, momentum included, by a tenth of its length at the start.
    """
    squares = np.empty(4)
    for i in range(4):
        squares[i] = square(gradient[blocks[i] : blocks[i + 1]])
    length = math.sqrt(squares.sum())
    if length == 0.0 or not math.isfinite(length):
        return length
    moved = length
    for i in range(4):
        rate, shrink = rule.eta, rule.eta * rule.decay
        if rule.exact:
            rest = 1.0 - rule.momentum
            rate = min(rate, rest * loss / squares.sum(), FASTEST)
            if squares[i] > 0.0:
                rate = min(rate, rest * REACH * state.lengths[i] / math.sqrt(squares[i]))
            shrink = min(rate * rule.decay, rest * REACH)
        part = slice(blocks[i], blocks[i + 1])
        moved += move(state.theta[part], state.velocity[part], gradient[part], rule.momentum, rate, shrink)
    return moved


@njit(cache=True, fastmath=REORDER)
def square(x: Array) -> float:
    """``|x|^2``, in float64."""
    total = 0.0
    for j in range(x.shape[0]):
        total += np.float64(x[j]) * np.float64(x[j])
    return total


@njit(cache=True, fastmath=REORDER)
def move(theta: Array, velocity: Array, gradient: Array, momentum: float, rate: float, shrink: float) -> float:
    """One block of parameters, in place; answers a sum that is finite where all of it is."""
    m, a, b = theta.dtype.type(momentum), theta.dtype.type(rate), theta.dtype.type(shrink)
    total = theta.dtype.type(0)
    for j in range(theta.shape[0]):
        velocity[j] = m * velocity[j] - a * gradient[j] - b * theta[j]
        theta[j] += velocity[j]
        total += theta[j] - theta[j]
    return np.float64(total)


@njit(cache=True)
def remember(v: Array, state: State, memory: float) -> None:
    """Take a set's vector into the running moments."""
    state.judged[0] += 1
    share = v.dtype.type(1.0 / min(np.float64(state.judged[0]), memory))
    for i in range(v.shape[0]):
        state.mean[i] += share * (v[i] - state.mean[i])
        for j in range(v.shape[0]):
            state.second[i, j] += share * (v[i] * v[j] - state.second[i, j])
