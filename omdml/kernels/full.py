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

# No entry moves further in one step than this share of the largest number, so steps do not add up to it.
FARTHEST = 2.0**-64


class Shape(NamedTuple):
    """m modalities, and where each one's part of the flat buffers begins; R rows a modality, B events a block."""

    n: Array  # (m,) dimensions
    at_m: Array  # (m,) in buffers of matrices (n_i, n_i)
    at_x: Array  # (m,) in buffers of rows (R, n_i)
    at_d: Array  # (m,) in buffers of rows (2B, n_i)
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
    hints: Array  # (m,)         bounds worth trying next
    cut: Array  # (m,)           whether this block cut a negative eigenvalue away
    bites: Array  # (m,)         how often the projection changed something
    bottom: Array  # (sum k_i n_i,)  eigenvectors (k_i, n_i) that the Fantope presses down
    age: Array  # (m,)           updates since they were found; -1: never


class Rule(NamedTuple):
    """The hyperparameters as the walk takes them."""

    rate: float  # C or eta
    gamma: float
    log_beta: float
    keep: float  # 1 - 1/memory
    # Whether steps are capped at loss / |V|^2.
    exact: bool
    # Whether there is one margin for the sum over the modalities, and no weights.
    joint: bool


class Work(NamedTuple):
    """Working space: no state."""

    D: Array  # (2B sum n_i,)    differences of the comparisons at hand
    MD: Array  # (2B sum n_i,)   the same times M
    grams: Array  # (2, R)
    f: Array  # (m,)
    weights: Array  # (m,)
    rates: Array  # (m,)         of the newest step
    pending: Array  # (m,)       whether it may have left the positive semi-definite matrices


@njit(cache=True)
def walk(e: int, margins: Array, shape: Shape, state: State, rule: Rule, work: Work, scores: Array) -> int:
    """Learn the comparisons that are loaded, from ``e`` on, until one leaves a matrix to be projected.

    Parameters
    ----------
    margins, scores : (count,)
        Of what is loaded; of each comparison learned its f is written to ``scores``, NaN if numbers overflow: the
        state is then spoilt, restore it.
    state
        Changed in place.

    Returns
    -------
    The comparison after the last one learned. ``work.pending`` says which matrices are left to be projected.
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
    """Score comparison ``e`` of those loaded and, if it violates its margin, update; answers f."""
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
def reach(i: int, e: int, shape: Shape, work: Work) -> float:
    """``|a|^2 + |b|^2``: no entry of M moves by more than this times the rate."""
    D = matrix(work.D, shape.at_d[i] + 2 * e * shape.n[i], 2, shape.n[i])
    aa, bb, _ = inner(D[0], D[1])
    return aa + bb


@njit(cache=True)
def update(e: int, f: float, margin: float, shape: Shape, state: State, rule: Rule, work: Work) -> bool:
    """Step every modality that comparison ``e`` asks to; False if a step overflows."""
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
    """Keep ``M <- M - sign scale x x'`` as a row of the block; scaled rows leave M symmetric to the bit."""
    row = matrix(state.X, shape.at_x[i], state.c.shape[1], shape.n[i])[state.used[i]]
    root = math.sqrt(scale)
    for j in range(row.shape[0]):
        row[j] = root * x[j]
    state.c[i, state.used[i]] = sign
    state.used[i] += 1


@njit(cache=True)
def step(i: int, e: int, tau: float, shape: Shape, state: State, work: Work) -> None:
    """``M_i <- M_i - tau (a a' - b b')``; left to be projected if no bound says that it needs not."""
    n = shape.n[i]
    D = matrix(work.D, shape.at_d[i] + 2 * e * n, 2, n)
    push(D[1], tau, -1.0, i, shape, state)
    push(D[0], tau, 1.0, i, shape, state)
    state.floors[i] -= tau * inner(D[0], D[1])[0]
    work.rates[i] = tau
    work.pending[i] = not state.floors[i] > 0.0


@njit(cache=True)
def flush_one(i: int, shape: Shape, state: State, M: Array) -> None:
    """Bring M (n_i, n_i), a copy of the block's first one or that itself, up to date with the open block."""
    used = state.used[i]
    state.c[i, used : used + used % 2] = 0.0
    X = matrix(state.X, shape.at_x[i], state.c.shape[1], shape.n[i])
    flush(M, X, X, state.c[i], used + used % 2)


@njit(cache=True)
def flush_all(shape: Shape, state: State, M: Array) -> None:
    """The same of all modalities."""
    for i in range(shape.n.shape[0]):
        flush_one(i, shape, state, matrix(M, shape.at_m[i], shape.n[i], shape.n[i]))
