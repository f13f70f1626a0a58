"""What a search near the last rows compares: sums to which the open block is not added yet, in few coordinates.

A worker makes up to sixty metrics a second. So the pairs of the open block are added only in the coordinates that
count, and one pass over the sums there makes what both experts compare, in the model's own type.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg.blas import get_blas_funcs

from omdml.blas import one_blas_thread
from omdml.engines.base import Array
from omdml.engines.second_order.discriminant import ScaledCovariances
from omdml.engines.second_order.moments import LEARNED, Moments, Scales
from omdml.kernels.second_order.blas import SYRK, add_products
from omdml.kernels.second_order.comparison import compare


class AllPairs(NamedTuple):
    """The pairs of closed blocks, and those of the open block, which are not added to the matrices yet."""

    # Matrices of closed blocks; everything else is of all pairs.
    moments: Moments
    # Rows (n, d) of the open block, and what it leaves of the near and of the far pairs before it; see ``weigh``.
    near: Array
    middle: Array
    far: Array
    weight: float = 1.0
    weight_far: float = 1.0

    @classmethod
    def of_closed(cls, moments: Moments) -> AllPairs:
        """The pairs of closed blocks alone."""
        nothing = np.zeros((0, len(moments.near)))
        return cls(moments, nothing, nothing, nothing)

    def whole(self) -> Moments:
        """Moments of all pairs; without an open block those that were given, not copies. Callers limit BLAS."""
        if not len(self.near):
            return self.moments
        moments = Moments(*(array.copy() for array in self.moments))
        for name, (rows, factor, weight) in self._parts().items():
            add_products(rows, factor, weight, getattr(moments, name), SYRK)
        return moments

    def _parts(self) -> dict[str, tuple[Array, float, float]]:
        """The rows whose products are added to each matrix, a factor for them, and a weight for the matrix."""
        return {
            "near": (self.near, 0.5, self.weight),
            "middle": (self.middle, 1.0, self.weight),
            "far": (self.far, 0.5, self.weight_far),
        }

    def diagonals(self) -> list[Array]:
        """The diagonals (d,) of the sums ``near``, ``middle`` and ``far``."""
        return [
            weight * getattr(self.moments, name).diagonal() + factor * np.einsum("ij,ij->j", rows, rows)
            for name, (rows, factor, weight) in self._parts().items()
        ]


def scaled_covariances(
    pairs: AllPairs, scale: Scales, variances: Array, dtype: DTypeLike, names: Collection[str] = LEARNED
) -> ScaledCovariances:
    """What these experts compare, divided by its units: with the numbers of ``covariances``, in their order.

    Only the pairs of the open block are added later, in the type of the model.
    """
    coordinates, count, count_far, share, mean_far, added = scale
    moments, (near, middle, far) = pairs.moments, (diagonal[coordinates] for diagonal in pairs.diagonals())
    centre, catalogue = moments.centre[coordinates] / count, share * variances[coordinates]
    diagonal = (1 - share) * (near / count / 2 + middle / count - centre * centre) + catalogue
    diagonal_far = far / count_far + mean_far * added + (1 - mean_far) * diagonal
    unit, unit_far = float(diagonal.sum()), float(diagonal_far.sum())
    sizes = (len(coordinates), len(coordinates), len(coordinates) if "far" in names else 0)
    S, items, others = (np.empty((size, size), dtype) for size in sizes)
    sums, weights = (moments.near, moments.middle, moments.far), (pairs.weight, pairs.weight_far)
    scales = (count, count_far, share, mean_far, added, unit, unit_far)
    compare(*sums, coordinates.astype(np.uint64), centre, catalogue, *weights, *scales, S, items, others)
    if len(pairs.near):
        y, m, g = (rows.take(coordinates, axis=1) for rows in (pairs.near, pairs.middle, pairs.far))
        in_items = {"near": (1 - share) / (4 * count), "middle": (1 - share) / count}
        _add(S, (y, 0.5 / (count * added)))
        _add(items, (y, in_items["near"] / unit), (m, in_items["middle"] / unit))
        if "far" in names:
            missing = (1 - mean_far) / unit_far
            replaced = [(y, missing * in_items["near"]), (m, missing * in_items["middle"])] if missing else []
            _add(others, (g, 0.5 / (count_far * unit_far)), *replaced)
    compared = dict(zip(LEARNED, ((items, unit), (others, unit_far)), strict=True))
    return ScaledCovariances(added, S, {name: compared[name] for name in names})


def _add(upper: Array, *parts: tuple[Array, float]) -> None:
    """Add ``factor x'x`` to the upper triangle of a matrix (c, c), for each x (n, c) and its factor."""
    rows = np.concatenate([math.sqrt(factor) * x for x, factor in parts]).astype(upper.dtype)
    (syrk,) = get_blas_funcs(("syrk",), dtype=upper.dtype)
    # BLAS stores matrices by columns: the lower triangle of the transpose is our upper triangle.
    with one_blas_thread():
        syrk(1.0, rows.T, 1.0, upper.T, lower=1, overwrite_c=1)
