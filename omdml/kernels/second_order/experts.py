"""How the experts of DCA score triplets, and how Hedge and the trust in a parent weigh them (MATHS 12, 15)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.shared.counts import FILLED, MISTAKES, UPDATES, VERSION

# The earlier of two metrics counts as much as this many comparisons.
EARLIER_EVENTS = 10.0
# How strongly its share follows the scores of the two.
EAGER = 2.0
# Margins far beyond this one count alike.
CERTAIN = 1.5
# The standard deviation of advantages is taken to be at least this.
LEAST_DEVIATION = 0.05


@njit(cache=True, fastmath={"reassoc", "contract"})
def squared(x: Array) -> float:
    """``|x|^2`` of a vector (n,), computed as float64: in float32 the squares of small numbers would become 0."""
    total = 0.0
    for j in range(x.shape[0]):
        # In compiled code float() leaves a float32 what it is.
        value = np.float64(x[j])
        total += value * value
    return total


@njit(cache=True, fastmath={"reassoc", "contract"})
def inner(x: Array, y: Array) -> float:
    """``x . y`` of vectors (n,), computed as float64."""
    total = 0.0
    for j in range(x.shape[0]):
        total += np.float64(x[j]) * np.float64(y[j])
    return total


@njit(cache=True, nogil=True)
def unit_rows(projected: Array, factor: float, target: Array) -> None:
    """Scale each row to unit length, then multiply it by a factor; a row of zeros stays as it is.

    Parameters
    ----------
    projected : (n, k)
    factor
        Of the same type as ``projected``.
    target : (n, k)
        Written.
    """
    for i in range(projected.shape[0]):
        # The divisor is float64: 1 / length of the smallest float32 vectors would be infinite in float32.
        divisor = math.sqrt(squared(projected[i]))
        if divisor == 0:
            divisor = 1.0
        for j in range(projected.shape[1]):
            target[i, j] = projected.dtype.type(projected[i, j] / divisor) * factor


@njit(cache=True)
def margins_of(projected: Array, start: int, end: int, first: int, margins: Array) -> None:
    """``D(q, r) - D(q, s)`` by one expert, D being the squared distance of projections that are scaled to unit length.

    Parameters
    ----------
    projected : (3 tile, k)
        Projections of query, relevant and irrelevant item of each triplet of the tile.
    start, end
        The expert's columns.
    first
        Place of the first triplet in the tile.
    margins : (e,)
        Written.
    """
    for e in range(margins.shape[0]):
        row = 3 * (first + e)
        query, relevant = projected[row, start:end], projected[row + 1, start:end]
        irrelevant = projected[row + 2, start:end]
        qq, rr, ss = squared(query), squared(relevant), squared(irrelevant)
        near, far = inner(query, relevant), inner(query, irrelevant)
        near = near / math.sqrt(qq) / math.sqrt(rr) if qq > 0 and rr > 0 else 0.0
        far = far / math.sqrt(qq) / math.sqrt(ss) if qq > 0 and ss > 0 else 0.0
        zeros = (1.0 if rr > 0 else 0.0) - (1.0 if ss > 0 else 0.0)
        margins[e] = zeros + 2 * (far - near)


@njit(cache=True)
def hedged(hedge: Array, weights: Array) -> None:
    """Write the weights (m,) that Hedge gives to m experts by their losses, at a rate that falls with the count.

    ``hedge`` begins with the loss of each expert, the loss of the weighted experts, and the number of triplets behind
    these losses.
    """
    m = weights.shape[0]
    rate = math.sqrt(8.0 * math.log(m) / (hedge[m + 1] + 1.0))
    least, total = hedge[0], 0.0
    for j in range(1, m):
        least = min(least, hedge[j])
    for j in range(m):
        # exp(0) is 1, so one of two exponentials need not be computed.
        weights[j] = math.exp(rate * (least - hedge[j])) if hedge[j] > least else 1.0
        total += weights[j]
    for j in range(m):
        weights[j] /= total


@njit(cache=True)
def rows_know_query(code: int, asked: Array, version: int, made: int) -> bool:
    """Whether rows made at version ``made`` know a triplet of this query, as far back as ``asked`` (a,) reaches."""
    size = asked.shape[0]
    match = False
    for earlier in range(max(0, version - size), made):
        match |= asked[earlier % size] == code
    return match


@njit(cache=True)
def trusted(trust: Array) -> float:
    """The share of an earlier metric beside a newer one, from 0 to 1.

    The earlier one is the parent and the newer one the model's own, or the earlier one is the parent as it was and the
    newer one the fitted parent. ``trust`` (5,) is about triplets that both scored before they were learned: the sum of
    the earlier one's advantages, the sum of their squares, the sum of their weights, and the number of triplets. See
    :func:`compare` for an advantage. The j-th of k triplets has the weight j / k; with a memory, older weights fade
    geometrically. The last number is that of these triplets and of all pairs.
    """
    advantages, squares, weight = trust[0], trust[1], max(trust[2], 1.0)
    mean = advantages / weight
    deviation = math.sqrt(max(squares / weight - mean * mean, 0.0) + LEAST_DEVIATION * LEAST_DEVIATION)
    distrust = -EAGER * mean / deviation * math.sqrt(weight)
    # Limited, because exp would overflow. Far below this limit the share is 0 already.
    return EARLIER_EVENTS / (EARLIER_EVENTS + trust[4] * math.exp(min(distrust, 500.0)))


@njit(cache=True)
def compare(trust: Array, newer: float, earlier: float, rule: float) -> None:
    """Count a triplet in ``trust`` (5,), in place, by its margins by two metrics. See :func:`trusted`.

    The earlier metric's advantage is the newer one's margin minus its own, each through a tanh. The tanh makes large
    margins count alike: how far apart items are changes no search if they are far. ``rule`` is 1 - 1/memory, and 1
    without a memory.
    """
    advantage = CERTAIN * (math.tanh(newer / CERTAIN) - math.tanh(earlier / CERTAIN))
    trust[3] += 1.0
    span = min(trust[3], 1.0 / (1.0 - rule)) if rule < 1.0 else trust[3]
    keep = 1.0 - 1.0 / span
    trust[0] = keep * trust[0] + advantage
    trust[1] = keep * trust[1] + advantage * advantage
    trust[2] = keep * trust[2] + 1.0
    trust[4] += 1.0


@njit(cache=True)
def tally(
    margins: Array,
    plain: float,
    rule: float,
    ordered: Array,
    codes: Array,
    asked: Array,
    made: int,
    hedge: Array,
    weights: Array,
    scores: Array,
    counts: Array,
    parent_margins: Array,
    trust: Array,
) -> int:
    """Score triplets in order, count them as learned, and let Hedge learn from each expert's score.

    Parameters
    ----------
    margins : (1 + m, e)
        Margins by the plain coordinates, and by m experts.
    plain
        Share of the plain coordinates.
    rule
        Factor by which losses fade with each triplet.
    ordered : (e,)
        Whether the triplet says which of two pairs is nearer. A triplet that is a single pair has the score 0, and
        tells Hedge nothing.
    codes : (e,)
        Codes of the queries.
    asked : (a,)
        Codes of the last queries before these, by version. Changed in place.
    made
        The version at which the experts' rows were made.
    hedge
        See :func:`hedged`. Changed in place.
    weights : (m,)
        Working space.
    scores : (e,)
        Written: the weighted margin of all experts, before each triplet was learned.
    counts
        Changed in place.
    parent_margins : (2, e)
        Margins by the parent as it was, and by the fitted one.
    trust : (2, 5)
        See ``Parent``; (0, 5) if there is no parent. Changed in place.

    Returns
    -------
    e, or the index of the first triplet whose score is not finite.
    """
    m = weights.shape[0]
    for e in range(scores.shape[0]):
        version = counts[VERSION] + e
        hedged(hedge, weights)
        learned = 0.0
        for j in range(m):
            learned += weights[j] * margins[1 + j, e]
        own = plain * margins[0, e] + (1.0 - plain) * learned
        share, by_parent = 0.0, 0.0
        if trust.shape[0]:
            share, as_it_was = trusted(trust[0]), trusted(trust[1])
            by_parent = as_it_was * parent_margins[0, e] + (1.0 - as_it_was) * parent_margins[1, e]
        scores[e] = share * by_parent + (1.0 - share) * own if ordered[e] else 0.0
        if not math.isfinite(scores[e]):
            return e
        if scores[e] > 0:
            counts[MISTAKES] += 1
        if not ordered[e]:
            # Pairs do not say which metric is better, but the newer one learns from them.
            trust[:, 4] += 1.0
        # An expert whose rows were made from other answers to the same search would win, because it knows that search.
        # Hedge must judge how experts do on searches that they do not know.
        if ordered[e] and not rows_know_query(codes[e], asked, version, made):
            hedge[m] *= rule
            for j in range(m):
                # Linear in the margin: an answer that is wrong, with relevant and irrelevant swapped, adds to the
                # losses of all experts alike.
                loss = 0.5 + 0.5 * min(max(margins[1 + j, e], -1.0), 1.0)
                hedge[m] += weights[j] * loss
                hedge[j] = rule * hedge[j] + loss
            hedge[m + 1] = rule * hedge[m + 1] + 1.0
            if trust.shape[0]:
                compare(trust[0], own, by_parent, rule)
                compare(trust[1], parent_margins[1, e], parent_margins[0, e], rule)
        asked[version % asked.shape[0]] = codes[e]
    for kind in (FILLED, VERSION, UPDATES):
        counts[kind] += scores.shape[0]
    return int(scores.shape[0])
