"""Sums over near and far pairs, and the covariances that DCA compares (MATHS 12)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsymm
from scipy.linalg.lapack import dpotrf

from omdml.blas import one_blas_thread
from omdml.engines.second_order.discriminant import catalogue_share, shrinkage, told_apart
from omdml.engines.second_order.distinct import distinct

Array = NDArray[Any]
# Pairs that count for each item that came up. More pairs of the same few items say little about the others.
PAIRS_AN_ITEM = 4
# The largest squared length of a pair, in units of the catalogue's variance. The difference of two random items has 2
# such units on average.
REACH = 8.0
# The share of a sum by which rounding may have changed it.
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
            # No entry of a sum of v v' is larger than its trace.
            if not (diagonal.min() >= 0 and np.abs(matrix).max() <= trace * (1 + ROUNDING) and trace <= largest * most):
                raise ValueError(f"{name} is no sum of squares of {total:g} pairs")
        if not np.abs(self.centre).max() <= total * math.sqrt(most):
            raise ValueError(f"centre is no sum of {total:g} midpoints")
        # Learning adds a multiple of the identity and inverts the result: that needs eigenvalues of at least 0.
        near = self.near.copy()
        near[np.diag_indices(len(near))] += ROUNDING * float(near.diagonal().mean())
        if near.any() and dpotrf(near.T, lower=1, clean=0, overwrite_a=1)[1]:
            raise ValueError("near is no sum of squares: it has negative eigenvalues")


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
    most = PAIRS_AN_ITEM * distinct(moments.seen)
    return float(min(total**2 / squares if squares else 1.0, most or 1.0))


def covariances(moments: Moments, variances: Array, turning: Array) -> ComparedCovariances:
    """The covariance of near pairs, and for each expert the covariance to compare it with.

    *items* is the covariance of the items in near pairs, within pairs and between them. It replaces the catalogue's
    ``variances`` (d,) gradually, as pairs come in. *far* is the covariance of far pairs, with the same variance added
    as to near pairs, and with *items* in place of the far pairs that near pairs came without. ``turning`` (d, D) turns
    the moments to principal coordinates; (0, D) leaves them as they are.
    """
    d, (total, _, total_far) = len(variances), moments.sums
    most, pairs = PAIRS_AN_ITEM * distinct(moments.seen), total or 1.0
    added = shrinkage(effective_pairs(moments), d) * float((moments.near.diagonal() / pairs).sum()) / d
    coordinates = told_apart(variances, added)
    near, middle, far = (
        principal_block(matrix, coordinates, turning) for matrix in (moments.near, moments.middle, moments.far)
    )
    near /= pairs
    centre, diagonal = moments.centre / pairs, np.diag_indices(len(coordinates))
    centre = turning[coordinates] @ centre if len(turning) else centre[coordinates]
    share = catalogue_share(min(total, most), d)
    items = (1 - share) * (near / 2 + middle / pairs - np.outer(centre, centre))
    items[diagonal] += share * variances[coordinates]
    # *items* stands for missing far pairs. Otherwise, in a model of a thousand near pairs, the first far pair would
    # decide half of what is served.
    pairs_far = max(pairs, total_far)
    mean_far = total_far / pairs_far
    far /= pairs_far
    far[diagonal] += mean_far * added
    if mean_far < 1:
        far += (1 - mean_far) * items
    return ComparedCovariances(coordinates, near, added, {"items": items, "far": far})


def principal_block(matrix: Array, coordinates: Array, turning: Array) -> Array:
    """The rows and columns of these principal coordinates, from a sum over items as ``turning`` says; a copy.

    Of both matrices only the upper triangle counts.
    """
    block: Array
    if len(turning) and len(coordinates):
        axes = turning[coordinates].astype(np.float64)
        with one_blas_thread():
            # BLAS stores matrices by columns: the lower triangle of the transpose is our upper triangle.
            block = axes @ dsymm(1.0, matrix.T, axes.T, lower=1)
    else:
        # This takes a third of the time of indexing.
        block = matrix.take(coordinates, axis=0).take(coordinates, axis=1)
    return block
