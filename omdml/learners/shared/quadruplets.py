"""Learners of quadruplets: this pair should be closer than that one, by this margin. A triplet is one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from omdml.errors import FeedbackError
from omdml.learners.shared.base import Array, Learner, Outcome
from omdml.learners.shared.checks import expect


class QuadrupletLearner(Learner):
    """Common ground of these learners."""

    accepts: ClassVar[frozenset[str]] = frozenset({"triplet", "quadruplet"})
    width: ClassVar[int] = 4
    columns: ClassVar[tuple[str, ...]] = ("margin",)

    def learn_many(self, rows: ArrayLike, features: Mapping[str, Array], margin: ArrayLike = 1.0, **kw: Any) -> Outcome:
        """Learn comparisons in order, all of them or none.

        Parameters
        ----------
        rows : (T, 4) or (T, 3)
            Row numbers of near pair and far pair; or of query, relevant, irrelevant.
        features
            Matrices (n, d_i) a modality, whole: memory maps will do, only touched rows are read and cast.
        margin : scalar or (T,)
            By how much the far pair should be further apart.

        Raises
        ------
        FeedbackError
            A row out of range or with values that are not finite, a margin that is not (``row`` says which), features
            that do not fit. The state is as before.
        StartError
            On the first call, features too few for the start.
        """
        expect(not kw, "learn_many", sorted(kw), "rows, features and margin, nothing else")
        try:
            shape = np.shape(rows)
        except ValueError:
            # The rows are ragged. What checks them says so.
            shape = ()
        width = 3 if shape[1:] == (3,) and "triplet" in self.accepts else self.width
        return self._learn(rows, features, margins(margin, shape[0] if shape else 0), width=width)


def margins(margin: ArrayLike, count: int) -> Array:
    """One margin a comparison, (count,); raises FeedbackError naming the first that is not finite."""
    column = np.asarray(margin, np.float64)
    if column.shape not in ((), (count,)):
        raise FeedbackError(f"margin of shape {column.shape}, expected a number or ({count},)")
    bad = np.flatnonzero(~np.isfinite(column))
    if bad.size:
        message = f"comparison {bad[0]} has margin {column.flat[bad[0]]}, expected a finite number"
        raise FeedbackError(f"{message}; nothing was learned", reason="not_finite", row=int(bad[0]))
    # An array of its own: kernels are compiled once more for one that cannot be written to.
    return np.full(count, column)
