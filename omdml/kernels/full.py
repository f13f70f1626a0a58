"""The walk of full-matrix learners over comparisons (OMDML, Algorithm 1; LAW 2), in blocked exact form (MATHS 2.1, 3).

Within a block ``M_now = M - sum_s c_s x_s x_s'`` over the ``used`` rows. A row is a difference of a comparison that
changed M, or a vector that the projection on positive semi-definite matrices took out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.shared.block import flush, gather
from omdml.kernels.shared.counts import UPDATES, count
from omdml.kernels.shared.dots import TILE, inner, project
from omdml.kernels.shared.hedge import discount, softmax
from omdml.kernels.shared.memory import matrix

# No entry may move further in one step than this share of the largest number of the type, so that even very many steps
# cannot add up to an overflow.
FARTHEST = 2.0**-64


class Shape(NamedTuple):
    """m modalities, and where each one starts in the flat buffers.

    A block holds B comparisons and R rows per modality.
    """

    # Dimensions.
    n: Array  # (m,)
    # Start of each modality in buffers of matrices (n_i, n_i).
    m_starts: Array  # (m,)
    # Start of each modality in buffers of rows (R, n_i).
    x_starts: Array  # (m,)
    # Start of each modality in buffers of rows (2B, n_i).
    d_starts: Array  # (m,)
    # B, the comparisons of a block.
    events: int


class State(NamedTuple):
    """Everything that learning changes. Flat buffers hold one modality after the other."""

    # The matrices before the block's first comparison.
    M: Array  # (sum n_i n_i,)
    # Rows of rank-one terms, scaled.
    X: Array  # (R sum n_i,)
    # Signs of the rows, 1 or -1.
    c: Array  # (m, R)
    # How many rows of each modality count.
    used: Array  # (m,)
    # See shared/counts.py.
    counts: Array  # (4,)
    log_weights: Array  # (m,)
    # Certificate of Hedge.
    losses: Array  # (m + 1,)
    # Certified lower bounds of the smallest eigenvalues.
    floors: Array  # (m,)
    # Lower bounds worth trying next.
    hints: Array  # (m,)
    # 1 if a negative eigenvalue was cut away in this block.
    cut: Array  # (m,)
    # How often the projection changed something.
    bites: Array  # (m,)
    # Eigenvectors (k_i, n_i) that the Fantope regulariser presses down.
    bottom: Array  # (sum k_i n_i,)
    # Updates since these eigenvectors were computed; -1 if they never were.
    age: Array  # (m,)


class Rule(NamedTuple):
    """The hyperparameters in the form that the walk takes."""

    # C or eta.
    rate: float
    gamma: float
    log_beta: float
    # 1 - 1/memory.
    keep: float
    # Whether steps are capped at loss / |V|^2.
    exact: bool
    # Whether all modalities share one margin, and have no weights.
    joint: bool


class Work(NamedTuple):
    """Working space, which is not part of the state."""

    # Differences of the comparisons being learned.
    D: Array  # (2B sum n_i,)
    # The same times M.
    MD: Array  # (2B sum n_i,)
    grams: Array  # (2, R)
    f: Array  # (m,)
    weights: Array  # (m,)
    # Rate of the newest step.
    rates: Array  # (m,)
    # Whether the newest step may have left a matrix that is not positive semi-definite.
    pending: Array  # (m,)


@njit(cache=True)
def walk(e: int, margins: Array, shape: Shape, state: State, rule: Rule, work: Work, scores: Array) -> int:
    """Learn the loaded comparisons, from ``e`` on, until one leaves a matrix that must be projected.

    Parameters
    ----------
    margins, scores : (count,)
        Of the loaded comparisons. For each learned comparison its f is written to ``scores``. NaN means that numbers
        overflowed, and that the caller must restore the state.
    state
        Changed in place.

    Returns
    -------
    The number of the comparison after the last learned one. ``work.pending`` says which matrices must be projected.
    """
    softmax(state.log_weights, work.weights)
    while e < margins.shape[0]:
        scores[e] = decide(e, margins[e], shape, state, rule, work)
        e += 1
        if not math.isfinite(scores[e - 1]) or work.pending.any():
            break
    return e


@njit(cache=True)
def load(rows: Array, addresses: Array, shape: Shape, M: Array, work: Work) -> None:
    """Compute the differences of these comparisons, and multiply them by M as it was before the block."""
    for i in range(shape.n.shape[0]):
        n = shape.n[i]
        D = matrix(work.D, shape.d_starts[i], 2 * rows.shape[0], n)
        gather(addresses[i], rows, D)
        project(D, matrix(M, shape.m_starts[i], n, n), matrix(work.MD, shape.d_starts[i], 2 * rows.shape[0], n))


@njit(cache=True)
def difference(i: int, e: int, shape: Shape, state: State, work: Work) -> float:
    """``f_i = a' M_now a - b' M_now b`` of the loaded comparison ``e``."""
    n = shape.n[i]
    D, MD = matrix(work.D, shape.d_starts[i] + 2 * e * n, 2, n), matrix(work.MD, shape.d_starts[i] + 2 * e * n, 2, n)
    near, far = inner(D[0], MD[0])[2], inner(D[1], MD[1])[2]
    used = state.used[i]
    if used:
        X = matrix(state.X, shape.x_starts[i], state.c.shape[1], n)
        project(D, X[: -(-used // TILE) * TILE], work.grams)
        for s in range(used):
            near -= state.c[i, s] * work.grams[0, s] ** 2
            far -= state.c[i, s] * work.grams[1, s] ** 2
    return near - far


@njit(cache=True)
def decide(e: int, margin: float, shape: Shape, state: State, rule: Rule, work: Work) -> float:
    """Score the loaded comparison ``e`` and, if it violates its margin, update. Returns f, NaN if numbers overflow."""
    f = 0.0
    for i in range(shape.n.shape[0]):
        work.f[i] = difference(i, e, shape, state, work)
        share = 1.0 if rule.joint else work.weights[i]
        f += share * work.f[i] if math.isfinite(work.f[i]) else np.nan
    counts = state.counts
    count(counts, f)
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
    D = matrix(work.D, shape.d_starts[i] + 2 * e * shape.n[i], 2, shape.n[i])
    aa, bb, ab = inner(D[0], D[1])
    return aa * aa + bb * bb - 2.0 * ab * ab


@njit(cache=True)
def reach(i: int, e: int, shape: Shape, work: Work) -> float:
    """``|a|^2 + |b|^2``: no entry of M moves by more than this times the rate."""
    D = matrix(work.D, shape.d_starts[i] + 2 * e * shape.n[i], 2, shape.n[i])
    aa, bb, _ = inner(D[0], D[1])
    return aa + bb


@njit(cache=True)
def update(e: int, f: float, margin: float, shape: Shape, state: State, rule: Rule, work: Work) -> bool:
    """Take a step in every modality whose margin comparison ``e`` violates. Returns False if a step overflows."""
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
            if not rate * reach(i, e, shape, work) <= np.finfo(work.D.dtype).max * FARTHEST:
                return False
            if rate > 0.0:
                step(i, e, rate, shape, state, work)
    return True


@njit(cache=True)
def push(x: Array, scale: float, sign: float, i: int, shape: Shape, state: State) -> None:
    """Append the update ``M <- M - sign scale x x'`` to the open block.

    The row is stored times the square root of ``scale``. So both factors of the rank-one term are the same numbers, and
    M stays symmetric to the bit.
    """
    row = matrix(state.X, shape.x_starts[i], state.c.shape[1], shape.n[i])[state.used[i]]
    root = math.sqrt(scale)
    for j in range(row.shape[0]):
        row[j] = root * x[j]
    state.c[i, state.used[i]] = sign
    state.used[i] += 1


@njit(cache=True)
def step(i: int, e: int, tau: float, shape: Shape, state: State, work: Work) -> None:
    """``M_i <- M_i - tau (a a' - b b')``; ``pending`` unless a bound shows that no projection is needed."""
    n = shape.n[i]
    D = matrix(work.D, shape.d_starts[i] + 2 * e * n, 2, n)
    push(D[1], tau, -1.0, i, shape, state)
    push(D[0], tau, 1.0, i, shape, state)
    state.floors[i] -= tau * inner(D[0], D[1])[0]
    work.rates[i] = tau
    work.pending[i] = not state.floors[i] > 0.0


@njit(cache=True)
def flush_one(i: int, shape: Shape, state: State, M: Array) -> None:
    """Apply the updates of the open block to M (n_i, n_i): the modality's own matrix, or a copy of it."""
    used = state.used[i]
    state.c[i, used : used + used % 2] = 0.0
    X = matrix(state.X, shape.x_starts[i], state.c.shape[1], shape.n[i])
    flush(M, X, X, state.c[i], used + used % 2)


@njit(cache=True)
def flush_all(shape: Shape, state: State, M: Array) -> None:
    """Apply the updates of the open block to all matrices: M is ``state.M`` or a copy of it."""
    for i in range(shape.n.shape[0]):
        flush_one(i, shape, state, matrix(M, shape.m_starts[i], shape.n[i], shape.n[i]))
