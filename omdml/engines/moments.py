"""What near and far pairs sum up to, and the covariances that are compared (MATHS 12)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from omdml.engines.discriminant import catalogue_share, shrinkage, told_apart
from omdml.engines.distinct import distinct, mark

Array = NDArray[Any]
PAIRS_AN_ITEM = 4
REACH = 8.0  # squared length of a pair, in units of the catalogue's variance: two items at random differ by 2 of them
LEARNED = ("items", "far")  # experts: what near pairs are compared with


class Moments(NamedTuple):
    """Sums over pairs of items in d coordinates. Of symmetric matrices only the upper triangle counts."""

    near: Array  # (d, d)        sum of z z' / 2 over the differences z of near pairs
    far: Array  # (d, d)         the same of far pairs
    middle: Array  # (d, d)      sum of m m' over the midpoints m of near pairs
    centre: Array  # (d,)        sum of these midpoints
    sums: Array  # (3,)          of the near pairs' weights, of their squares, of the far pairs' weights
    seen: Array  # (SLOTS / 8,)  which items were in near pairs, see distinct.py

    def add(self, near: tuple[Array, Array], far: tuple[Array, Array], rule: float, most: float) -> None:
        """Add pairs (n, d) of which each makes those before it fade by ``rule``; ``most`` bounds squared lengths."""
        count = len(near[0])
        weights, fade = rule ** np.arange(count - 1, -1, -1.0), rule**count
        differences, middles = (shortened(vectors, most) for vectors in (near[0] - near[1], (near[0] + near[1]) / 2))
        self.centre[:] = fade * self.centre + weights @ middles
        total, squares = weights.sum(), (weights**2).sum()
        self.sums[:] = np.array([fade, fade**2, fade]) * self.sums + [total, squares, total if len(far[0]) else 0.0]
        for matrix, factor, vectors in (
            (self.near, 0.5, differences),
            (self.middle, 1.0, middles),
            (self.far, 0.5, shortened(far[0] - far[1], most)),
        ):
            if rule < 1:
                vectors *= np.sqrt(weights[len(weights) - len(vectors) :])[:, None]
            # BLAS counts columns: its lower triangle of the transpose is our upper one
            dsyrk(factor, vectors.T, fade, matrix.T, lower=1, overwrite_c=1)

    def mark(self, items: Array) -> None:
        """Note that items (n, D), as they are given, were in near pairs."""
        mark(self.seen, items)


class Compared(NamedTuple):
    """Covariances in the k coordinates that can be told apart; of matrices only the upper triangle counts."""

    kept: Array  # (k,)   which coordinates these are
    near: Array  # (k, k) covariance of near pairs
    added: float  # variance that is added to each of its coordinates
    others: dict[str, Array]  # (k, k) by expert: what it is compared with


def covariances(moments: Moments, variances: Array) -> Compared:
    """Covariance of near pairs, and by expert the one that it is compared with; ``variances`` (d,) of the catalogue.

    *items*: that of the items in near pairs, within pairs and between them. It takes the place of the catalogue's
    variances as pairs come in. *far*: that of far pairs, to which as much is added as to near ones. Pairs beyond
    PAIRS_AN_ITEM for each item count for nothing: few items that are clicked over and over say little of the others.
    """
    d, (total, squares, total_far) = len(variances), moments.sums
    most, pairs = PAIRS_AN_ITEM * distinct(moments.seen), total or 1.0
    # of faded pairs, as many count as would give an unweighed mean the same variance (Kish)
    effective = min(total**2 / squares if squares else 1.0, most or 1.0)
    added = shrinkage(effective, d) * float((moments.near.diagonal() / pairs).sum()) / d
    kept = told_apart(variances, added)
    block, diagonal = np.ix_(kept, kept), np.diag_indices(len(kept))
    near, centre = moments.near[block] / pairs, moments.centre[kept] / pairs
    share = catalogue_share(min(total, most), d)
    items = (1 - share) * (near / 2 + moments.middle[block] / pairs - np.outer(centre, centre))
    items[diagonal] += share * variances[kept]
    others = {"items": items}
    if total_far:
        others["far"] = moments.far[block] / total_far
        others["far"][diagonal] += added
    return Compared(kept, near, added, others)


def shortened(vectors: Array, most: float) -> Array:
    """Vectors (n, d) whose squared length is ``most`` at most: those beyond keep their direction.

    One pair with an item a thousand times as far out as others would be most of what a million pairs sum up to.
    """
    squares = np.einsum("ij,ij->i", vectors, vectors)
    shorter = np.sqrt(most / np.maximum(squares, max(most, 1e-300)))
    bounded: Array = vectors * shorter[:, None]
    return bounded


def symmetric(upper: Array) -> Array:
    """The matrix (d, d) whose upper triangle this one has."""
    kept = np.triu(upper)
    both: Array = kept + np.triu(kept, 1).T
    return both
