"""What all engines share: state as named arrays, and comparisons that are learned in order, all of them or none."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CorruptError, FeedbackError
from omdml.kernels.shared.counts import FILLED, MISTAKES, UPDATES, VERSION

Array = NDArray[Any]
# Comparisons of a block. This is part of the arithmetic: another number gives other bytes.
BLOCK = 16
# The most comparisons that a model can learn: float64 holds every whole number up to this one.
MOST_COMPARISONS = 2**53
# How far rounding may move a sum over all comparisons of a model, as a share of the sum.
ROUNDING = 1e-6


class Engine(ABC):
    """Base of all engines.

    Parameters
    ----------
    names
        Modalities, in the order of their tables.
    state
        NamedTuple of all arrays that learning changes, ``counts`` (4,) among them. Kernels change them in place.
    """

    # Arrays that change only when the block closes, apart from rows that an open block appends to them.
    at_close: ClassVar[frozenset[str]] = frozenset()
    # Attributes that copies share: they never change, or keep nothing from one call of ``learn`` to the next.
    shared: ClassVar[frozenset[str]] = frozenset({"names", "rule", "shape"})
    # Arrays with the rows of the open block. Only their used rows are saved.
    grown: ClassVar[frozenset[str]] = frozenset()
    # What a user can do if numbers overflow.
    remedy: ClassVar[str] = "scale the features"
    block: int = BLOCK

    def __init__(self, names: Sequence[str], state: Any) -> None:
        self.names = list(names)
        self.state: Any = state

    @abstractmethod
    def _walk(self, rows: Array, addresses: Array, columns: Sequence[Array], scores: Array) -> int:
        """Learn comparisons in order, and write f of each to ``scores``.

        Returns T, or the index of the first comparison whose numbers overflow.
        """

    def learn(self, rows: Array, tables: Sequence[Array], *columns: Array, caller_rows: Array | None = None) -> Array:
        """Learn comparisons in order, all of them or none.

        Parameters
        ----------
        rows : (T, w)
            Row numbers of each comparison's items, int64, C-contiguous, in range.
        tables
            The modalities' matrices, C-contiguous, of the engine's type.
        columns
            Further values of each comparison, such as its margin or task: (T,) each.
        caller_rows : (T, w)
            The row numbers that the caller gave, for error messages. None: those in ``rows``.

        Returns
        -------
        f of each comparison (T,), computed before it was learned; f > 0 is a mistake.

        Raises
        ------
        FeedbackError
            A comparison has values that are not finite, or learning it would overflow. ``row`` is its index, and the
            state is as before the call.
        """
        addresses = addresses_of(tables)
        comparisons = self._rows_by_comparison(rows, columns)
        scores = np.empty(len(comparisons))
        copies = self._copies_for_undo(len(comparisons))
        learned = -1
        try:
            learned = self._walk(rows, addresses, columns, scores)
        finally:
            # Whatever stopped the walk half-way, even a signal or a lack of memory: undo what it did.
            if learned < len(comparisons):
                self._undo(copies)
        if learned < len(comparisons):
            as_given = comparisons if caller_rows is None else self._rows_by_comparison(caller_rows, columns)
            raise self._refusal(learned, comparisons[learned], tables, as_given[learned])
        return scores

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """An independent engine in the same state. This takes a third of the time of a generic deep copy."""
        twin = type(self).__new__(type(self))
        for name, part in vars(self).items():
            setattr(twin, name, part if name in self.shared else copied(part, memo))
        return twin

    def _rows_by_comparison(self, rows: Array, columns: Sequence[Array]) -> Sequence[Array]:
        """The row numbers of each comparison."""
        return rows  # type: ignore[return-value]

    def _copies_for_undo(self, count: int) -> list[tuple[Array, Array]]:
        """Arrays of the state with a copy of each, from which learning this many comparisons can be undone.

        Arrays to which a block only appends are copied only if the block will close: if it does not, restoring
        ``counts`` and ``used`` is enough to drop the appended rows.
        """
        closes = self.state.counts[FILLED] + count >= self.block
        names = [name for name in self.state._fields if closes or name not in self.at_close]
        return with_copies(getattr(self.state, name) for name in names)

    def _undo(self, copies: list[tuple[Array, Array]]) -> None:
        """Put back what :meth:`_copies_for_undo` copied. Subclasses also drop what they derived from the state."""
        for array, saved in copies:
            array[...] = saved

    def _refusal(self, index: int, rows: Array, tables: Sequence[Array], caller_rows: Array) -> FeedbackError:
        """The error for a comparison that cannot be learned: of items in these ``rows`` (w,) of ``tables``."""
        for name, table in zip(self.names, tables, strict=True):
            for row, caller_row in zip(rows, caller_rows, strict=True):
                if not np.isfinite(table[row]).all():
                    message = f"comparison {index}: item in row {caller_row} of modality {name!r}"
                    message += f" holds values that are not finite in {table.dtype}; nothing was learned"
                    return FeedbackError(message, reason="not_finite", row=index)
        message = f"comparison {index} (rows {caller_rows.tolist()}): learning it would overflow {tables[0].dtype}"
        return FeedbackError(f"{message}; nothing was learned: {self.remedy}", reason="diverged", row=index)

    version = property(lambda self: int(self.state.counts[VERSION]))
    mistakes = property(lambda self: int(self.state.counts[MISTAKES]))
    updates = property(lambda self: int(self.state.counts[UPDATES]))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, working space included unless it is shared."""
        attributes = [value for name, value in vars(self).items() if name not in self.shared]
        tuples = [value if isinstance(value, tuple) else (value,) for value in attributes]
        arrays = {id(part): part for parts in tuples for part in parts if isinstance(part, np.ndarray)}
        return sum(array.nbytes for array in arrays.values())

    def to_tensors(self) -> dict[str, Array]:
        """The state as arrays by name. Subclasses add the rows of the open block that count."""
        return {name: getattr(self.state, name) for name in self.state._fields if name not in self.grown}

    def restore(self, tensors: Mapping[str, Array]) -> None:
        """Replace the state by these tensors. Raises CorruptError if they do not fit this engine."""
        try:
            self._fill(tensors)
        except (KeyError, ValueError) as error:
            raise CorruptError(f"state does not fit the learner it names: {error}") from error

    def _fill(self, tensors: Mapping[str, Array]) -> None:
        """Copy these tensors into the state; raises KeyError or ValueError. Subclasses add the open block's rows."""
        for name in self.state._fields:
            if name not in self.grown:
                fill(getattr(self.state, name), tensors[name], name)
        self._filled()

    def _filled(self) -> int:
        """Number of comparisons in the open block. Raises ValueError for impossible counts: kernels rely on them."""
        filled, version, *others = counts = self.state.counts.tolist()
        possible = 0 <= filled < self.block and filled <= version and min(others) >= 0
        if not (possible and max(others) <= version <= MOST_COMPARISONS):
            expected = f"comparisons in the open block (below {self.block}), all comparisons, mistakes, updates"
            raise ValueError(f"counts are {counts}, expected {expected}, none above all comparisons")
        return int(filled)


