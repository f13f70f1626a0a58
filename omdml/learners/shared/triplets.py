"""Learners of triplets: an item should be closer to a query than another item is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from omdml.comparisons import LEAST_WEIGHT
from omdml.errors import FeedbackError
from omdml.learners.shared.base import Array, Learner, Outcome
from omdml.learners.shared.checks import column_of, expect, shape_of


class TripletLearner(Learner):
    """Base of learners that take triplets and nothing else."""

    accepts: ClassVar[frozenset[str]] = frozenset({"triplet"})
    width: ClassVar[int] = 3

    def learn_many(self, rows: ArrayLike, features: Mapping[str, Array], **kw: Any) -> Outcome:
        """Learn triplets in order, all of them or none.

        Parameters
        ----------
        rows : (T, 3)
            Row numbers of query, relevant item and irrelevant item.
        features
            One matrix (n, d_i) for each modality, with all items. Memory maps are fine: only the rows that are named
            are read and cast.

        Returns
        -------
        An Outcome. Its ``scores`` (T,) are f of each triplet, which is positive if the triplet is in the wrong order.

        Raises
        ------
        FeedbackError
            A row is out of range, an item has values that are not finite, learning would overflow, or the features do
            not fit ``dims``. ``row`` is the index of the triplet, if one is the cause. Nothing was learned.
        StartError
            On the first call: no start can be computed from the features. Nothing was learned.
        ParameterError
            A keyword is given.
        """
        expect(not kw, "other arguments of learn_many", sorted(kw), "triplets and features, nothing else")
        return self._learn(rows, features)


def weights(weight: ArrayLike, rows: ArrayLike) -> Array:
    """What each of the comparisons ``rows`` (T, w) counts for, (T,); raises FeedbackError for a weight out of range."""
    count = shape_of(rows)[0]
    values = column_of("weight", weight, count, "a number", np.float64)
    # A new array, because numba would compile kernels again for a read-only one.
    column = np.full(count, values)
    # If all have one weight, only that is checked: min and max of numpy take as long as a tenth of learning a triplet.
    one_for_all = count and not values.ndim
    least, most = (column[0], column[0]) if one_for_all else (column.min(initial=1), column.max(initial=1))
    if not LEAST_WEIGHT <= least <= most <= 1:
        bad = int(np.flatnonzero(~((column >= LEAST_WEIGHT) & (column <= 1)))[0])
        message = f"comparison {bad} has weight {column[bad]}, expected {LEAST_WEIGHT} to 1"
        raise FeedbackError(f"{message}; nothing was learned", row=bad)
    return column
