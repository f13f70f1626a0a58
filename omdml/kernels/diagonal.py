"""The walk of learners of one vector of weights over comparisons (MATHS 6; RANK Eq. 11, LAW Eq. 2.10 and 2.4)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.shared.counts import MISTAKES, UPDATES, VERSION
from omdml.kernels.shared.dots import REORDER
from omdml.kernels.shared.memory import at_address


class Shape(NamedTuple):
    """m modalities, and where each one's coordinates start among all N."""

    # Dimensions.
    n: Array  # (m,)
    starts: Array  # (m,)
    # Start of each run of coordinates that share a group, and N; empty if there are no groups.
    runs: Array  # (R + 1,)
    # Number of the weight that each run shares.
    group: Array  # (R,)


class State(NamedTuple):
    """Everything that learning changes."""

    w: Array  # (G,)
    # See shared/counts.py.
    counts: Array  # (4,)


class Rule(NamedTuple):
    """The hyperparameters in the form that the walk takes."""

    eta: float
    lam: float
    # Whether steps are capped at loss / |v|^2.
    exact: bool
    # Whether the regulariser draws weights to their mean instead of 0.
    centred: bool
    # Whether D is linear in the difference and weights may be negative.
    signed: bool


class Work(NamedTuple):
    """Working space, which is not part of the state."""

    # How much more each coordinate separates the near pair than the far one, float64.
    v: Array  # (N,)
    # Sums of ``v`` over the groups, or ``v`` itself.
    folded: Array  # (G,)


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
        Addresses of the modalities' feature matrices.
    state
        Changed in place.
    scores : (T,)
        Written: ``f`` of each comparison before it was learned.

    Returns
    -------
    T, or the index of the first comparison whose numbers overflow. The caller must then restore the state.
    """
    for t in range(rows.shape[0]):
        for i in range(shape.n.shape[0]):
            v = work.v[shape.starts[i] : shape.starts[i] + shape.n[i]]
            contrast(addresses[i], rows[t], rule.signed, state.w, v)
        if shape.runs.shape[0]:
            fold(work.v, shape.runs, shape.group, work.folded)
        scores[t] = decide(margins[t], state, rule, work.folded)
        if not math.isfinite(scores[t]):
            return t
    return rows.shape[0]


@njit(cache=True, fastmath=REORDER)
def contrast(address: int, row: Array, signed: bool, like: Array, v: Array) -> None:
    """``v = a o a - b o b`` of the pairs (row[0], row[1]) and (row[2], row[3]); ``a - b`` if D is signed.

    Parameters
    ----------
    address
        Address of a C-contiguous matrix of ``like``'s type whose rows are as long as ``v``. The caller must have
        checked ``row``.
    v : (n,)
        Written, float64: squares of large float32 features do not fit their type.
    """
    x = at_address(address, 1 << 40, v.shape[0], like)
    near_left, near_right, far_left, far_right = x[row[0]], x[row[1]], x[row[2]], x[row[3]]
    for j in range(v.shape[0]):
        a = np.float64(near_left[j]) - np.float64(near_right[j])
        b = np.float64(far_left[j]) - np.float64(far_right[j])
        v[j] = a - b if signed else (a - b) * (a + b)


@njit(cache=True, fastmath=REORDER)
def fold(v: Array, runs: Array, group: Array, folded: Array) -> None:
    """``folded[g]``: the sum of ``v`` over the coordinates of group g; (G,), written."""
    folded[:] = 0.0
    for k in range(group.shape[0]):
        total = 0.0
        for j in range(runs[k], runs[k + 1]):
            total += v[j]
        folded[group[k]] += total


@njit(cache=True)
def decide(margin: float, state: State, rule: Rule, v: Array) -> float:
    """Score one comparison, ``f = w . v``, and take a step. Returns f, or NaN if numbers overflow."""
    f, norm, total = weigh(state.w, v)
    loss = f + margin
    if not (math.isfinite(f) and math.isfinite(norm)):
        return np.nan
    counts = state.counts
    counts[VERSION] += 1
    counts[MISTAKES] += f > 0.0
    counts[UPDATES] += loss > 0.0
    rate = rule.eta if loss > 0.0 and norm > 0.0 else 0.0
    shrink = rule.eta * rule.lam
    if rule.exact:
        rate = min(rate, loss / norm) if rate > 0.0 else 0.0
        shrink = min(shrink, 1.0)
    if rate > 0.0 or shrink > 0.0:
        centre = total / v.shape[0] if rule.centred else 0.0
        if not math.isfinite(step(state.w, v, rate, shrink, centre, -math.inf if rule.signed else 0.0)):
            return np.nan
    return f


@njit(cache=True, fastmath=REORDER)
def weigh(w: Array, v: Array) -> tuple[float, float, float]:
    """``w . v``, ``v . v``, ``sum(w)``."""
    f = norm = total = 0.0
    for j in range(v.shape[0]):
        f += w[j] * v[j]
        norm += v[j] * v[j]
        total += w[j]
    return f, norm, total


@njit(cache=True, fastmath=REORDER)
def step(w: Array, v: Array, rate: float, shrink: float, centre: float, least: float) -> float:
    """``w <- max(least, w - shrink (w - centre) - rate v)``; returns a sum that is finite if all of w is finite."""
    total = 0.0
    for j in range(v.shape[0]):
        w[j] = max(least, w[j] - shrink * (w[j] - centre) - rate * v[j])
        # Not ``w - w``: with reordering allowed, the compiler would replace that by 0.
        total += 0.0 * w[j]
    return total
