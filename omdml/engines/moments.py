"""What near and far pairs sum up to, and the covariances that are compared (MATHS 12)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from omdml.engines.discriminant import catalogue_share, shrinkage
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


def covariances(moments: Moments, variances: Array) -> tuple[Array, float, dict[str, Array]]:
    """Covariance of near pairs, what is added to it, and by expert the covariance that it is compared with.

    *items*: that of the items in near pairs, within pairs and between them. It takes the place of the catalogue's
    ``variances`` (d,) as pairs come in. *far*: that of far pairs, to which as much is added as to near ones. Pairs
    beyond PAIRS_AN_ITEM for each item count for nothing: few items that are clicked over and over say little of the
    others. Upper triangles count.
    """
    d, (total, squares, total_far) = len(variances), moments.sums
    most, pairs = PAIRS_AN_ITEM * distinct(moments.seen), total or 1.0
    # of faded pairs, as many count as would give an unweighed mean the same variance (Kish)
    effective = min(total**2 / squares if squares else 1.0, most or 1.0)
    near, centre = moments.near / pairs, moments.centre / pairs
    added = shrinkage(effective, d) * float(np.trace(near)) / d
    share, diagonal = catalogue_share(min(total, most), d), np.diag_indices(d)
    items = (1 - share) * (near / 2 + moments.middle / pairs - np.outer(centre, centre))
    items[diagonal] += share * variances
    compared = {"items": items}
    if total_far:
        compared["far"] = moments.far / total_far
        compared["far"][diagonal] += added
    return near, added, compared


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
