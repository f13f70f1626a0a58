"""A log of comparisons for batch solvers: checked once, then turned into differences of items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from omdml.errors import FeedbackError, StartError, quoted
from omdml.learners.shared.base import Array
from omdml.learners.shared.checks import check_rows, shape_of
from omdml.learners.shared.quadruplets import margins
from omdml.metrics.base import check_features, dims_of


class Contrasts(NamedTuple):
    """The differences of the near and the far pairs of T comparisons, and their margins."""

    # One matrix for each modality, float64.
    near: dict[str, Array]  # (T, d_i)
    far: dict[str, Array]
    margin: Array  # (T,)

    @classmethod
    def of(cls, rows: ArrayLike, features: Mapping[str, Array], margin: ArrayLike = 1.0) -> Contrasts:
        """Contrasts of comparisons in the form that ``learn_many`` takes.

        Parameters
        ----------
        rows : (T, 4) or (T, 3)
            Near pair and far pair; or query, relevant, irrelevant.
        features
            Matrices (n, d_i); only the rows that are named are read.
        margin : scalar or (T,)

        Raises
        ------
        FeedbackError
            Rows or features do not fit, or a margin or the square of a difference is not finite. (``row`` is the index
            of the comparison.)
        StartError
            There are no comparisons.
        """
        width = 3 if shape_of(rows)[1:] == (3,) else 4
        table = check_rows(rows, width, check_features(features, dims_of(features)))
        if not len(table):
            raise StartError("there are no comparisons: a batch start needs at least one")
        pairs = table if width == 4 else table[:, [0, 1, 0, 2]]
        near = {name: difference(matrix, pairs[:, 0], pairs[:, 1]) for name, matrix in features.items()}
        far = {name: difference(matrix, pairs[:, 2], pairs[:, 3]) for name, matrix in features.items()}
        check_finite([*near.values(), *far.values()])
        return cls(near, far, margins(margin, len(table)))

    @property
    def dims(self) -> dict[str, int]:
        """d_i, the dimension of each modality, by name."""
        return {name: matrix.shape[1] for name, matrix in self.near.items()}

    def vectors(self, transform: Callable[[Array], Array], group: Array | None = None) -> Array:
        """Vectors (T, G): what each weight adds to the distance of the far pair, minus that of the near pair.

        Parameters
        ----------
        transform
            What a weight multiplies in a distance: ``np.square`` of a difference, or ``np.positive``, the difference.
        group : (sum d_i,)
            Number of the weight of each coordinate; None: each has a weight of its own.
        """
        parts = [transform(self.far[name]) - transform(self.near[name]) for name in self.near]
        return folded(np.concatenate(parts, axis=1), group)

    def split(self, weights: Array, group: Array | None = None) -> dict[str, Array]:
        """Weights (G,) as vectors (d_i,) by modality: an ``init``."""
        flat = weights if group is None else weights[np.asarray(group)]
        ends = np.cumsum(list(self.dims.values()))[:-1]
        return dict(zip(self.near, np.split(flat, ends), strict=True))


def difference(matrix: Array, left: Array, right: Array) -> Array:
    """Differences (T, d), float64, of pairs of rows of a matrix."""
    return np.asarray(matrix[left], np.float64) - np.asarray(matrix[right], np.float64)


def folded(coordinates: Array, group: Array | None) -> Array:
    """Columns (T, N) summed within their groups (N,): (T, G). Raises StartError if the groups have another shape."""
    if group is None:
        return coordinates
    if np.shape(group) != (coordinates.shape[1],):
        raise StartError(f"group of shape {np.shape(group)}, expected one number for each of {coordinates.shape[1]}")
    group = np.asarray(group)
    numbers = np.unique(group)
    if not np.array_equal(numbers, np.arange(len(numbers))):
        raise StartError(f"group has the numbers {quoted(numbers.tolist())}, expected 0, 1, ... without gaps")
    order = np.argsort(group, kind="stable")
    return np.add.reduceat(coordinates[:, order], np.flatnonzero(np.diff(group[order], prepend=-1)), axis=1)


def check_finite(differences: list[Array]) -> None:
    """Raise FeedbackError for the first comparison with a difference whose square is not finite; (T, d_i) each."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = sum(np.einsum("ij,ij->i", matrix, matrix) for matrix in differences)
    bad = np.flatnonzero(~np.isfinite(norms))
    if bad.size:
        message = f"comparison {bad[0]} names items whose values are not finite, or too large to square"
        raise FeedbackError(f"{message}: leave it out", reason="not_finite", row=int(bad[0]))
