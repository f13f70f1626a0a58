"""The walk of OASIS over triplets (OMDML's baseline; MATHS 4), in the blocked exact form of MATHS 2.1.

Within a block ``W_now = W + sum_s Q_s U_s'`` over the ``used`` rows: the queries and differences of triplets that
changed W. Both are multiplied by the square root of the step's rate, so that no product of rates and features leaves
the range of float32.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.shared.block import flush
from omdml.kernels.shared.counts import FILLED, UPDATES, count
from omdml.kernels.shared.dots import inner, project
from omdml.kernels.shared.memory import at_address, matrix


class Shape(NamedTuple):
    """m modalities, and where each one starts in the flat buffers. A block holds B comparisons."""

    # Dimensions.
    n: Array  # (m,)
    # Start of each modality in buffers of matrices (n_i, n_i).
    w_starts: Array  # (m,)
    # Start of each modality in buffers of rows (B, n_i).
    x_starts: Array  # (m,)
    # B, the comparisons of a block: an even number.
    events: int


class State(NamedTuple):
    """Everything that learning changes. Flat buffers hold one modality after the other."""

    # The matrices before the block's first comparison.
    W: Array  # (sum n_i n_i,)
    # Rows of rank-one terms: the queries.
    Q: Array  # (B sum n_i,)
    # Rows of rank-one terms: relevant minus irrelevant items.
    U: Array  # (B sum n_i,)
    # How many rows of each modality count.
    used: Array  # (m,)
    # See shared/counts.py.
    counts: Array  # (4,)


class Work(NamedTuple):
    """Working space: no state. Row p belongs to the block's p-th comparison."""

    # Queries of the triplets being learned.
    Q: Array  # (B sum n_i,)
    # Their relevant minus irrelevant items.
    U: Array  # (B sum n_i,)
    # ``W u`` for each row u of ``U``.
    WU: Array  # (B sum n_i,)
    # ``S_i(q, r) - S_i(q, s)`` of the triplet being learned.
    s: Array  # (m,)
    # Filled with -1, because ``flush`` subtracts rows, and the rows here are to be added.
    minus: Array  # (B,)


@njit(cache=True)
def walk(rows: Array, addresses: Array, shape: Shape, state: State, C: float, work: Work, scores: Array) -> int:
    """Learn triplets in order.

    Parameters
    ----------
    rows : (T, 3)
        Query, relevant, irrelevant.
    addresses : (m,)
        Of the modalities' feature matrices.
    state
        Changed in place.
    C
        Largest rate of a step.
    scores : (T,)
        Written: ``f`` of each triplet before it was learned.

    Returns
    -------
    T, or the index of the first triplet whose numbers overflow. The caller must then restore the state.
    """
    t = 0
    while t < rows.shape[0]:
        first = state.counts[FILLED]
        size = min(rows.shape[0] - t, shape.events - first)
        load(rows[t : t + size], addresses, first, shape, state.W, work)
        for e in range(size):
            scores[t + e] = decide(first + e, shape, state, C, work)
            if not math.isfinite(scores[t + e]):
                return t + e
        t += size
        if state.counts[FILLED] == shape.events:
            flush_all(shape, state, state.W, work.minus)
            state.used[:] = 0
            state.counts[FILLED] = 0
    return t


@njit(cache=True)
def load(rows: Array, addresses: Array, first: int, shape: Shape, W: Array, work: Work) -> None:
    """Copy these triplets to the places from ``first`` on, and multiply them by W as it was before the block.

    Rows are projected in pairs, from an even place on, so that a row's bytes do not depend on ``first``.
    """
    begin, end = first - first % 2, first + rows.shape[0]
    end += end % 2
    for i in range(shape.n.shape[0]):
        n = shape.n[i]
        Q, U = matrix(work.Q, shape.x_starts[i], shape.events, n), matrix(work.U, shape.x_starts[i], shape.events, n)
        gather(addresses[i], rows, Q[first:], U[first:])
        WU = matrix(work.WU, shape.x_starts[i], shape.events, n)
        project(U[begin:end], matrix(W, shape.w_starts[i], n, n), WU[begin:end])


