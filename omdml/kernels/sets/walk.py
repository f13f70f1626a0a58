"""The walk of SetNet over judgements of sets: loss, capped step, momentum (MATHS 8; SETNET 3.3).

A judgement is Q query elements, each a group of one, then R relevant and S irrelevant sets: G groups, n elements.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.sets.netvlad import Shape, axpy, backward, dot, forward, views
from omdml.kernels.shared.counts import MISTAKES, UPDATES, VERSION
from omdml.kernels.shared.dots import REORDER
from omdml.kernels.shared.memory import at_address

# A capped step moves a block of parameters by this share of its length at the start, at most.
REACH = 0.1
# The largest rate: a number that float32 can hold.
FASTEST = 1e30


class State(NamedTuple):
    """Everything that learning changes, and what never changes: ``lengths``, ``scale`` and ``sizes``."""

    # Parameters, in the order of ``Net``.
    theta: Array  # (N,)
    # Their last change.
    velocity: Array  # (N,)
    # Lengths of the blocks of parameters at the start.
    lengths: Array  # (4,)
    # Factor of each modality.
    scale: Array  # (m,)
    # K and r.
    sizes: Array  # (2,)
    # See shared/counts.py.
    counts: Array  # (4,)
    # Number of sets in the moments.
    judged: Array  # (1,)
    # Running mean of the vectors of judged sets; empty if nothing is whitened.
    mean: Array  # (r,)
    # Running mean of their products.
    second: Array  # (r, r)


class Rule(NamedTuple):
    """The hyperparameters in the form that the walk takes."""

    eta: float
    momentum: float
    decay: float
    # Whether steps are capped.
    exact: bool
    # Number of sets over which the moments are averaged.
    memory: float


@njit(cache=True)
def walk(
    rows: Array,
    ends: Array,
    group_counts: Array,
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
        Row numbers of the elements of all groups of all judgements.
    ends : (M,)
        Where each group ends among them.
    group_counts : (T, 3)
        Q, R and S of each judgement.
    addresses : (m,)
        Addresses of the modalities' feature matrices.
    state
        Changed in place.
    gradient : (N,)
        Working space.
    scores : (T,)
        Written: ``f`` of each judgement before it was learned.

    Returns
    -------
    T, or the index of the first judgement whose numbers overflow. With capped steps the state is then as it was before
    that judgement; otherwise the caller must restore it.
    """
    group = begin = 0
    for t in range(group_counts.shape[0]):
        count = group_counts[t].sum()
        group_ends = ends[group : group + count] - begin
        X = gather(rows[begin : begin + group_ends[-1]], addresses, shape.n, state.scale, state.theta)
        scores[t] = decide(X, group_ends, group_counts[t, 0], group_counts[t, 1], shape, state, rule, gradient)
        if not math.isfinite(scores[t]):
            return t
        group += count
        begin += group_ends[-1]
    return group_counts.shape[0]


@njit(cache=True)
def gather(rows: Array, addresses: Array, n: Array, scale: Array, like: Array) -> Array:
    """Elements (n, D) of these rows: the modalities side by side, each scaled."""
    X = np.empty((rows.shape[0], n.sum()), like.dtype)
    start = 0
    for i in range(n.shape[0]):
        table = at_address(addresses[i], 1 << 40, n[i], like)
        for e in range(rows.shape[0]):
            x = table[rows[e]]
            for j in range(n[i]):
                X[e, start + j] = x[j] * scale[i]
        start += n[i]
    return X


