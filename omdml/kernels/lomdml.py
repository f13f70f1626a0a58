"""The walk of LOMDML over comparisons (OMDML, Algorithm 2), in the blocked exact form of MATHS 2.1."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.block import correct, flush, gather, store
from omdml.kernels.counts import FILLED, MISTAKES, UPDATES, VERSION
from omdml.kernels.dots import inner, project
from omdml.kernels.hedge import discount, softmax
from omdml.kernels.memory import matrix
from omdml.kernels.steps import exact_step


class Shape(NamedTuple):
    """m modalities, and where each one's part of the flat buffers begins; B is the events a block holds."""

    n: Array  # (m,) dimensions
    r: Array  # (m,) ranks
    at_w: Array  # (m,) in buffers of matrices (r_i, n_i)
    at_x: Array  # (m,) in buffers of rows (2B, n_i)
    at_p: Array  # (m,) in buffers of rows (2B, r_i)


class Block(NamedTuple):
    """The state. Flat buffers hold one modality after the other."""

    W: Array  # (sum r_i n_i,)   matrices (r_i, n_i) at the block's first event
    X: Array  # (2B sum n_i,)    rows (2B, n_i) that updated: differences
    P: Array  # (2B sum r_i,)    their projections (2B, r_i)
    c: Array  # (m, 2B)          their signed rates
    used: Array  # (m,)          how many of them count
    counts: Array  # (4,)        events in the open block, comparisons, mistakes, updates
    log_weights: Array  # (m,)
    losses: Array  # (m + 1,)    certificate of Hedge
    mean_W: Array  # as W, or empty if nothing is averaged
    mean_weights: Array  # (m,)


class Rule(NamedTuple):
    """The hyperparameters as the walk takes them."""

    eta: float
    gamma: float
    log_beta: float
    keep: float  # 1 - 1/memory
    exact: bool
    average: int


class Work(NamedTuple):
    """Working space: no state."""

    D: Array  # as Block.X: differences of the comparisons at hand
    PQ: Array  # as Block.P: their projections
    grams: Array  # (2, 2B)
    f: Array  # (m,)
    weights: Array  # (m,)


@njit(cache=True)
def walk(rows: Array, addresses: Array, shape: Shape, block: Block, rule: Rule, work: Work, scores: Array) -> int:
    """Learn comparisons in order.

    Parameters
    ----------
    rows : (T, 4)
        Near pair and far pair of each comparison.
    addresses : (m,)
        Of the modalities' feature matrices.
    block
        Changed in place.
    scores : (T,)
        Written: ``f`` of each comparison before it was learned.

    Returns
    -------
    T, or the index of the first comparison whose numbers overflow: the block is then spoilt, restore it.
    """
    capacity = block.c.shape[1] // 2
    softmax(block.log_weights, work.weights)
    t = 0
    while t < rows.shape[0]:
        count = min(rows.shape[0] - t, capacity - block.counts[FILLED])
        load(rows[t : t + count], addresses, shape, block.W, work)
        for e in range(count):
            scores[t + e] = decide(e, shape, block, rule, work)
            if not math.isfinite(scores[t + e]):
                return t + e
        t += count
        if block.counts[FILLED] == capacity:
            close(shape, block, rule, work.weights)
    return t


@njit(cache=True)
def load(rows: Array, addresses: Array, shape: Shape, W: Array, work: Work) -> None:
    """Gather the differences of these comparisons and project them with the block's first W."""
    for i in range(shape.n.shape[0]):
        n, r = shape.n[i], shape.r[i]
        D = matrix(work.D, shape.at_x[i], 2 * rows.shape[0], n)
        gather(addresses[i], rows, D)
        project(D, matrix(W, shape.at_w[i], r, n), matrix(work.PQ, shape.at_p[i], 2 * rows.shape[0], r))


