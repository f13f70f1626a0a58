"""The compiled parts of DCA: the walk over triplets, and the sums over pairs (MATHS 12)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.second_order.blas import add_products, times, times_transposed
from omdml.kernels.second_order.experts import margins_of, squared, tally
from omdml.kernels.second_order.fading import fade
from omdml.kernels.second_order.vectors import copy, subtract
from omdml.kernels.shared.counts import FILLED
from omdml.kernels.shared.memory import at_address, matrix

# Triplets that are scored together. This is part of the arithmetic: another number gives other bytes.
TILE = 32
# Vectors of a smaller squared length count as 0. The sums of their squares would have too few digits to be inverted.
LEAST_SQUARE = 1e-280
# The first bits of an item's hash are the number of its bit among those that were seen.
BITS = 13


@njit(cache=True, nogil=True)
def learn(
    rows: Array,
    triplet_weights: Array,
    addresses: Array,
    n: Array,
    limit: float,
    factors: Array,
    rule: float,
    most: float,
    gemm: int,
    syrk: int,
    sums_items: bool,
    state: Any,
    parent: Any,
    items: Array,
    products: Array,
    scores: Array,
) -> int:
    """Score triplets in order, each before it is learned, and take their items into the open block.

    A full block is closed before the next triplet. If sums are of principal coordinates, and items are not such
    coordinates yet, this returns instead. The caller then computes the coordinates, closes the block, and calls again.

    BLAS may round a row differently, depending on the number of rows and on the row's place among them. So a tile is
    always multiplied as a whole, whatever it holds, and a triplet's place in the tile follows from its number in the
    block. Then its bytes depend neither on how many triplets share the call nor on what they are.

    Parameters
    ----------
    rows, triplet_weights : (e, 3), (e,)
        Query, relevant, irrelevant; and what each triplet counts for in the sums.
    addresses, n, limit
        See :func:`gather`.
    factors
        See :func:`hash_rows`.
    rule
        Factor by which losses, and the weights of pairs, fade with each triplet.
    most
        See :func:`combine`.
    gemm, syrk
        The entry of ``GEMM`` for the type of the items, and ``SYRK``.
    sums_items
        Whether the sums are of items as they come.
    state
        A ``State``. Its open block, its sums, ``hedge``, ``asked`` and ``counts`` change in place.
    parent
        A ``Parent``; one with an empty ``trust`` stands for no parent. Its ``trust`` changes in place.
    items : (3 TILE, D)
        Working space, of the type of the items. Every number in it must be finite.
    products
        Working space, of that type, with room for the widest projection of all items of a tile: that by all experts.
    scores : (e,)
        Written.

    Returns
    -------
    The number of triplets learned. If it is below e, either the open block is full, or the next triplet has a value or
    a score that is not finite or is too large.
    """
    m, used = state.used.shape[0], state.used.sum()
    margins, parent_margins = np.zeros((1 + m, TILE)), np.zeros((2, TILE))
    codes = np.zeros(TILE, np.uint64)
    near, far, weights = np.zeros(TILE, np.bool_), np.zeros(TILE, np.bool_), np.zeros(m)
    learned = 0
    while learned < rows.shape[0]:
        filled = state.counts[FILLED]
        if filled == state.Q.shape[0]:
            if state.basis.shape[0] > 0 and not sums_items:
                return learned
            Q, R, S = state.Q, state.R, state.S
            add_block(state, Q, R, S, Q, R, S, state.weights, factors, rule, most, syrk)
            state.counts[FILLED] = filled = 0
        first = filled % TILE
        count = min(TILE - first, rows.shape[0] - learned)
        part = slice(learned, learned + count)
        taken = take(rows[part], triplet_weights[part], addresses, n, limit, factors, first, items, state, codes)
        if taken < count:
            return learned + taken
        # The plain coordinates are the same for a model and its parent.
        if state.share[0] > 0 or parent.shares[0] > 0:
            margins_by(state.basis, items, first, products, gemm, margins[0, :count])
        if used > 0:
            columns = matrix(state.W, 0, items.shape[1], used)
            projected = matrix(products, 0, items.shape[0], used)
            times(items, columns, projected, gemm)
            start = 0
            for j in range(m):
                end = start + state.used[j]
                if end > start:
                    margins_of(projected, start, end, first, margins[1 + j, :count])
                start = end
        if parent.trust.shape[0] > 0:
            for place, parent_rows in enumerate((parent.rows, parent.fitted)):
                of_parent = parent_margins[place, :count]
                margins_of_parent(parent, parent_rows, margins[0], items, first, products, gemm, of_parent)
        q = state.Q[filled : filled + count]
        mark_others(q, state.R[filled : filled + count], near)
        mark_others(q, state.S[filled : filled + count], far)
        # A triplet that is a single pair has the score 0 and tells Hedge nothing.
        near &= far
        scored = tally(
            margins,
            state.share[0],
            rule,
            near,
            codes,
            state.asked,
            state.made[0],
            state.hedge,
            weights,
            scores[learned : learned + count],
            state.counts,
            parent_margins,
            parent.trust,
        )
        if scored < count:
            return learned + scored
        learned += count
    return learned


@njit(cache=True)
def take(
    rows: Array,
    weights: Array,
    addresses: Array,
    n: Array,
    limit: float,
    factors: Array,
    first: int,
    items: Array,
    state: Any,
    codes: Array,
) -> int:
    """Centre the items of triplets, and append them to the open block, with their weights (e,).

    ``first`` is the place of the first triplet in the tile ``items``; see :func:`gather`. Writes the queries' codes
    (e,). Returns e, or the index of the first triplet that is refused; the triplets before it are in the block then.
    """
    gathered = gather(rows, addresses, n, state.mean, first, items, limit)
    filled = state.counts[FILLED]
    for e in range(gathered):
        row = 3 * (first + e)
        copy(items[row], state.Q[filled + e])
        copy(items[row + 1], state.R[filled + e])
        copy(items[row + 2], state.S[filled + e])
        state.weights[filled + e] = weights[e]
    hash_rows(state.Q[filled : filled + gathered].view(np.uint32), factors, codes)
    return gathered


@njit(cache=True)
def margins_by(W: Array, items: Array, first: int, products: Array, gemm: int, margins: Array) -> None:
    """Write the margins (e,) of triplets of a tile by an expert with the rows W (r, D); (0, D) is the identity.

    ``products`` is working space for the projections of all items of the tile.
    """
    if W.shape[0] == 0:
        margins_of(items, 0, items.shape[1], first, margins)
        return
    projected = matrix(products, 0, items.shape[0], W.shape[0])
    times_transposed(items, W, projected, gemm)
    margins_of(projected, 0, W.shape[0], first, margins)


@njit(cache=True)
def margins_of_parent(
    parent: Any, rows: Array, plain: Array, items: Array, first: int, products: Array, gemm: int, margins: Array
) -> None:
    """Write the margins (e,) of triplets of a tile by all experts of the model's parent, weighted by their shares.

    ``rows`` are the parent's as they were, or the fitted ones. ``plain`` (at least e,) has the margins by the plain
    coordinates.
    """
    expert_margins = np.zeros(margins.shape[0])
    margins[:] = parent.shares[0] * plain[: margins.shape[0]]
    start = 0
    for j in range(parent.sizes.shape[0]):
        end = start + parent.sizes[j]
        if parent.shares[1 + j] > 0:
            margins_by(rows[start:end], items, first, products, gemm, expert_margins)
            margins += parent.shares[1 + j] * expert_margins
        start = end


@njit(cache=True)
def gather(rows: Array, addresses: Array, n: Array, mean: Array, first: int, items: Array, limit: float) -> int:
    """Subtract the mean from the items of triplets, and write them into a tile.

    Parameters
    ----------
    rows : (e, 3)
        Query, relevant, irrelevant.
    addresses : (m,)
        Addresses of the modalities' feature matrices, of the type of ``items``.
    n : (m,)
        Dimensions, D in total.
    mean : (D,)
        The mean to subtract.
    first
        Place of the first triplet in its tile.
    items : (3 tile, D)
        Written from row ``3 first`` on: query, relevant and irrelevant item of each triplet.
    limit
        Largest squared length that a centred item may have.

    Returns
    -------
    e, or the index of the first triplet with a value that is not finite or too large; its items are then 0.
    """
    start = 0
    for i in range(n.shape[0]):
        x = at_address(addresses[i], 1 << 40, n[i], items)
        for e in range(rows.shape[0]):
            for side in range(3):
                target = items[3 * (first + e) + side, start : start + n[i]]
                subtract(x[rows[e, side]], mean[start : start + n[i]], target)
        start += n[i]
    for e in range(rows.shape[0]):
        row = 3 * (first + e)
        for side in range(3):
            if not squared(items[row + side]) <= limit:
                items[row : row + 3] = 0
                return e
    return rows.shape[0]


@njit(cache=True)
def hash_rows(words: Array, factors: Array, hashes: Array) -> None:
    """Write a hash (n,) of each row of ``words`` (n, w), uint32: its words times ``factors`` (w,), uint64, summed."""
    for e in range(words.shape[0]):
        total = factors[0] * words[e, 0]
        for j in range(1, words.shape[1]):
            total += factors[j] * words[e, j]
        hashes[e] = total


@njit(cache=True)
def mark_others(x: Array, y: Array, others: Array) -> None:
    """Write to ``others`` (n,), bool, whether each row of ``x`` (n, D) differs from the same row of ``y`` (n, D)."""
    for e in range(x.shape[0]):
        others[e] = False
        for j in range(x.shape[1]):
            if x[e, j] != y[e, j]:
                others[e] = True
                break


@njit(cache=True)
def combine(x: Array, y: Array, a: float, b: float, most: float, result: Array) -> None:
    """Write ``a x + b y`` of rows (n, d), shortened to the squared length ``most`` if it is longer."""
    for e in range(result.shape[0]):
        row = result[e]
        for j in range(row.shape[0]):
            row[j] = a * x[e, j] + b * y[e, j]
        length = squared(row)
        if min(length, most) < LEAST_SQUARE:
            row[:] = 0.0
        elif length >= most:
            row *= math.sqrt(most / length)


@njit(cache=True)
def mark(seen: Array, words: Array, factors: Array, chosen: Array) -> None:
    """Set one bit of ``seen`` (uint8) for each row of ``words`` for which ``chosen`` (n,) is True.

    The first ``BITS`` bits of the row's hash are the bit's number; see :func:`hash_rows`.
    """
    hashes = np.empty(words.shape[0], np.uint64)
    hash_rows(words, factors, hashes)
    for e in range(hashes.shape[0]):
        if chosen[e]:
            slot = hashes[e] >> np.uint64(64 - BITS)
            seen[slot >> np.uint64(3)] |= np.uint8(1 << (slot & np.uint64(7)))


@njit(cache=True)
def add_block(
    moments: Any,
    Q: Array,
    R: Array,
    S: Array,
    q: Array,
    r: Array,
    s: Array,
    weights: Array,
    factors: Array,
    rule: float,
    most: float,
    syrk: int,
) -> None:
    """Add the pairs of a block of triplets to moments.

    Parameters
    ----------
    moments
        A ``Moments``, or a ``State``, which has the same arrays. Changed in place.
    Q, R, S : (n, D)
        Queries, relevant and irrelevant items. Two with the same numbers are no pair.
    q, r, s, weights : (n, d), (n,)
        Their coordinates, and what each triplet counts for.
    factors
        See :func:`hash_rows`.
    rule
        Factor by which a pair multiplies the weights of the earlier pairs of its kind.
    most
        See :func:`combine`.
    syrk
        ``SYRK``.
    """
    sums = moments.seen, moments.centre, moments.sums
    y, m, g, weight, weight_far, any_far = weigh(Q, R, S, q, r, s, weights, factors, rule, most, *sums)
    add_products(y, 0.5, weight, moments.near, syrk)
    add_products(m, 1.0, weight, moments.middle, syrk)
    if any_far:
        add_products(g, 0.5, weight_far, moments.far, syrk)


@njit(cache=True)
def weigh(
    Q: Array,
    R: Array,
    S: Array,
    q: Array,
    r: Array,
    s: Array,
    weights: Array,
    factors: Array,
    rule: float,
    most: float,
    seen: Array,
    centre: Array,
    sums: Array,
) -> tuple[Array, Array, Array, float, float, bool]:
    """What :func:`add_block` adds to the matrices: rows whose products are the sums of the block.

    The parameters are those of :func:`add_block`; ``seen``, ``centre`` and ``sums`` are changed in place.

    Returns
    -------
    Differences of near pairs, their midpoints, and differences of far pairs, (n, d) each and weighted; the factors by
    which the block makes the near pairs before it fade, and the far pairs; and whether it has far pairs.
    """
    near, far = np.empty(len(Q), np.bool_), np.empty(len(Q), np.bool_)
    mark_others(Q, R, near)
    mark_others(Q, S, far)
    mark(seen, Q.view(np.uint32), factors, near)
    mark(seen, R.view(np.uint32), factors, near)
    y, m, g = np.empty(q.shape), np.empty(q.shape), np.empty(q.shape)
    combine(q, r, 1.0, -1.0, most, y)
    combine(q, r, 0.5, 0.5, most, m)
    combine(q, s, 1.0, -1.0, most, g)
    weight, weight_far = fade(near, far, weights, rule, y, m, g, centre, sums)
    return y, m, g, weight, weight_far, bool(far.any())
