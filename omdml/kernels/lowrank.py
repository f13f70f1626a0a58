"""The walk of LOMDML over comparisons (OMDML, Algorithm 2), in the blocked exact form of MATHS 2.1."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.shared.block import correct, flush, gather, store
from omdml.kernels.shared.counts import FILLED, UPDATES, VERSION, count
from omdml.kernels.shared.dots import inner, project
from omdml.kernels.shared.hedge import discount, softmax
from omdml.kernels.shared.memory import matrix


class Shape(NamedTuple):
    """m modalities, and where each one starts in the flat buffers. A block holds B comparisons."""

    # Dimensions.
    n: Array  # (m,)
    # Ranks.
    r: Array  # (m,)
    # Start of each modality in buffers of matrices (r_i, n_i).
    w_starts: Array  # (m,)
    # Start of each modality in buffers of rows (2B, n_i).
    x_starts: Array  # (m,)
    # Start of each modality in buffers of rows (2B, r_i).
    p_starts: Array  # (m,)


class Block(NamedTuple):
    """Everything that learning changes. Flat buffers hold one modality after the other."""

    # Matrices (r_i, n_i) before the block's first comparison.
    W: Array  # (sum r_i n_i,)
    # Rows (2B, n_i) that updated: differences.
    X: Array  # (2B sum n_i,)
    # Rows (2B, r_i) that updated: projections of the differences.
    P: Array  # (2B sum r_i,)
    # Rows that updated: signed rates.
    c: Array  # (m, 2B)
    # How many rows of each modality count.
    used: Array  # (m,)
    # Comparisons in the open block, all comparisons, mistakes, updates.
    counts: Array  # (4,)
    log_weights: Array  # (m,)
    # Certificate of Hedge.
    losses: Array  # (m + 1,)
    # Running mean, of the shape of ``W``; empty if nothing is averaged.
    mean_W: Array
    mean_weights: Array  # (m,)


class Rule(NamedTuple):
    """The hyperparameters in the form that the walk takes."""

    eta: float
    gamma: float
    log_beta: float
    # 1 - 1/memory.
    keep: float
    # Whether steps are capped by :func:`exact_step`.
    exact: bool
    # Number of comparisons that the running means cover; 0: there are no means.
    average: int


class Work(NamedTuple):
    """Working space, which is not part of the state."""

    # Differences of the comparisons being learned, laid out as ``Block.X``.
    D: Array
    # Their projections, laid out as ``Block.P``.
    PQ: Array
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
        Addresses of the modalities' feature matrices.
    block
        Changed in place.
    scores : (T,)
        Written: ``f`` of each comparison before it was learned.

    Returns
    -------
    T, or the index of the first comparison whose numbers overflow. The caller must then restore the block.
    """
    capacity = block.c.shape[1] // 2
    softmax(block.log_weights, work.weights)
    t = 0
    while t < rows.shape[0]:
        size = min(rows.shape[0] - t, capacity - block.counts[FILLED])
        load(rows[t : t + size], addresses, shape, block.W, work)
        for e in range(size):
            scores[t + e] = decide(e, shape, block, rule, work)
            if not math.isfinite(scores[t + e]):
                return t + e
        t += size
        if block.counts[FILLED] == capacity:
            close(shape, block, rule, work.weights)
    return t


@njit(cache=True)
def load(rows: Array, addresses: Array, shape: Shape, W: Array, work: Work) -> None:
    """Compute the differences of these comparisons, and project them with W as it was before the block."""
    for i in range(shape.n.shape[0]):
        n, r = shape.n[i], shape.r[i]
        D = matrix(work.D, shape.x_starts[i], 2 * rows.shape[0], n)
        gather(addresses[i], rows, D)
        project(D, matrix(W, shape.w_starts[i], r, n), matrix(work.PQ, shape.p_starts[i], 2 * rows.shape[0], r))


@njit(cache=True)
def decide(e: int, shape: Shape, block: Block, rule: Rule, work: Work) -> float:
    """Score the loaded comparison ``e`` and, if the gate opens, update. Returns f, NaN if numbers overflow."""
    size = block.c.shape[1]
    f = 0.0
    for i in range(shape.n.shape[0]):
        n, r = shape.n[i], shape.r[i]
        PQ = matrix(work.PQ, shape.p_starts[i] + 2 * e * r, 2, r)
        if block.used[i]:
            D = matrix(work.D, shape.x_starts[i] + 2 * e * n, 2, n)
            X, P = matrix(block.X, shape.x_starts[i], size, n), matrix(block.P, shape.p_starts[i], size, r)
            correct(D, PQ, X, P, block.c[i], block.used[i], work.grams)
        pp, qq, _ = inner(PQ[0], PQ[1])
        work.f[i] = pp - qq
        f += work.weights[i] * work.f[i] if math.isfinite(work.f[i]) else np.nan
    counts = block.counts
    count(counts, f)
    if f + rule.gamma > 0.0:
        counts[UPDATES] += 1
        discount(work.f, rule.log_beta, rule.keep, block.log_weights, work.weights, block.losses)
        if not update(e, shape, block, rule, work):
            return np.nan
    return f


