"""Learners of class DCA from parts of a log: of near pairs alone, and of two streams that are merged (MATHS 12)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from omdml.errors import FeedbackError, ParameterError
from omdml.initial import AXES
from omdml.learners.dca import DCA
from omdml.learners.shared.base import Array
from omdml.learners.shared.checks import check_rows, expect, tables
from omdml.metrics.base import check_features, dims_of


def start_from_pairs(pairs: ArrayLike, features: Mapping[str, Array], **hyperparameters: Any) -> DCA:
    """A learner that has learned these near pairs, as if each had been the query and relevant item of a triplet.

    This is the batch form of DCA: DCA learns nothing but sums, which can be added up at once. No pair is scored, so
    there are no mistakes. There are no far pairs either, so the expert *far* equals *items* until triplets bring far
    pairs. Parts of a long log can be learned separately, from the same features, and combined by :func:`merge`.

    Parameters
    ----------
    pairs : (n, 2)
        Row numbers of two similar items, n >= 1; oldest first, which matters only with a ``memory``.
    features
        One matrix (m, d_i) for each modality: the items that the row numbers mean, and that the start is made from.
    hyperparameters
        Those of :class:`DCA`, except ``dims``.

    Raises
    ------
    FeedbackError
        There is no pair, a row is out of range, or values are not finite.
    StartError
        No start can be computed from the features.
    ParameterError
        A hyperparameter is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> features = {"x": np.random.default_rng(0).normal(0, 1, (50, 4))}
    >>> pairs = np.arange(40).reshape(20, 2)
    >>> merge(start_from_pairs(pairs[:9], features), start_from_pairs(pairs[9:], features)).version
    20
    """
    dims = dims_of(features)
    learner = DCA(dims, **hyperparameters)
    checked = check_rows(pairs, 2, check_features(features, dims))
    if not len(checked):
        raise FeedbackError("start_from_pairs got no pair, expected at least one")
    learner.start(features)
    rows, matrices = tables(checked, features, list(dims), np.dtype(learner.dtype))
    learner._started("start_from_pairs").add_pairs(rows, matrices, checked)
    return learner


def merge(left: DCA, right: DCA) -> DCA:
    """Combine the learners of two streams into one that has learned both, exactly up to rounding.

    All sums and counts are added. With a ``memory``, the pairs of both fade from now on as if they had come at the same
    time. Each learner scored its triplets with its own knowledge only, so ``mistakes`` and Hedge's losses are the sums
    of both. Anything that both learned before they were separated would count twice, so both must start from nothing.

    On two machines the last digits of principal directions may differ. In that case compute one start and give it to
    both (``init``).

    Raises NotStarted if one of them has not started, and ParameterError if parameters differ, or if the two did not
    start from the same items or have different parents.
    """
    check_alike(left, right)
    both = copy.deepcopy(left)
    both._newest = None
    both._started("merge").absorb(right._started("merge"))
    return both


def check_alike(left: DCA, right: DCA) -> None:
    """Raise ParameterError if sums of these two learners are not sums of the same things."""
    from omdml.engines.second_order.parent import same_parent

    for learner in (left, right):
        expect(isinstance(learner, DCA), "merge", type(learner).__name__, "learners of class DCA")
    ours, theirs = (
        learner._get_params() | {"init": None, "dims": list(learner.dims.items())} for learner in (left, right)
    )
    expect(ours == theirs, "merge", theirs, f"learners with the same parameters, {ours}")
    ours_engine, theirs_engine = left._started("merge"), right._started("merge")
    states = ours_engine.state, theirs_engine.state
    if any(not np.array_equal(*(getattr(state, name) for state in states)) for name in AXES):
        raise ParameterError("merge: the two began from different items; start both from the same features")
    if not same_parent(ours_engine.parent, theirs_engine.parent):
        raise ParameterError("merge: the two have different parents; begin both from the same metric")
