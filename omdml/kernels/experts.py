"""What the experts of second-order learning say of triplets, and how they are weighed (MATHS 12, 15)."""

from __future__ import annotations

import math

from numba import njit

from omdml.kernels import Array
from omdml.kernels.counts import FILLED, MISTAKES, UPDATES, VERSION

# How many events of a model its parent counts for.
ELDER = 10.0
# How fast a parent's share follows what the two score.
EAGER = 1.5
# Advantages are taken to have at least this deviation.
SLACK = 0.05


@njit(cache=True, fastmath={"reassoc", "contract"})
def squared(x: Array) -> float:
    """``|x|^2`` of a vector, summed as float64."""
    total = 0.0
    for j in range(x.shape[0]):
        total += float(x[j]) * float(x[j])
    return total


@njit(cache=True, fastmath={"reassoc", "contract"})
def inner(x: Array, y: Array) -> float:
    """``x . y``, summed as float64."""
    total = 0.0
    for j in range(x.shape[0]):
        total += float(x[j]) * float(y[j])
    return total


@njit(cache=True)
def margins_of(projected: Array, first: int, margins: Array) -> None:
    """``D(q, r) - D(q, s)`` by one expert, D being the squared distance of projections brought to unit length.

    Parameters
    ----------
    projected : (3 tile, k)
        Of query, relevant, irrelevant of each triplet of the tile.
    first
        Place of the first triplet in it.
    margins : (e,)
        Written.
    """
    for e in range(margins.shape[0]):
        place = 3 * (first + e)
        query, relevant, irrelevant = projected[place], projected[place + 1], projected[place + 2]
        qq, rr, ss = squared(query), squared(relevant), squared(irrelevant)
        near, far = inner(query, relevant), inner(query, irrelevant)
        near = near / math.sqrt(qq) / math.sqrt(rr) if qq > 0 and rr > 0 else 0.0
        far = far / math.sqrt(qq) / math.sqrt(ss) if qq > 0 and ss > 0 else 0.0
        zeros = (1.0 if rr > 0 else 0.0) - (1.0 if ss > 0 else 0.0)
        margins[e] = zeros + 2 * (far - near)


@njit(cache=True)
def hedged(hedge: Array, weights: Array) -> None:
    """Write the weights (m,) that Hedge gives to experts: by their losses, at a rate that falls with the count.

    ``hedge`` begins with the loss of each expert, that of all as weighed, and the triplets that these are of.
    """
    m = weights.shape[0]
    rate = math.sqrt(8.0 * math.log(m) / (hedge[m + 1] + 1.0))
    least, total = hedge[:m].min(), 0.0
    for j in range(m):
        weights[j] = math.exp(rate * (least - hedge[j]))
        total += weights[j]
    for j in range(m):
        weights[j] /= total


@njit(cache=True)
def known(code: int, asked: Array, version: int, made: int) -> bool:
    """Whether what was made at version ``made`` knows a triplet of this query, as far back as ``asked`` reaches."""
    size = asked.shape[0]
    found = False
    for earlier in range(max(0, version - size), made):
        found |= asked[earlier % size] == code
    return found


@njit(cache=True)
def trusted(trust: Array, version: int) -> float:
    """What a model's parent counts for, from 0 to 1, before its own event of this number, counted from 0.

    ``trust`` (4,) is about triplets that both scored before they were learned: sums of the parent's advantages, of
    their squares and of their weights, and the number of triplets. An advantage is the model's own margin less its
    parent's. Newer triplets weigh more, in proportion to their number.
    """
    ahead, squares, weight = trust[0], trust[1], max(trust[2], 1.0)
    mean = ahead / weight
    deviation = math.sqrt(max(squares / weight - mean * mean, 0.0) + SLACK * SLACK)
    behind = -EAGER * mean / deviation * math.sqrt(weight)
    # beyond that, the parent counts for nothing anyway
    return ELDER / (ELDER + version * math.exp(min(behind, 500.0)))


@njit(cache=True)
def compare(trust: Array, advantage: float, rule: float) -> None:
    """Count a triplet at which a model's parent was ahead by so much."""
    count = trust[3] + 1.0
    if rule < 1.0:
        count = min(count, 1.0 / (1.0 - rule))
    keep = 1.0 - 1.0 / count
    trust[0] = keep * trust[0] + advantage
    trust[1] = keep * trust[1] + advantage * advantage
    trust[2] = keep * trust[2] + 1.0
    trust[3] = count


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
    elder: Array,
    trust: Array,
) -> int:
    """Score triplets in order, count them as learned, and let Hedge learn from what each expert said of them.

    Parameters
    ----------
    margins : (1 + m, e)
        Of the plain coordinates, and of m experts.
    plain
        Share of the plain coordinates.
    rule
        What losses fade by with each triplet.
    ordered : (e,)
        Whether each says which of two pairs is nearer. What is one pair alone has the score 0, and tells Hedge nothing.
    codes : (e,)
        Of the queries.
    asked : (a,)
        The last codes before, by version. Changed in place.
    made
        The version at which the experts' rows were made.
    hedge
        See :func:`hedged`. Changed in place.
    weights : (m,)
        Scratch.
    scores : (e,)
        Written: the margins of all as weighed before each triplet.
    counts
        Changed in place.
    elder : (e,)
        Margins of the parent.
    trust : (4,)
        See :func:`trusted`; (0,) if there is no parent. Changed in place.

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
        share = trusted(trust, version) if trust.shape[0] else 0.0
        scores[e] = share * elder[e] + (1.0 - share) * own if ordered[e] else 0.0
        if not math.isfinite(scores[e]):
            return e
        if scores[e] > 0:
            counts[MISTAKES] += 1
        # rows that know other answers to this search would be praised for that, and not for what they know of others
        if ordered[e] and not known(codes[e], asked, version, made):
            hedge[m] *= rule
            for j in range(m):
                # what is symmetric under a swap of the answers is not misled by wrong ones
                loss = 0.5 + 0.5 * min(max(margins[1 + j, e], -1.0), 1.0)
                hedge[m] += weights[j] * loss
                hedge[j] = rule * hedge[j] + loss
            hedge[m + 1] = rule * hedge[m + 1] + 1.0
            if trust.shape[0]:
                compare(trust, own - elder[e], rule)
        asked[version % asked.shape[0]] = codes[e]
    for place in (FILLED, VERSION, UPDATES):
        counts[place] += scores.shape[0]
    return int(scores.shape[0])