@njit(cache=True)
def update(e: int, shape: Shape, block: Block, rule: Rule, work: Work) -> bool:
    """Append a step to the block for every modality whose own margin comparison ``e`` violates.

    Returns False if a step overflows.
    """
    size = block.c.shape[1]
    for i in range(shape.n.shape[0]):
        loss = work.f[i] + 1.0
        if loss > 0.0:
            n, r = shape.n[i], shape.r[i]
            D, PQ = (
                matrix(work.D, shape.x_starts[i] + 2 * e * n, 2, n),
                matrix(work.PQ, shape.p_starts[i] + 2 * e * r, 2, r),
            )
            rate = rule.eta
            pp, qq, pq = inner(PQ[0], PQ[1])
            aa, bb, ab = inner(D[0], D[1])
            if rule.exact:
                rate = exact_step(loss, pp, qq, pq, aa, bb, ab, rule.eta)
            # An upper bound of the length of the step.
            length = 2 * rate * (math.sqrt(pp) * math.sqrt(aa) + math.sqrt(qq) * math.sqrt(bb))
            if not math.isfinite(D.dtype.type(length * length)) or not math.isfinite(D.dtype.type(2 * rate)):
                return False
            if rate > 0.0:
                X, P = matrix(block.X, shape.x_starts[i], size, n), matrix(block.P, shape.p_starts[i], size, r)
                store(D, PQ, rate, X, P, block.c[i], block.used[i])
                block.used[i] += 2
    return True


@njit(cache=True)
def exact_step(loss: float, pp: float, qq: float, pq: float, aa: float, bb: float, ab: float, eta: float) -> float:
    """``min(eta, r*)``: r* the smallest rate at which ``loss(r) = loss - r |G|^2 + r^2 kappa`` is zero (MATHS 2 (a)).

    ``G = 2 (p a' - q b')`` and ``kappa = |G a|^2 - |G b|^2``. If the loss never reaches zero, r* minimises it. The
    arguments are inner products of the projections p, q and of the differences a, b. Returns NaN if these overflow.
    """
    g = 4.0 * (pp * aa + qq * bb - 2.0 * pq * ab)
    if not math.isfinite(g):
        return math.nan
    if not g > 0.0:
        return 0.0
    kappa = 4.0 * (pp * aa * aa - 2.0 * pq * aa * ab + qq * ab * ab)
    kappa -= 4.0 * (pp * ab * ab - 2.0 * pq * ab * bb + qq * bb * bb)
    under = g * g - 4.0 * kappa * loss
    if under >= 0.0:
        return min(eta, 2.0 * loss / (g + math.sqrt(under)))
    return min(eta, g / (2.0 * kappa))


@njit(cache=True)
def close(shape: Shape, block: Block, rule: Rule, weights: Array) -> None:
    """End the block: write it into W and the running means, and begin the next one."""
    flush_all(shape, block, block.W)
    if rule.average > 0:
        blend(block, rule.average, weights)
    block.used[:] = 0
    block.counts[FILLED] = 0


@njit(cache=True)
def flush_all(shape: Shape, block: Block, W: Array) -> None:
    """Apply the updates of the open block to W, which is ``block.W`` or a copy of it."""
    size = block.c.shape[1]
    for i in range(shape.n.shape[0]):
        n, r = shape.n[i], shape.r[i]
        X, P = matrix(block.X, shape.x_starts[i], size, n), matrix(block.P, shape.p_starts[i], size, r)
        flush(matrix(W, shape.w_starts[i], r, n), X, P, block.c[i], block.used[i])


@njit(cache=True)
def blend(block: Block, average: int, weights: Array) -> None:
    """Update the running means of W and of the weights over ``average`` triplets (MATHS 2 (e)).

    The block must have been written into ``block.W`` before.
    """
    share = min(1.0, block.counts[FILLED] / min(block.counts[VERSION], average))
    for j in range(block.W.shape[0]):
        block.mean_W[j] += share * (block.W[j] - block.mean_W[j])
    for i in range(weights.shape[0]):
        block.mean_weights[i] += share * (weights[i] - block.mean_weights[i])
