"""The walk of coupled projections over pairs (CP-mtML, Algorithm 1; MATHS 5), in the blocked exact form of MATHS 2.1.

A pair's distance is a sum over several *parts*: matrices L_m (r, d) that belong to one task or are shared. Within a
block ``L_m,now = L_m - sum_s c_s P_s X_s'`` over the rows s that updated it. One Gram matrix serves all parts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.shared.block import CONTRACT
from omdml.kernels.shared.counts import FILLED, UPDATES, count
from omdml.kernels.shared.dots import inner, project
from omdml.kernels.shared.memory import at_address, matrix

# Columns that are flushed at a time: the rows stay in the nearest cache while the parts are read and written once.
CHUNK = 1024
# The largest squared length of a projection. Larger numbers come close to the limit of float32.
LARGEST = 1e30
# How far a threshold moves in a step, as a share of the rate.
DRIFT = 0.1
# A capped step changes a pair's own projections by this share of them at most.
REACH = 0.25


class Shape(NamedTuple):
    """m modalities side by side in d dimensions, T tasks of k parts each."""

    # Dimensions.
    n: Array  # (m,)
    # Column at which each modality starts.
    starts: Array  # (m,)
    # Numbers of each task's parts. A part appears in one column only.
    parts: Array  # (T, k)


class State(NamedTuple):
    """Everything that learning changes. The open block has room for B rows; the first ``used`` of them count."""

    # The parts before the block's first comparison.
    L: Array  # (M, r, d)
    # Thresholds, float64.
    b: Array  # (T,)
    # Differences.
    X: Array  # (B, d)
    # What the update subtracts along each difference.
    P: Array  # (B, k, r)
    # Signed rates.
    c: Array  # (B, k)
    # Tasks.
    task: Array  # (B,)
    used: Array  # (1,)
    # Comparisons of the open block in which each part took part.
    seen: Array  # (M,)
    # See shared/counts.py.
    counts: Array  # (4,)


class Rule(NamedTuple):
    """The hyperparameters in the form that the walk takes."""

    eta: float
    # Share of the rate for each of a task's parts.
    shares: Array  # (k,)
    # Whether steps are capped by :func:`exact_step`.
    exact: bool


class Work(NamedTuple):
    """Working space, which is not part of the state."""

    # Differences of the pairs being learned.
    D: Array  # (B, d)
    # Their projections.
    P: Array  # (B, k, r)
    # Rows of a single part: their differences.
    X: Array  # (B + 2, d)
    # Rows of a single part: their projections, or what they subtract from it.
    Q: Array  # (B + 2, r)
    # Part of each row.
    part: Array  # (B,)
    grams: Array  # (B, 1)
    # Squared lengths of a pair's projections.
    u: Array  # (k,)


@njit(cache=True)
def walk(
    rows: Array,
    signs: Array,
    tasks: Array,
    addresses: Array,
    shape: Shape,
    state: State,
    rule: Rule,
    work: Work,
    scores: Array,
) -> int:
    """Learn pairs in order.

    Parameters
    ----------
    rows : (T, 2)
    signs : (T,)
        y: 1 if a pair is similar, -1 if not.
    tasks : (T,)
        Number of each pair's task.
    addresses : (m,)
        Addresses of the modalities' feature matrices.
    state
        Changed in place.
    scores : (T,)
        Written: ``f = y (d^2 - b)`` of each pair before it was learned.

    Returns
    -------
    T, or the index of the first pair whose numbers overflow. The caller must then restore the state.
    """
    capacity = state.X.shape[0]
    t = 0
    while t < rows.shape[0]:
        size = min(rows.shape[0] - t, capacity - state.counts[FILLED])
        load(rows[t : t + size], tasks[t : t + size], addresses, shape, state, work)
        for e in range(size):
            scores[t + e] = decide(e, signs[t + e], tasks[t + e], shape, state, rule, work)
            if not math.isfinite(scores[t + e]):
                return t + e
        t += size
        if state.counts[FILLED] == capacity:
            close(shape, state, work)
    return t


@njit(cache=True)
def load(rows: Array, tasks: Array, addresses: Array, shape: Shape, state: State, work: Work) -> None:
    """Compute the differences of these pairs, and project them with the parts as they were before the block."""
    for i in range(shape.n.shape[0]):
        gather(addresses[i], rows, shape.starts[i], shape.n[i], work.D)
    for k in range(shape.parts.shape[1]):
        for e in range(rows.shape[0]):
            work.part[e] = shape.parts[tasks[e], k]
        for e in range(rows.shape[0]):
            if is_first(work.part, e):
                project_rows(work.part[: rows.shape[0]], e, k, state, work)


@njit(cache=True)
def gather(address: int, rows: Array, start: int, n: int, D: Array) -> None:
    """``D[e, start : start + n] = x[rows[e, 0]] - x[rows[e, 1]]``; the caller must have checked ``rows``."""
    x = at_address(address, 1 << 40, n, D)
    for e in range(rows.shape[0]):
        left, right, difference = x[rows[e, 0]], x[rows[e, 1]], D[e, start : start + n]
        for j in range(n):
            difference[j] = left[j] - right[j]


@njit(cache=True)
def is_first(part: Array, e: int) -> bool:
    """Whether no row before ``e`` belongs to the same part; ``part`` (n,) is the part of each row."""
    return not (part[:e] == part[e]).any()


@njit(cache=True)
def project_rows(part: Array, first: int, k: int, state: State, work: Work) -> None:
    """Project the loaded rows that belong to the same part as row ``first``, and count them in ``state.seen``.

    Rows are projected in pairs, in their order within the block, so that a row's bytes do not depend on which other
    rows share the call.
    """
    m = part[first]
    begin = state.seen[m] % 2
    end = begin
    for e in range(first, part.shape[0]):
        if part[e] == m:
            copy(work.D[e], work.X[end])
            end += 1
    state.seen[m] += end - begin
    even = end + end % 2
    project(work.X[:even], state.L[m], work.Q[:even])
    end = begin
    for e in range(first, part.shape[0]):
        if part[e] == m:
            copy(work.Q[end], work.P[e, k])
            end += 1


@njit(cache=True)
def correct(e: int, task: int, shape: Shape, state: State, work: Work) -> None:
    """Correct the projections of pair ``e``, made with L as it was before the block, to those by the current L."""
    used = state.used[0]
    # What is computed beyond ``used`` is not read.
    even = used + used % 2
    project(state.X[:even], work.D[e : e + 1], work.grams[:even])
    for s in range(used):
        for k in range(shape.parts.shape[1]):
            if shape.parts[state.task[s], k] == shape.parts[task, k]:
                g, p, row = state.c[s, k] * work.grams[s, 0], work.P[e, k], state.P[s, k]
                for j in range(p.shape[0]):
                    p[j] -= g * row[j]


@njit(cache=True)
def decide(e: int, y: float, task: int, shape: Shape, state: State, rule: Rule, work: Work) -> float:
    """Score the loaded pair ``e`` and, if it violates its margin, update. Returns f, NaN if numbers overflow."""
    correct(e, task, shape, state, work)
    squared = 0.0
    for k in range(shape.parts.shape[1]):
        work.u[k] = inner(work.P[e, k], work.P[e, k])[0]
        squared += work.u[k]
    f = y * (squared - state.b[task])
    if not math.isfinite(f):
        return np.nan
    counts = state.counts
    count(counts, f)
    if f + 1.0 > 0.0:
        counts[UPDATES] += 1
        if not update(e, y, f + 1.0, task, state, rule, work):
            return np.nan
    return f


@njit(cache=True)
def update(e: int, y: float, loss: float, task: int, state: State, rule: Rule, work: Work) -> bool:
    """Append the step of pair ``e`` to the block, and move its threshold. Returns False if the step overflows."""
    n = inner(work.D[e], work.D[e])[0]
    rate = exact_step(loss, y, work.u, rule.shares, n, rule.eta) if rule.exact else rule.eta
    s = state.used[0]
    for k in range(work.u.shape[0]):
        step = y * rule.shares[k] * rate
        if not work.u[k] * (1.0 - step * n) ** 2 < LARGEST:
            return False
        state.c[s, k] = step
        copy(work.P[e, k], state.P[s, k])
    copy(work.D[e], state.X[s])
    state.task[s] = task
    state.used[0] += 1
    state.b[task] += DRIFT * rate * y
    return True


@njit(cache=True)
def exact_step(loss: float, y: float, u: Array, shares: Array, n: float, eta: float) -> float:
    """The smallest rate at which the loss is zero; at most ``eta``, and at most the largest rate within ``REACH``.

    A step multiplies ``L_k c`` by ``1 - rate y s_k n`` and moves the threshold, so along the rate the loss is

        loss - rate A + rate^2 y K,    A = 0.1 + 2 n sum_k s_k u_k,    K = n^2 sum_k s_k^2 u_k

    and its smallest root ``2 loss / (A + sqrt(A^2 - 4 y K loss))``. If the root is imaginary, the minimiser
    ``A / 2K`` lies beyond ``1 / (s n)``, s being the largest share, and so beyond ``REACH``.

    Parameters
    ----------
    u, shares : (k,), (k,)
        ``|L_k c|^2`` and s_k of the pair's parts.
    n
        ``|c|^2``.
    """
    slope, bend = DRIFT, 0.0
    for k in range(u.shape[0]):
        slope += 2.0 * n * shares[k] * u[k]
        bend += y * (n * shares[k]) ** 2 * u[k]
    rate = min(eta, 2.0 * loss / (slope + math.sqrt(max(0.0, slope * slope - 4.0 * bend * loss))))
    steepest = n * shares.max()
    return min(rate, REACH / steepest) if steepest > 0.0 else rate


@njit(cache=True)
def close(shape: Shape, state: State, work: Work) -> None:
    """End the block: write it into L, and begin the next one."""
    flush_all(shape, state, state.L, work)
    state.used[0] = 0
    state.seen[:] = 0
    state.counts[FILLED] = 0


@njit(cache=True)
def flush_all(shape: Shape, state: State, L: Array, work: Work) -> None:
    """Apply the updates of the open block to L, which is ``state.L`` or a copy of it."""
    used = state.used[0]
    for k in range(shape.parts.shape[1]):
        for s in range(used):
            work.part[s] = shape.parts[state.task[s], k]
        for s in range(used):
            if is_first(work.part, s):
                flush_rows(work.part[:used], s, k, state, L[work.part[s]], work)


@njit(cache=True)
def flush_rows(part: Array, first: int, k: int, state: State, W: Array, work: Work) -> None:
    """Apply the updates of the part of row ``first`` to its matrix W (r, d), a chunk of columns at a time."""
    count = 0
    for s in range(first, part.shape[0]):
        if part[s] == part[first]:
            for j in range(W.shape[0]):
                work.Q[count, j] = state.c[s, k] * state.P[s, k, j]
            count += 1
    # ``subtract_four`` takes four rows at a time, so the last four may be filled up with zeros.
    fours = (count + 3) // 4 * 4
    work.Q[count:fours] = 0.0
    for start in range(0, W.shape[1], CHUNK):
        end = min(start + CHUNK, W.shape[1])
        X = matrix(work.X, 0, work.X.shape[0], end - start)
        row = 0
        for s in range(first, part.shape[0]):
            if part[s] == part[first]:
                copy(state.X[s, start:end], X[row])
                row += 1
        X[count:fours] = 0.0
        for j in range(0, W.shape[0], 2):
            other = W[j + 1, start:end] if j + 1 < W.shape[0] else X[fours]
            for s in range(0, fours, 4):
                subtract_four(W[j, start:end], other, X, s, work.Q, j, min(j + 1, W.shape[0] - 1))


@njit(cache=True, fastmath=CONTRACT)
def subtract_four(v: Array, w: Array, X: Array, s: int, Q: Array, i: int, j: int) -> None:
    """``v -= Q[s:s+4, i] @ X[s:s+4]`` and ``w -= Q[s:s+4, j] @ X[s:s+4]``: a row of X is read once for both."""
    x0, x1, x2, x3 = X[s], X[s + 1], X[s + 2], X[s + 3]
    f0, f1, f2, f3 = Q[s, i], Q[s + 1, i], Q[s + 2, i], Q[s + 3, i]
    g0, g1, g2, g3 = Q[s, j], Q[s + 1, j], Q[s + 2, j], Q[s + 3, j]
    for m in range(v.shape[0]):
        a, b, c, d = x0[m], x1[m], x2[m], x3[m]
        # Written one after the other, so that each product becomes a fused multiply-add.
        v[m] = v[m] - f0 * a - f1 * b - f2 * c - f3 * d
        w[m] = w[m] - g0 * a - g1 * b - g2 * c - g3 * d


@njit(cache=True)
def copy(source: Array, target: Array) -> None:
    """``target[:] = source``, of vectors (n,); a slice assignment would go through a temporary array."""
    for j in range(source.shape[0]):
        target[j] = source[j]
