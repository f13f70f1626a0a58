"""Sums over near and far pairs, and the covariances that DCA compares (MATHS 12)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsymm
from scipy.linalg.lapack import dpotrf

from omdml.engines.second_order.discriminant import catalogue_share, shrinkage, told_apart
from omdml.engines.second_order.distinct import distinct

Array = NDArray[Any]
# The most pairs that count for each item in near pairs. More pairs of the same few items say little about others.
PAIRS_PER_ITEM = 4
# The largest squared length of a pair, in units of the catalogue's variance. The difference of two random items has 2
# such units on average.
REACH = 8.0
# How far rounding may have moved a sum, as a share of the sum.
ROUNDING = 1e-6
# The learned experts, named after what they compare near pairs with.
LEARNED = ("items", "far")


class Moments(NamedTuple):
    """Sums over pairs in d coordinates: see ``State.sums_items``. Only upper triangles of symmetric matrices count."""

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

    def turned(self, axes: Array) -> Moments:
        """The same moments in the coordinates along these axes (d, d), which are a rotation. Callers limit BLAS."""
        matrices = {name: turned(getattr(self, name), axes) for name in ("near", "far", "middle")}
        return self._replace(**matrices, centre=axes @ self.centre)

    def check(self, version: int, most: float) -> None:
        """Raise ValueError for sums that ``version`` pairs of squared lengths up to ``most`` cannot have."""
        total, squares, far = self.sums.tolist()
        sound = 0 <= total <= version and 0 <= far <= version and 0 <= squares <= total
        if not (sound and (squares > 0) == (total > 0)):
            raise ValueError(f"sums are {self.sums.tolist()}, which weights of {version} comparisons cannot have")
        most *= 1 + ROUNDING
        for name, weight, factor in (("near", total, 0.5), ("far", far, 0.5), ("middle", total, 1.0)):
            matrix, largest = getattr(self, name), factor * weight
            diagonal, trace = matrix.diagonal(), float(matrix.diagonal().sum())
            # No entry of a sum of v v' is larger than its trace.
            if not (diagonal.min() >= 0 and np.abs(matrix).max() <= trace * (1 + ROUNDING) and trace <= largest * most):
                raise ValueError(f"{name} cannot be a sum of squares of pairs with the total weight {weight:g}")
        if not np.abs(self.centre).max() <= total * math.sqrt(most):
            raise ValueError(f"centre cannot be a sum of midpoints with the total weight {total:g}")
        # Learning adds a multiple of the identity and inverts the result: that needs eigenvalues of at least 0.
        near = self.near.copy()
        near[np.diag_indices(len(near))] += ROUNDING * float(near.diagonal().mean())
        if near.any() and dpotrf(near.T, lower=1, clean=0, overwrite_a=1)[1]:
            raise ValueError("near cannot be a sum of squares: it has negative eigenvalues")


class Scales(NamedTuple):
    """What sums are divided by and weighted with, before they are compared (MATHS 12.3)."""

    # Numbers of the k coordinates that vary enough.
    coordinates: Array  # (k,)
    # Near pairs, and far pairs together with those that are missing.
    pairs: float
    pairs_far: float
    # Share of the catalogue's variances.
    share: float
    # Share of the far pairs that are not missing.
    mean_far: float
    # The variance that is added to each coordinate of near pairs.
    added: float


class ComparedCovariances(NamedTuple):
    """Covariances in the k coordinates that vary enough; only the upper triangles of matrices count."""

    # Numbers of the k coordinates.
    coordinates: Array  # (k,)
    # Covariance of near pairs.
    near: Array  # (k, k)
    # The variance that is added to each coordinate of ``near``.
    added: float
    # The covariance to compare with, by expert.
    others: dict[str, Array]  # (k, k)


def effective_pairs(moments: Moments) -> float:
    """Number of near pairs that count. For faded pairs it is Kish's effective sample size."""
    total, squares, _ = moments.sums
    most = PAIRS_PER_ITEM * distinct(moments.seen)
    return float(min(total**2 / squares if squares else 1.0, most or 1.0))


def scales(moments: Moments, diagonal: Array, variances: Array) -> Scales:
    """The scales of these moments. ``diagonal`` (d,) is that of ``near``, ``variances`` (d,) are the catalogue's."""
    d, (total, _, total_far) = len(variances), moments.sums.tolist()
    most, pairs = PAIRS_PER_ITEM * distinct(moments.seen), total or 1.0
    added = shrinkage(effective_pairs(moments), d) * float((diagonal / pairs).sum()) / d
    # *items* stands for missing far pairs. Otherwise, in a model of a thousand near pairs, the first far pair would
    # decide half of what is served.
    pairs_far = max(pairs, total_far)
    share = catalogue_share(min(total, most), d)
    return Scales(told_apart(variances, added), pairs, pairs_far, share, total_far / pairs_far, added)


def covariances(moments: Moments, variances: Array) -> ComparedCovariances:
    """The covariance of near pairs, and for each expert the covariance to compare it with.

    *items* is the covariance of the items in near pairs, within pairs and between them. It replaces the catalogue's
    ``variances`` (d,) gradually, as pairs come in. *far* is the covariance of far pairs, with the same variance added
    as to near pairs, and with *items* in place of the far pairs that near pairs came without.
    """
    coordinates, pairs, pairs_far, share, mean_far, added = scales(moments, moments.near.diagonal(), variances)
    near, middle, far = (_block(matrix, coordinates) for matrix in (moments.near, moments.middle, moments.far))
    near /= pairs
    centre, diagonal = moments.centre[coordinates] / pairs, np.diag_indices(len(coordinates))
    items = (1 - share) * (near / 2 + middle / pairs - np.outer(centre, centre))
    items[diagonal] += share * variances[coordinates]
    far /= pairs_far
    far[diagonal] += mean_far * added
    if mean_far < 1:
        far += (1 - mean_far) * items
    return ComparedCovariances(coordinates, near, added, {"items": items, "far": far})


def _block(matrix: Array, coordinates: Array) -> Array:
    """A copy of the rows and columns with these numbers; ``take`` needs a third of the time of indexing."""
    block: Array = matrix.take(coordinates, axis=0).take(coordinates, axis=1)
    return block


def turned(matrix: Array, axes: Array) -> Array:
    """``axes matrix axes'`` (d, d), of a symmetric matrix (D, D) of which only the upper triangle counts."""
    wide = axes.astype(np.float64)
    # BLAS stores matrices by columns: the lower triangle of the transpose is our upper triangle.
    product: Array = wide @ dsymm(1.0, matrix.T, wide.T, lower=1)
    return product