class HedgeEngine(Engine):
    """Base of engines that weigh their modalities by Hedge.

    Their state has ``log_weights`` (m,) and ``losses`` (m + 1,), which :func:`omdml.kernels.shared.hedge.discount`
    describes.
    """

    @property
    def weights(self) -> Array:
        """theta (m,): the weight of each modality, 1 in total."""
        shares = np.exp(self.state.log_weights - self.state.log_weights.max())
        return shares / shares.sum()

    def weighs_by(self, log_beta: float, keep: float) -> bool:
        """Whether the discount and the factor of fading were these for all losses that have not faded away.

        The weights are a product of discounts. So log-weights are in proportion to losses, unless the discount or the
        factor was another one for some of the losses.
        """
        expected = keep * log_beta * self.state.losses[:-1]
        return bool(np.allclose(self.state.log_weights, expected, rtol=ROUNDING, atol=0.0))

    hedge_loss = property(lambda self: float(self.state.losses[-1]))
    fewest_mistakes = property(lambda self: float(self.state.losses[:-1].min()))


def addresses_of(tables: Sequence[Array]) -> Array:
    """The address in memory of the first number of each matrix (m,), as kernels take it."""
    return np.array([table.__array_interface__["data"][0] for table in tables], np.uint64)


def copied(part: Any, memo: dict[int, Any]) -> Any:
    """A deep copy of a part of an engine. An array that occurs twice is copied once."""
    if isinstance(part, np.ndarray):
        if id(part) not in memo:
            memo[id(part)] = part.copy()
        return memo[id(part)]
    if isinstance(part, tuple):
        parts = [copied(element, memo) for element in part]
        return type(part)(*parts) if hasattr(part, "_fields") else tuple(parts)
    return copy.deepcopy(part, memo)


def with_copies(arrays: Iterable[Array]) -> list[tuple[Array, Array]]:
    """Pair each of these arrays with a copy of it."""
    return [(array, array.copy()) for array in arrays]


def fill(target: Array, source: Array, name: str) -> None:
    """Copy ``source`` into ``target``; raises ValueError if shape or type differ."""
    if source.shape != target.shape or source.dtype != target.dtype:
        raise ValueError(f"{name} is {source.dtype} {source.shape}, expected {target.dtype} {target.shape}")
    target[...] = source


def starts(sizes: Array) -> Array:
    """The start (n,) of each part in a flat buffer that holds parts of these sizes (n,)."""
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)


def near_and_far(rows: Array) -> Array:
    """Near pair and far pair (T, 4) of triplets (T, 3), or of quadruplets (T, 4), which are returned as they are."""
    return np.ascontiguousarray(rows[:, (0, 1, 0, 2)]) if rows.shape[1] == 3 else rows
