"""The sums of DCA over parts of a long log, made apart and added up in order (MATHS 12)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from omdml.engines.base import addresses_of
from omdml.engines.second_order.covariance import CovarianceEngine
from omdml.engines.second_order.moments import Moments
from omdml.engines.second_order.state import CONSTANT, SYMMETRIC
from omdml.errors import FeedbackError
from omdml.kernels.second_order.covariance import TILE, gather
from omdml.learners.dca import DCA
from omdml.learners.dca_parts import check_alike
from omdml.learners.shared.checks import check_rows, expect, tables
from omdml.learners.shared.triplets import weights
from omdml.metrics.base import check_features

Array = NDArray[Any]


class Sums(NamedTuple):
    """The sums of a part of a log, small enough to be sent: of symmetric matrices only the upper triangles.

    Parameters
    ----------
    version
        How many triplets there were.
    asked : (64,)
        Codes of the last queries among them.
    moments
        See :class:`omdml.engines.second_order.moments.Moments`; ``near``, ``far`` and ``middle`` are (d (d + 1) / 2,).
    """

    version: int
    asked: Array
    moments: dict[str, Array]


def summed(start: DCA, rows: ArrayLike, features: Mapping[str, Array], weight: ArrayLike = 1.0) -> Sums:
    """The sums of triplets (n, 3) of these weights, in order. ``start`` is left as it is.

    Equal triplets in an equal order give equal bytes, on processors of one kind.

    Raises FeedbackError for a triplet that cannot be learned (``row`` says which), and ParameterError for a start that
    has a ``memory`` or a parent, or has learned something.
    """
    check_start(start)
    engine: CovarianceEngine = copy.deepcopy(start)._started("summed")
    if len(np.atleast_1d(rows)):
        table, matrices, caller_rows = _checked_tables(start, rows, features)
        engine.add_unscored(table, weights(weight, table), matrices, caller_rows)
    moments = {name: getattr(engine.state, name) for name in Moments._fields}
    triangle = np.triu_indices(len(engine.state.near))
    return Sums(
        engine.version,
        engine.state.asked,
        {name: array[triangle] if name in SYMMETRIC else array for name, array in moments.items()},
    )


def unlearnable(start: DCA, rows: ArrayLike, features: Mapping[str, Array]) -> list[FeedbackError]:
    """The errors of the triplets (n, 3) whose numbers are not finite or too large; ``row`` says which each is about."""
    if not len(np.atleast_1d(rows)):
        return []
    engine: CovarianceEngine = start._started("unlearnable")
    table, matrices, caller_rows = _checked_tables(start, rows, features)
    items = np.zeros((3 * TILE, len(engine.state.mean)), engine.state.mean.dtype)
    addresses = addresses_of(matrices)
    errors, first = [], 0
    while first < len(table):
        tile = table[first : first + TILE]
        gathered = int(gather(tile, addresses, engine.shape, engine.state.mean, 0, items, engine.limit))
        first += gathered
        if gathered < len(tile):
            errors.append(engine._refusal(first, table[first], matrices, caller_rows[first]))
            first += 1
    return errors


def _checked_tables(start: DCA, rows: ArrayLike, features: Mapping[str, Array]) -> tuple[Array, Sequence[Array], Array]:
    """Row numbers and matrices in the form of :func:`tables`, and the row numbers as they were given."""
    checked = check_rows(rows, start.width, check_features(features, start.dims))
    table, matrices = tables(checked, features, list(start.dims), np.dtype(start.dtype))
    return np.ascontiguousarray(table), matrices, checked


class Adding:
    """Adds the sums of parts of a log, one part after another, and makes a learner of them.

    The order of the parts decides the last digits: for the same bytes, add the same parts in the same order. Nothing is
    scored, so Hedge weighs both experts alike, and there are no mistakes.

    Parameters
    ----------
    start
        What the sums were made from; left as it is.

    Examples
    --------
    >>> features = {"x": np.random.default_rng(0).normal(0, 1, (50, 4))}
    >>> rows = np.random.default_rng(1).permuted(np.tile(np.arange(50), (20, 1)), axis=1)[:, :3]
    >>> start = DCA(dims={"x": 4})
    >>> start.start(features)
    >>> adding = Adding(start)
    >>> for part in (rows[:9], rows[9:]):
    ...     adding.add(summed(start, part, features))
    >>> adding.learner().version
    20
    """

    def __init__(self, start: DCA) -> None:
        check_start(start)
        self._learner = copy.deepcopy(start)
        self._engine: CovarianceEngine = self._learner._started("Adding")
        self._triangle = np.triu_indices(len(self._engine.state.near))

    @property
    def version(self) -> int:
        """How many triplets were added so far."""
        return self._engine.version

    def add(self, sums: Sums) -> None:
        """Add the sums of the next part."""
        moments = dict(sums.moments)
        for name in SYMMETRIC:
            matrix = np.zeros_like(self._engine.state.near)
            matrix[self._triangle] = moments[name]
            moments[name] = matrix
        self._engine.add_sums(Moments(**moments), sums.version, sums.asked)

    def learner(self) -> DCA:
        """A copy of the learner with all sums that were added so far."""
        learner = copy.deepcopy(self._learner)
        learner._started("Adding").refresh()
        return learner


def merged(start: DCA, parts: Iterable[DCA]) -> DCA:
    """One learner that has learned what all parts have. Sums and counts are added in the order of the parts.

    The same parts in the same order make the same bytes. Each part scored its triplets by what it alone had learned, so
    ``mistakes`` and Hedge's losses are the sums of all parts (:func:`omdml.learners.dca_parts.merge`).

    Parameters
    ----------
    start
        What every part began with; left as it is.
    parts
        They may come from a generator, because none is kept.

    Raises
    ------
    ParameterError
        A part has other parameters, or began from other items; or the start has a ``memory`` or a parent.

    Examples
    --------
    >>> features = {"x": np.random.default_rng(0).normal(0, 1, (50, 4))}
    >>> start = DCA(dims={"x": 4})
    >>> start.start(features)
    >>> one, other = copy.deepcopy(start), copy.deepcopy(start)
    >>> _ = one.learn_many([[0, 1, 2], [3, 4, 5]], features), other.learn_many([[6, 7, 8]], features)
    >>> merged(start, [one, other]).version
    3
    """
    check_start(start)
    total = copy.deepcopy(start)
    engine: CovarianceEngine = total._started("merged")
    for part in parts:
        check_alike(start, part)
        engine.add_all(part._started("merged"))
    if engine.version:
        engine.refresh()
    return total


def emptied(learner: DCA) -> DCA:
    """The learner as it was at its start: with the same coordinates, and nothing learned."""
    state = learner._started("emptied").state
    start = copy.copy(learner)
    start._engine = learner._begin({name: getattr(state, name) for name in CONSTANT})
    start._newest = None
    return start


def check_start(start: DCA) -> None:
    """Raise ParameterError unless the sums of parts of a log, learned from this start, add up to those of the log."""
    expect(isinstance(start, DCA), "start", type(start).__name__, "a learner of class DCA: only its state is a sum")
    expect(not start.memory, "memory", start.memory, "0: what fades with each event cannot be summed in parts")
    expect(start.parent is None, "parent", "a parent", "none: what a parent counts for is learned event by event")
    expect(start.version == 0, "start", f"version {start.version}", "a learner at its start, of version 0")