@njit(cache=True)
def gather(address: int, rows: Array, Q: Array, U: Array) -> None:
    """``Q[e], U[e] = x[rows[e, 0]], x[rows[e, 1]] - x[rows[e, 2]]``; the caller must have checked ``rows``."""
    n = Q.shape[1]
    x = at_address(address, 1 << 40, n, Q)
    for e in range(rows.shape[0]):
        query, relevant, irrelevant = x[rows[e, 0]], x[rows[e, 1]], x[rows[e, 2]]
        q, u = Q[e], U[e]
        for j in range(n):
            q[j] = query[j]
            u[j] = relevant[j] - irrelevant[j]


@njit(cache=True)
def decide(p: int, shape: Shape, state: State, C: float, work: Work) -> float:
    """Score the triplet in place ``p`` and take a step in every modality whose margin it violates. Returns ``f``."""
    modalities = shape.n.shape[0]
    f = 0.0
    for i in range(modalities):
        work.s[i] = score_difference(i, p, shape, state, work)
        f -= work.s[i] / modalities
    counts = state.counts
    count(counts, f)
    updated = False
    for i in range(modalities):
        rate = capped_step(i, p, shape, C, work)
        if not math.isfinite(rate):
            return np.nan
        if rate > 0.0:
            store(i, p, rate, shape, state, work)
            updated = True
    counts[UPDATES] += updated
    return f


@njit(cache=True)
def score_difference(i: int, p: int, shape: Shape, state: State, work: Work) -> float:
    """``S_i(q, r) - S_i(q, s) = q' W_now u``."""
    n, size = shape.n[i], shape.events
    q, u = matrix(work.Q, shape.x_starts[i], size, n)[p], matrix(work.U, shape.x_starts[i], size, n)[p]
    Q, U = matrix(state.Q, shape.x_starts[i], size, n), matrix(state.U, shape.x_starts[i], size, n)
    s = inner(q, matrix(work.WU, shape.x_starts[i], size, n)[p])[2]
    for k in range(state.used[i]):
        s += inner(q, Q[k])[2] * inner(u, U[k])[2]
    return s


@njit(cache=True)
def capped_step(i: int, p: int, shape: Shape, C: float, work: Work) -> float:
    """``tau = min(C, loss / |q u'|_F^2)``; 0 if the margin holds, NaN if numbers overflow."""
    n, size = shape.n[i], shape.events
    q, u = matrix(work.Q, shape.x_starts[i], size, n)[p], matrix(work.U, shape.x_starts[i], size, n)[p]
    qq, uu, _ = inner(q, u)
    loss, norm = 1.0 - work.s[i], qq * uu
    if not (math.isfinite(loss) and math.isfinite(norm)):
        return math.nan
    return min(C, loss / norm) if loss > 0.0 and norm > 0.0 else 0.0


@njit(cache=True)
def store(i: int, p: int, rate: float, shape: Shape, state: State, work: Work) -> None:
    """Append the update ``W <- W + rate q u'`` to the open block."""
    n, size = shape.n[i], shape.events
    q, u = matrix(work.Q, shape.x_starts[i], size, n)[p], matrix(work.U, shape.x_starts[i], size, n)[p]
    k, root = state.used[i], math.sqrt(rate)
    row_q, row_u = matrix(state.Q, shape.x_starts[i], size, n)[k], matrix(state.U, shape.x_starts[i], size, n)[k]
    for j in range(n):
        row_q[j] = root * q[j]
        row_u[j] = root * u[j]
    state.used[i] += 1


@njit(cache=True)
def flush_all(shape: Shape, state: State, W: Array, minus: Array) -> None:
    """Apply the updates of the open block to W, which is ``state.W`` or a copy of it."""
    for i in range(shape.n.shape[0]):
        n, used = shape.n[i], state.used[i]
        Q, U = matrix(state.Q, shape.x_starts[i], shape.events, n), matrix(state.U, shape.x_starts[i], shape.events, n)
        # ``flush`` takes rows in pairs, so an odd number is filled up with a row of zeros.
        if used % 2:
            Q[used] = 0.0
            U[used] = 0.0
        flush(matrix(W, shape.w_starts[i], n, n), U, Q, minus, used + used % 2)