@njit(cache=True)
def decide(e: int, shape: Shape, block: Block, rule: Rule, work: Work) -> float:
    """Score comparison ``e`` of those loaded and, if the gate opens, update; answers f."""
    size = block.c.shape[1]
    f = 0.0
    for i in range(shape.n.shape[0]):
        n, r = shape.n[i], shape.r[i]
        PQ = matrix(work.PQ, shape.at_p[i] + 2 * e * r, 2, r)
        if block.used[i]:
            D = matrix(work.D, shape.at_x[i] + 2 * e * n, 2, n)
            X, P = matrix(block.X, shape.at_x[i], size, n), matrix(block.P, shape.at_p[i], size, r)
            correct(D, PQ, X, P, block.c[i], block.used[i], work.grams)
        pp, qq, _ = inner(PQ[0], PQ[1])
        work.f[i] = pp - qq
        f += work.weights[i] * work.f[i] if math.isfinite(work.f[i]) else np.nan
    counts = block.counts
    counts[FILLED] += 1
    counts[VERSION] += 1
    counts[MISTAKES] += f > 0.0
    if f + rule.gamma > 0.0:
        counts[UPDATES] += 1
        discount(work.f, rule.log_beta, rule.keep, block.log_weights, work.weights, block.losses)
        if not update(e, shape, block, rule, work):
            return np.nan
    return f


@njit(cache=True)
def update(e: int, shape: Shape, block: Block, rule: Rule, work: Work) -> bool:
    """Keep the step of every modality whose own margin comparison ``e`` violates; False if a step overflows."""
    size = block.c.shape[1]
    for i in range(shape.n.shape[0]):
        loss = work.f[i] + 1.0
        if loss > 0.0:
            n, r = shape.n[i], shape.r[i]
            D, PQ = matrix(work.D, shape.at_x[i] + 2 * e * n, 2, n), matrix(work.PQ, shape.at_p[i] + 2 * e * r, 2, r)
            rate = rule.eta
            pp, qq, pq = inner(PQ[0], PQ[1])
            aa, bb, ab = inner(D[0], D[1])
            if rule.exact:
                rate = exact_step(loss, pp, qq, pq, aa, bb, ab, rule.eta)
            # The step is at most this long.
            length = 2 * rate * (math.sqrt(pp) * math.sqrt(aa) + math.sqrt(qq) * math.sqrt(bb))
            if not math.isfinite(D.dtype.type(length * length)) or not math.isfinite(D.dtype.type(2 * rate)):
                return False
            if rate > 0.0:
                X, P = matrix(block.X, shape.at_x[i], size, n), matrix(block.P, shape.at_p[i], size, r)
                store(D, PQ, rate, X, P, block.c[i], block.used[i])
                block.used[i] += 2
    return True


@njit(cache=True)
def close(shape: Shape, block: Block, rule: Rule, weights: Array) -> None:
    """End the block: flush it into W, take it into the running means, begin the next."""
    flush_all(shape, block, block.W)
    if rule.average > 0:
        blend(block, rule.average, weights)
    block.used[:] = 0
    block.counts[FILLED] = 0


@njit(cache=True)
def flush_all(shape: Shape, block: Block, W: Array) -> None:
    """Bring W, a copy of the block's first one or that itself, up to date with the open block."""
    size = block.c.shape[1]
    for i in range(shape.n.shape[0]):
        n, r = shape.n[i], shape.r[i]
        X, P = matrix(block.X, shape.at_x[i], size, n), matrix(block.P, shape.at_p[i], size, r)
        flush(matrix(W, shape.at_w[i], r, n), X, P, block.c[i], block.used[i])


@njit(cache=True)
def blend(block: Block, average: int, weights: Array) -> None:
    """Running means of W and of the weights over ``average`` events (MATHS 2 (e)); ``block.W`` must be flushed."""
    share = min(1.0, block.counts[FILLED] / min(block.counts[VERSION], average))
    for j in range(block.W.shape[0]):
        block.mean_W[j] += share * (block.W[j] - block.mean_W[j])
    for i in range(weights.shape[0]):
        block.mean_weights[i] += share * (weights[i] - block.mean_weights[i])
