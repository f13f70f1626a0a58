"""The walk of mtLMCA over pairs (CP-mtML, Section 6; MATHS 5): one part L that all tasks share, and a small R_t each.

Updates of L wait in the open block of ``coupled.py``: an update subtracts ``R_t e`` along the difference instead of
the projection itself. R_t is small, so it changes at once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.coupled import DRIFT, LARGEST, REACH, Rule, Shape, close, copy, correct, load
from omdml.kernels.shared.counts import FILLED, UPDATES, count
from omdml.kernels.shared.dots import inner

# The most halvings of a step before it is given up.
HALVINGS = 64


class State(NamedTuple):
    """Everything that learning changes: :class:`omdml.kernels.coupled.State` with one part, and R."""

    L: Array  # (1, r, d)
    R: Array  # (T, r, r)
    b: Array  # (T,)
    X: Array  # (B, d)
    P: Array  # (B, 1, r)
    c: Array  # (B, 1)
    task: Array  # (B,)
    used: Array  # (1,)
    seen: Array  # (1,)
    counts: Array  # (4,)


class Work(NamedTuple):
    """Working space: :class:`omdml.kernels.coupled.Work`, and the vectors e = R'p, q = R e, h = R'q."""

    D: Array
    P: Array
    X: Array
    Q: Array
    part: Array
    grams: Array
    # The vectors e, q and h.
    ends: Array  # (3, r)


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
    """Learn pairs in order. Parameters and result are those of :func:`omdml.kernels.coupled.walk`."""
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
def times(R: Array, x: Array, out: Array) -> None:
    """``out = R x``: (r, r) times (r,)."""
    for i in range(R.shape[0]):
        out[i] = inner(R[i], x)[2]


@njit(cache=True)
def times_transposed(R: Array, x: Array, out: Array) -> None:
    """``out = R' x``: the transpose of (r, r), times (r,)."""
    out[:] = 0.0
    for i in range(R.shape[0]):
        for j in range(R.shape[1]):
            out[j] += x[i] * R[i, j]


@njit(cache=True)
def decide(i: int, y: float, task: int, shape: Shape, state: State, rule: Rule, work: Work) -> float:
    """Score the loaded pair ``i`` and, if it violates its margin, update. Returns f, NaN if numbers overflow."""
    correct(i, task, shape, state, work)
    p, e = work.P[i, 0], work.ends[0]
    times_transposed(state.R[task], p, e)
    f = y * (inner(e, e)[0] - state.b[task])
    if not math.isfinite(f):
        return np.nan
    counts = state.counts
    count(counts, f)
    if f + 1.0 > 0.0:
        counts[UPDATES] += 1
        if not update(i, y, f + 1.0, task, state, rule, work):
            return np.nan
    return f


@njit(cache=True)
def update(i: int, y: float, loss: float, task: int, state: State, rule: Rule, work: Work) -> bool:
    """Append the step of L to the block, and step R and the threshold. Returns False if the step overflows."""
    R, p, e, q, h = state.R[task], work.P[i, 0], work.ends[0], work.ends[1], work.ends[2]
    times(R, e, q)
    times_transposed(R, q, h)
    n, pp = inner(work.D[i], work.D[i])[0], inner(p, p)[0]
    u, hh, w = inner(e, h)
    share = n * rule.shares[0]
    if not max(pp, u, hh, share) < LARGEST:
        return False
    rate = halved_step(loss, y, share, pp, u, w, hh, rule.eta) if rule.exact else rule.eta
    if not distance(rate * y, share, pp, u, w, hh) < LARGEST:
        return False
    s = state.used[0]
    state.c[s, 0] = y * rule.shares[0] * rate
    copy(q, state.P[s, 0])
    copy(work.D[i], state.X[s])
    state.task[s] = task
    state.used[0] += 1
    for j in range(R.shape[0]):
        for k in range(R.shape[1]):
            R[j, k] -= rate * y * p[j] * e[k]
    state.b[task] += DRIFT * rate * y
    return True


@njit(cache=True)
def distance(step: float, share: float, pp: float, u: float, w: float, hh: float) -> float:
    """``|e (1 - step pp + step^2 share u) - step share h|^2``: the pair's squared distance after a signed step."""
    a, g = 1.0 - step * pp + step * step * share * u, step * share
    return a * a * u - 2.0 * a * g * w + g * g * hh


@njit(cache=True)
def halved_step(loss: float, y: float, share: float, pp: float, u: float, w: float, hh: float, eta: float) -> float:
    """``eta``, or the largest rate within ``REACH``, halved until the loss does not rise, and stays above zero.

    Parameters
    ----------
    share
        ``|c|^2`` times L's share of the rate.
    pp, u, w, hh
        ``|p|^2``, ``|e|^2``, ``e.h``, ``|h|^2``.
    """
    steepest = pp + share * math.sqrt(hh / u) if u > 0.0 else 0.0
    rate = min(eta, REACH / steepest) if steepest > 0.0 else eta
    for _ in range(HALVINGS):
        after = loss - DRIFT * rate + y * (distance(rate * y, share, pp, u, w, hh) - u)
        if 0.0 <= after <= loss:
            return rate
        rate *= 0.5
    return 0.0
