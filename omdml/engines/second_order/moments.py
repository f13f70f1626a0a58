"""What near and far pairs sum up to, and the covariances that are compared (MATHS 12)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf

from omdml.engines.second_order.discriminant import catalogue_share, shrinkage, told_apart
from omdml.engines.second_order.distinct import distinct, mark
from omdml.kernels.covariance import combine, fade, mark_others

Array = NDArray[Any]
PAIRS_AN_ITEM = 4
# The largest squared length of a pair, in units of the catalogue's variance. Two random items differ by 2 of them.
REACH = 8.0
# The share of a sum that rounding may have added or taken.
ROUNDING = 1e-6
# The experts that are learned, named by what near pairs are compared with.
LEARNED = ("items", "far")


class Moments(NamedTuple):
    """Sums over pairs of items in d coordinates. Of symmetric matrices only the upper triangle counts."""

    # Sum of z z' / 2 over the differences z of near pairs.
    near: Array  # (d, d)
    # Sum of z z' / 2 over the differences z of far pairs.
    far: Array  # (d, d)
    # Sum of m m' over the midpoints m of near pairs.
    middle: Array  # (d, d)
    # Sum of these midpoints.
    centre: Array  # (d,)
    # Sum of the near pairs' weights, of the squares of these weights, and of the far pairs' weights.
    sums: Array  # (3,)
    # Which items were in near pairs; see distinct.py.
    seen: Array  # (SLOTS / 8,)

    def add(self, q: Array, r: Array, s: Array, near: Array, far: Array, rule: float, most: float) -> None:
        """Add pairs, each of which makes those of its kind before it fade by ``rule``; ``most`` bounds squared lengths.

        ``q`` and ``r`` (n, d) are the near ones; ``q`` and ``s`` the far ones. ``near`` and ``far`` (n,) are truth
        values: which of these there are.
        """
        differences, middles, apart = np.empty(q.shape), np.empty(q.shape), np.empty(q.shape)
        combine(q, r, 1.0, -1.0, most, differences)
        combine(q, r, 0.5, 0.5, most, middles)
        combine(q, s, 1.0, -1.0, most, apart)
        kept, kept_far = fade(near, far, rule, differences, middles, apart, self.centre, self.sums)
        # BLAS counts columns first: its lower triangle of the transpose is our upper one.
        dsyrk(0.5, differences.T, kept, self.near.T, lower=1, overwrite_c=1)
        dsyrk(1.0, middles.T, kept, self.middle.T, lower=1, overwrite_c=1)
        if far.any():
            dsyrk(0.5, apart.T, kept_far, self.far.T, lower=1, overwrite_c=1)

    def mark(self, items: Array, near: Array) -> None:
        """Note which items (n, D), as they are given, were in near pairs: those with a True in ``near`` (n,)."""
        mark(self.seen, items, near)

    def check(self, version: int, most: float) -> None:
        """Raise ValueError for sums that ``version`` pairs of squared lengths up to ``most`` cannot have."""
        total, squares, far = self.sums.tolist()
        sound = 0 <= total <= version and 0 <= far <= version and 0 <= squares <= total
        if not (sound and (squares > 0) == (total > 0)):
            raise ValueError(f"sums of weights are {self.sums.tolist()}, of {version} comparisons")
        most *= 1 + ROUNDING
        for name, largest in (("near", total / 2), ("far", far / 2), ("middle", total)):
            matrix = getattr(self, name)
            diagonal, trace = matrix.diagonal(), float(matrix.diagonal().sum())
            # no entry of a sum of v v' is larger than its trace
            if not (diagonal.min() >= 0 and np.abs(matrix).max() <= trace * (1 + ROUNDING) and trace <= largest * most):
                raise ValueError(f"{name} is no sum of squares of {total:g} pairs")
        if not np.abs(self.centre).max() <= total * math.sqrt(most):
            raise ValueError(f"centre is no sum of {total:g} midpoints")
        # What is added to it makes it definite, so that it can be inverted, only if it has no negative eigenvalue.
        near = self.near.copy()
        near[np.diag_indices(len(near))] += ROUNDING * float(near.diagonal().mean())
        if near.any() and dpotrf(near.T, lower=1, clean=0, overwrite_a=1)[1]:
            raise ValueError("near is no sum of squares: it has negative eigenvalues")


class Compared(NamedTuple):
    """Covariances in the k coordinates that can be told apart; of matrices only the upper triangle counts."""

    # Numbers of the k coordinates.
    kept: Array  # (k,)
    # Covariance of near pairs.
    near: Array  # (k, k)
    # The variance that is added to each of its coordinates.
    added: float
    # The covariance to compare with, by expert.
    others: dict[str, Array]  # (k, k)


def effective_pairs(moments: Moments) -> float:
    """How many near pairs count: of faded ones, as many as would give an unweighed mean the same variance (Kish)."""
    total, squares, _ = moments.sums
    most = PAIRS_AN_ITEM * distinct(moments.seen)
    return float(min(total**2 / squares if squares else 1.0, most or 1.0))


def covariances(moments: Moments, variances: Array) -> Compared:
    """Covariance of near pairs, and by expert the one that it is compared with; ``variances`` (d,) of the catalogue.

    *items*: that of the items in near pairs, within pairs and between them. It takes the place of the catalogue's
    variances as pairs come in. *far*: that of far pairs, to which as much is added as to near ones, and *items* in
    place of those that near pairs came without. Pairs beyond PAIRS_AN_ITEM for each item count for nothing: few items
    that are clicked over and over say little of the others.
    """
    d, (total, _, total_far) = len(variances), moments.sums
    most, pairs = PAIRS_AN_ITEM * distinct(moments.seen), total or 1.0
    added = shrinkage(effective_pairs(moments), d) * float((moments.near.diagonal() / pairs).sum()) / d
    kept = told_apart(variances, added)
    block, diagonal = np.ix_(kept, kept), np.diag_indices(len(kept))
    near, centre = moments.near[block] / pairs, moments.centre[kept] / pairs
    share = catalogue_share(min(total, most), d)
    items = (1 - share) * (near / 2 + moments.middle[block] / pairs - np.outer(centre, centre))
    items[diagonal] += share * variances[kept]
    # Items stand for the far pairs that near ones came without. Else half of what a model of a thousand pairs serves
    # would be what the first far pair says.
    pairs_far = max(pairs, total_far)
    mean_far = total_far / pairs_far
    far = moments.far[block] / pairs_far
    far[diagonal] += mean_far * added
    if mean_far < 1:
        far += (1 - mean_far) * items
    return Compared(kept, near, added, {"items": items, "far": far})


def pairs_among(q: Array, r: Array, s: Array) -> tuple[Array, Array]:
    """Which triplets (n, D) have a near pair, and which have a far one: (n,) truth values each."""
    near, far = np.empty(len(q), bool), np.empty(len(q), bool)
    mark_others(q, r, near)
    mark_others(q, s, far)
    return near, far