@njit(cache=True)
def decide(
    X: Array, ends: Array, queries: int, relevant: int, shape: Shape, state: State, rule: Rule, gradient: Array
) -> float:
    """Score one judgement and take a step. Returns f, or NaN if numbers overflow."""
    net, slope = views(state.theta, shape), views(gradient, shape)
    pooled = forward(X, ends, net)
    dv = np.zeros_like(pooled.v)
    loss, f = judge(pooled.v, ends.shape[0], queries, relevant, net.logistic[0], dv, slope.logistic[0])
    # A length overflows before anything else does.
    if not math.isfinite(loss + f + pooled.u.sum() + pooled.y.sum()):
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
def judge(
    v: Array, groups: int, queries: int, relevant: int, logistic: Array, dv: Array, slope: Array
) -> tuple[float, float]:
    """Logistic loss, averaged over relevant and over irrelevant pairs of query element and set, and f (SETNET Eq. 2).

    Parameters
    ----------
    v : (>= groups, r)
        Queries, relevant sets, irrelevant sets.
    dv : (>= groups, r)
        Zeros. Written: the gradient along v.
    slope : (2,)
        Written: the gradient along w and b.
    """
    loss = f = 0.0
    slope[:] = 0.0
    w, b = np.float64(logistic[0]), np.float64(logistic[1])
    for g in range(queries, groups):
        is_relevant = g < queries + relevant
        share = 1.0 / (queries * (relevant if is_relevant else groups - queries - relevant))
        sign = -1.0 if is_relevant else 1.0
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
def step(state: State, gradient: Array, blocks: Array, loss: float, rule: Rule) -> float:
    """``velocity <- momentum velocity - rate gradient - shrink theta``, ``theta += velocity``, for each block.

    ``shrink`` is ``rate decay``. With capped steps, the rate of a block is the least of eta, ``(1 - momentum) loss /
    |gradient|^2`` (the loss is at least 0), and the rate that moves the block, momentum included, by a tenth of its
    length at the start; and ``shrink`` is at most a tenth of ``1 - momentum``.

    Returns
    -------
    The length of the gradient. If it is zero or not finite, nothing was changed. NaN if parameters overflow.
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
            # While a gradient stays the same, momentum makes the steps grow, up to the first step divided by this.
            damping = 1.0 - rule.momentum
            rate = min(rate, damping * loss / squares.sum(), FASTEST)
            if squares[i] > 0.0:
                rate = min(rate, damping * REACH * state.lengths[i] / math.sqrt(squares[i]))
            shrink = min(rate * rule.decay, damping * REACH)
        part = slice(blocks[i], blocks[i + 1])
        move(state.theta[part], state.velocity[part], gradient[part], rule.momentum, rate, shrink)
        if not finite(state.velocity[part]) or not finite(state.theta[part]):
            moved = np.nan
    return moved


@njit(cache=True, fastmath=REORDER)
def square(x: Array) -> float:
    """``|x|^2`` of a vector (n,), in float64."""
    total = 0.0
    for j in range(x.shape[0]):
        total += np.float64(x[j]) * np.float64(x[j])
    return total


@njit(cache=True, fastmath=REORDER)
def move(theta: Array, velocity: Array, gradient: Array, momentum: float, rate: float, shrink: float) -> None:
    """Take the step of one block of parameters; ``theta`` and ``velocity`` change in place."""
    m, a, b = theta.dtype.type(momentum), theta.dtype.type(rate), theta.dtype.type(shrink)
    for j in range(theta.shape[0]):
        velocity[j] = m * velocity[j] - a * gradient[j] - b * theta[j]
        theta[j] += velocity[j]


@njit(cache=True)
def finite(x: Array) -> bool:
    """Whether all numbers are finite. Not compiled with ``fastmath``, which may replace ``x - x`` by zero."""
    all_finite = True
    for j in range(x.shape[0]):
        all_finite &= math.isfinite(x[j])
    return all_finite


@njit(cache=True)
def remember(v: Array, state: State, memory: float) -> None:
    """Update the running moments with a set's vector (r,)."""
    state.judged[0] += 1
    share = v.dtype.type(1.0 / min(np.float64(state.judged[0]), memory))
    for i in range(v.shape[0]):
        state.mean[i] += share * (v[i] - state.mean[i])
        for j in range(v.shape[0]):
            state.second[i, j] += share * (v[i] * v[j] - state.second[i, j])
