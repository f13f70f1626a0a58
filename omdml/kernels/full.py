"""The walk of full-matrix learners over comparisons (OMDML, Algorithm 1; LAW 2), in blocked exact form (MATHS 2.1, 3).

Within a block ``M_now = M - sum_s c_s x_s x_s'`` over the ``used`` rows: differences that updated, and vectors that the
projection on positive semi-definite matrices took out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.block import flush, gather
from omdml.kernels.counts import FILLED, MISTAKES, UPDATES, VERSION
from omdml.kernels.dots import inner, project
from omdml.kernels.hedge import discount, softmax
from omdml.kernels.memory import matrix
from omdml.kernels.psd import add_outer, clip, negative_eigenpair, rotate

NEAR, NEAR_FLOAT32 = 1e-12, 1e-6  # an eigenvalue this much closer to 0 than the largest is 0
NOISE = 16  # in units of rounding: negative eigenvalues of a block's first matrix beyond it are cut away


class Shape(NamedTuple):
    """m modalities, and where each one's part of the flat buffers begins; R rows a modality, B events a block."""

    n: Array  # (m,) dimensions
    at_m: Array  # (m,) in buffers of matrices (n_i, n_i)
    at_x: Array  # (m,) in buffers of rows (R, n_i)
    at_d: Array  # (m,) in buffers of rows (2B, n_i)
    at_f: Array  # (m,) in buffers of rows (k_i, n_i)
    k: Array  # (m,) eigenvectors that the Fantope looks at
    events: int  # B


class State(NamedTuple):
    """Everything that learning changes. Flat buffers hold one modality after the other."""

    M: Array  # (sum n_i n_i,)   matrices at the block's first event
    X: Array  # (R sum n_i,)     rows of rank-one terms, scaled
    c: Array  # (m, R)           their signs, 1 or -1
    used: Array  # (m,)          how many of them count
    counts: Array  # (4,)        see counts.py
    log_weights: Array  # (m,)
    losses: Array  # (m + 1,)    certificate of Hedge
    floors: Array  # (m,)        certified lower bounds of the smallest eigenvalues
    based: Array  # (m,)         whether this block needed the eigenbasis of M
    bites: Array  # (m,)         how often the projection changed something
    bottom: Array  # (sum k_i n_i,)  eigenvectors (k_i, n_i) that the Fantope presses down
    age: Array  # (m,)           updates since they were found; -1: never


class Rule(NamedTuple):
    """The hyperparameters as the walk takes them."""

    rate: float  # C or eta
    gamma: float
    log_beta: float
    keep: float  # 1 - 1/memory
    exact: bool  # steps capped at loss / |V|^2
    joint: bool  # one margin for the sum over the modalities, no weights
    mu: float
    trace: float
    refresh: int


class Work(NamedTuple):
    """Working space: no state."""

    D: Array  # (2B sum n_i,)    differences of the comparisons at hand
    MD: Array  # (2B sum n_i,)   the same times M
    grams: Array  # (2, R)
    f: Array  # (m,)
    weights: Array  # (m,)
    QT: Array  # (sum n_i n_i,)  eigenvectors of M as rows, float64
    lam: Array  # (sum n_i,)     eigenvalues, rising
    Y: Array  # (R sum n_i,)     X in the eigenbasis
    ready: Array  # (m,)         rows of Y that are there; -1: no eigenbasis of this block's M


@njit(cache=True)
def walk(
    rows: Array, margins: Array, addresses: Array, shape: Shape, state: State, rule: Rule, work: Work, scores: Array
) -> int:
    """Learn comparisons in order.

    Parameters
    ----------
    rows : (T, 4)
        Near pair and far pair of each comparison.
    margins : (T,)
    addresses : (m,)
        Of the modalities' feature matrices.
    state
        Changed in place.
    scores : (T,)
        Written: ``f`` of each comparison before it was learned.

    Returns
    -------
    T, or the index of the first comparison whose numbers overflow: the state is then spoilt, restore it.
    """
    softmax(state.log_weights, work.weights)
    t = 0
    while t < rows.shape[0]:
        count = min(rows.shape[0] - t, shape.events - state.counts[FILLED])
        load(rows[t : t + count], addresses, shape, state.M, work)
        for e in range(count):
            scores[t + e] = decide(e, margins[t + e], shape, state, rule, work)
            if not math.isfinite(scores[t + e]):
                return t + e
        t += count
        if state.counts[FILLED] == shape.events:
            close(shape, state, work)
    return t


@njit(cache=True)
def load(rows: Array, addresses: Array, shape: Shape, M: Array, work: Work) -> None:
    """Gather the differences of these comparisons and multiply them by the block's first M."""
    for i in range(shape.n.shape[0]):
        n = shape.n[i]
        D = matrix(work.D, shape.at_d[i], 2 * rows.shape[0], n)
        gather(addresses[i], rows, D)
        project(D, matrix(M, shape.at_m[i], n, n), matrix(work.MD, shape.at_d[i], 2 * rows.shape[0], n))


