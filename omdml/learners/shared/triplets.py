"""Learners of triplets: an item should be closer to a query than another item is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from omdml.learners.shared.base import Array, Learner, Outcome
from omdml.learners.shared.checks import expect


class TripletLearner(Learner):
    """Base of learners that take triplets and nothing else."""

    accepts: ClassVar[frozenset[str]] = frozenset({"triplet"})
    width: ClassVar[int] = 3

    def learn_many(self, rows: ArrayLike, features: Mapping[str, Array], **kw: Any) -> Outcome:
        """Learn triplets in order, all of them or none.

        Parameters
        ----------
        rows : (T, 3)
            Row numbers of query, relevant item, irrelevant item.
        features
            One matrix (n, d_i) for each modality, with all items. Memory maps are fine: only the rows that are named
            are read and cast.

        Raises
        ------
        FeedbackError
            A row out of range, or with values that are not finite (``row`` is the index of the triplet); features that
            do not fit. The state is as before.
        StartError
            On the first call: the features do not suffice for the start.
        """
        expect(not kw, "learn_many", sorted(kw), "triplets and features, nothing else")
        return self._learn(rows, features)
