"""Learners of quadruplets: one pair should be closer than another, by a margin. A triplet is a special case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from omdml.errors import FeedbackError
from omdml.learners.shared.base import Array, Learner, Outcome
from omdml.learners.shared.checks import column_of, expect, shape_of


class QuadrupletLearner(Learner):
    """Base of learners that take quadruplets and triplets."""

    accepts: ClassVar[frozenset[str]] = frozenset({"triplet", "quadruplet"})
    width: ClassVar[int] = 4
    columns: ClassVar[tuple[str, ...]] = ("margin",)

    def learn_many(self, rows: ArrayLike, features: Mapping[str, Array], margin: ArrayLike = 1.0, **kw: Any) -> Outcome:
        """Learn comparisons in order, all of them or none.

        Parameters
        ----------
        rows : (T, 4) or (T, 3)
            Row numbers of the two items of the near pair and the two of the far pair. A triplet has three: query,
            relevant item, irrelevant item. ``signed`` takes no triplets.
        features
            One matrix (n, d_i) for each modality, with all items. Memory maps are fine: only the rows that are named
            are read and cast.
        margin : scalar or (T,)
            By how much the distance D of the far pair should be larger. If the start is not given as arrays, D of
            random pairs is about 1 at first, and 0 in ``signed``.

        Returns
        -------
        An Outcome. Its ``scores`` (T,) are f of each comparison, which is positive if it is in the wrong order.

        Raises
        ------
        FeedbackError
            A row is out of range, an item or a margin is not finite, learning would overflow, or the features do not
            fit ``dims``. ``row`` is the index of the comparison, if one is the cause. Nothing was learned.
        StartError
            On the first call: no start can be computed from the features. Nothing was learned.
        ParameterError
            A keyword is unknown.
        """
        expect(not kw, "other arguments of learn_many", sorted(kw), "rows, features and margin, nothing else")
        count, *items = shape_of(rows)
        width = 3 if items == [3] and "triplet" in self.accepts else self.width
        return self._learn(rows, features, margins(margin, count), width=width)


def margins(margin: ArrayLike, count: int) -> Array:
    """The margin of each comparison, (count,); raises FeedbackError for the first that is not finite."""
    column = column_of("margin", margin, count, "a number", np.float64)
    bad = np.flatnonzero(~np.isfinite(column))
    if bad.size:
        message = f"comparison {bad[0]} has margin {column.flat[bad[0]]}, expected a finite number"
        raise FeedbackError(f"{message}; nothing was learned", reason="not_finite", row=int(bad[0]))
    # A new array, because numba would compile kernels again for a read-only one.
    return np.full(count, column)