@njit(cache=True)
def difference(i: int, e: int, shape: Shape, state: State, work: Work) -> float:
    """``f_i = a' M_now a - b' M_now b`` of comparison ``e`` of those loaded."""
    n = shape.n[i]
    D, MD = matrix(work.D, shape.at_d[i] + 2 * e * n, 2, n), matrix(work.MD, shape.at_d[i] + 2 * e * n, 2, n)
    near, far = inner(D[0], MD[0])[2], inner(D[1], MD[1])[2]
    used = state.used[i]
    if used:
        X = matrix(state.X, shape.at_x[i], state.c.shape[1], n)
        project(D, X[: (used + 7) // 8 * 8], work.grams)
        for s in range(used):
            near -= state.c[i, s] * work.grams[0, s] ** 2
            far -= state.c[i, s] * work.grams[1, s] ** 2
    return near - far


@njit(cache=True)
def decide(e: int, margin: float, shape: Shape, state: State, rule: Rule, work: Work) -> float:
    """Score comparison ``e`` of those loaded and, where it violates its margin, update; answers f."""
    f = 0.0
    for i in range(shape.n.shape[0]):
        work.f[i] = difference(i, e, shape, state, work)
        share = 1.0 if rule.joint else work.weights[i]
        f += share * work.f[i] if math.isfinite(work.f[i]) else np.nan
    counts = state.counts
    counts[FILLED] += 1
    counts[VERSION] += 1
    counts[MISTAKES] += f > 0.0
    if f + rule.gamma * margin > 0.0:
        counts[UPDATES] += 1
        if not rule.joint:
            discount(work.f, rule.log_beta, rule.keep, state.log_weights, work.weights, state.losses)
        if not update(e, f, margin, shape, state, rule, work):
            return np.nan
    return f


@njit(cache=True)
def squared_norm(i: int, e: int, shape: Shape, work: Work) -> float:
    """``|V|_F^2 = |a|^4 + |b|^4 - 2 (a.b)^2`` with ``V = a a' - b b'``."""
    D = matrix(work.D, shape.at_d[i] + 2 * e * shape.n[i], 2, shape.n[i])
    aa, bb, ab = inner(D[0], D[1])
    return aa * aa + bb * bb - 2.0 * ab * ab


@njit(cache=True)
def update(e: int, f: float, margin: float, shape: Shape, state: State, rule: Rule, work: Work) -> bool:
    """Step every modality that comparison ``e`` asks to; False where a step overflows."""
    total = 0.0
    if rule.joint:
        for i in range(shape.n.shape[0]):
            total += squared_norm(i, e, shape, work)
    for i in range(shape.n.shape[0]):
        loss = (f if rule.joint else work.f[i]) + margin
        if loss > 0.0:
            norm = total if rule.joint else squared_norm(i, e, shape, work)
            if not math.isfinite(norm):
                return False
            rate = rule.rate
            if rule.exact:
                rate = min(rate, loss / norm) if norm > 0.0 else 0.0
            if rate > 0.0 and (rule.mu > 0.0 or rule.trace > 0.0):
                step_dense(i, e, rate, shape, state, rule, work)
            elif rate > 0.0:
                step(i, e, rate, shape, state, work)
    return True


@njit(cache=True)
def push(x: Array, scale: float, sign: float, i: int, shape: Shape, state: State) -> None:
    """Keep ``M <- M - sign scale x x'`` as a row of the block; scaled rows leave M symmetric to the bit."""
    row = matrix(state.X, shape.at_x[i], state.c.shape[1], shape.n[i])[state.used[i]]
    root = math.sqrt(scale)
    for j in range(row.shape[0]):
        row[j] = root * x[j]
    state.c[i, state.used[i]] = sign
    state.used[i] += 1


@njit(cache=True)
def step(i: int, e: int, tau: float, shape: Shape, state: State, work: Work) -> None:
    """``M_i <- PSD(M_i - tau (a a' - b b'))``: certified by a bound, or the one negative eigenvalue found and cut."""
    n = shape.n[i]
    D = matrix(work.D, shape.at_d[i] + 2 * e * n, 2, n)
    push(D[1], tau, -1.0, i, shape, state)
    push(D[0], tau, 1.0, i, shape, state)
    state.floors[i] -= tau * inner(D[0], D[1])[0]
    if state.floors[i] > 0.0:
        return
    state.based[i] = 1
    base(i, shape, state, work)
    state.floors[i] = max(0.0, certified(i, shape, state, work))
    if state.floors[i] > 0.0:
        return
    used, QT = state.used[i], matrix(work.QT, shape.at_m[i], n, n)
    size = state.c.shape[1]
    X, Y = matrix(state.X, shape.at_x[i], size, n), matrix(work.Y, shape.at_x[i], size, n)
    rotate(QT, X, work.ready[i], used, Y)
    work.ready[i] = used
    lam = eigenvalues(i, shape, state, work)
    near = (NEAR if state.M.itemsize == 8 else NEAR_FLOAT32) * (lam[-1] + np.dot(Y[used - 1], Y[used - 1]))
    g = -state.c[i, : used - 1].astype(np.float64)
    low, vector = negative_eigenpair(lam, Y[: used - 1], g, Y[used - 1], near)
    if low < 0.0:
        push(np.dot(vector, QT), -low, -1.0, i, shape, state)
        state.bites[i] += 1


@njit(cache=True)
def eigenvalues(i: int, shape: Shape, state: State, work: Work) -> Array:
    """Of this block's first M_i, rising: (n_i,), a view."""
    begin = shape.at_x[i] // state.c.shape[1]
    return work.lam[begin : begin + shape.n[i]]


@njit(cache=True)
def base(i: int, shape: Shape, state: State, work: Work) -> None:
    """Make sure of the eigenbasis of this block's first M_i."""
    if work.ready[i] >= 0:
        return
    n = shape.n[i]
    lam, vectors = np.linalg.eigh(matrix(state.M, shape.at_m[i], n, n).astype(np.float64))
    eigenvalues(i, shape, state, work)[:] = lam
    matrix(work.QT, shape.at_m[i], n, n)[:] = vectors.T
    work.ready[i] = 0


@njit(cache=True)
def certified(i: int, shape: Shape, state: State, work: Work) -> float:
    """What the smallest eigenvalue is at least, by what this block took from that of its first matrix."""
    lam = eigenvalues(i, shape, state, work)
    bound = lam[0] - shape.n[i] * rounding(state) * lam[-1]
    X = matrix(state.X, shape.at_x[i], state.c.shape[1], shape.n[i])
    for s in range(state.used[i]):
        if state.c[i, s] > 0.0:
            bound -= inner(X[s], X[s])[0]
    return bound


@njit(cache=True)
def rounding(state: State) -> float:
    """Unit of the last place of the state's type, at 1."""
    return 2.2e-16 if state.M.itemsize == 8 else 1.2e-7


@njit(cache=True)
def step_dense(i: int, e: int, rate: float, shape: Shape, state: State, rule: Rule, work: Work) -> None:
    """``M_i <- PSD(M_i - rate (mu F + trace I + a a' - b b'))``, by an eigendecomposition: many eigenvalues may turn.

    Blocks of such rules hold one event: M_i is what it is now.
    """
    n = shape.n[i]
    M, D = matrix(state.M, shape.at_m[i], n, n), matrix(work.D, shape.at_d[i] + 2 * e * n, 2, n)
    bottom = matrix(state.bottom, shape.at_f[i], shape.k[i], n)
    if state.age[i] < 0:
        base(i, shape, state, work)
        bottom[:] = matrix(work.QT, shape.at_m[i], n, n)[: shape.k[i]]
        state.age[i] = 0
    root = math.sqrt(rate)
    add_outer(M, root * D[0], -1.0)
    add_outer(M, root * D[1], 1.0)
    for s in range(shape.k[i]):
        add_outer(M, math.sqrt(rate * rule.mu) * bottom[s], -1.0)
    for j in range(n):
        M[j, j] -= rate * rule.trace
    work.ready[i] = -1
    base(i, shape, state, work)
    QT = matrix(work.QT, shape.at_m[i], n, n)
    state.bites[i] += clip(M, eigenvalues(i, shape, state, work), QT, 0.0) > 0
    state.age[i] += 1
    if state.age[i] >= rule.refresh:
        bottom[:] = QT[: shape.k[i]]
        state.age[i] = 0


@njit(cache=True)
def close(shape: Shape, state: State, work: Work) -> None:
    """End the block: flush it into M, cut away what rounding made negative, begin the next."""
    for i in range(shape.n.shape[0]):
        if state.based[i]:
            base(i, shape, state, work)
    flush_all(shape, state, state.M)
    for i in range(shape.n.shape[0]):
        if state.based[i]:
            n, lam = shape.n[i], eigenvalues(i, shape, state, work)
            QT = matrix(work.QT, shape.at_m[i], n, n)
            clip(matrix(state.M, shape.at_m[i], n, n), lam, QT, -NOISE * rounding(state) * lam[-1])
    state.used[:] = 0
    state.based[:] = 0
    work.ready[:] = -1
    state.counts[FILLED] = 0


@njit(cache=True)
def flush_all(shape: Shape, state: State, M: Array) -> None:
    """Bring M, a copy of the block's first one or that itself, up to date with the open block."""
    for i in range(shape.n.shape[0]):
        n, used = shape.n[i], state.used[i]
        state.c[i, used : used + used % 2] = 0.0
        X = matrix(state.X, shape.at_x[i], state.c.shape[1], n)
        flush(matrix(M, shape.at_m[i], n, n), X, X, state.c[i], used + used % 2)
