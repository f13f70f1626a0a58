"""What every engine is: state as named arrays, comparisons learned in order, all of them or none."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CorruptError, FeedbackError
from omdml.kernels.counts import FILLED, MISTAKES, UPDATES, VERSION

Array = NDArray[Any]
NEVER_CHANGED = ("names", "rule", "shape")
# Events between flushes. It is part of the arithmetic, so changing it changes the bytes.
BLOCK = 16
# The most events that can be counted.
MOST = 2**53


class Engine(ABC):
    """Common ground of all engines.

    Parameters
    ----------
    names
        Modalities, in the order of their tables.
    state
        Every array that learning changes, ``counts`` (4,) among them. Kernels change them in place.
    """

    # Fields that a block only grows, or changes when it closes.
    at_close: ClassVar[frozenset[str]] = frozenset()
    # What a user can do if numbers overflow.
    remedy: ClassVar[str] = "scale the features"
    block: int = BLOCK

    def __init__(self, names: Sequence[str], state: Any) -> None:
        self.names = list(names)
        self.state: Any = state

    @abstractmethod
    def _walk(self, rows: Array, addresses: Array, columns: Sequence[Array], scores: Array) -> int:
        """Learn comparisons in order, writing f of each to ``scores``; T, or the index of the first that overflows."""

    def learn(self, rows: Array, tables: Sequence[Array], *columns: Array, known: Array | None = None) -> Array:
        """Learn comparisons in order, all of them or none.

        Parameters
        ----------
        rows : (T, w)
            Row numbers of each comparison's items, int64, C-contiguous, in range.
        tables
            The modalities' matrices, C-contiguous, of the engine's type.
        columns
            What else the comparisons bring: (T,) each.
        known : (T, w)
            The row numbers as whoever gave them knows them, where ``tables`` have others.

        Returns
        -------
        f of each comparison before it was learned: (T,); f > 0 is a mistake.

        Raises
        ------
        FeedbackError
            A comparison whose numbers are not finite; ``row`` says which.
        """
        addresses = np.array([table.__array_interface__["data"][0] for table in tables], np.uint64)
        each = self._each(rows, columns)
        scores = np.empty(len(each))
        kept = self._keep(len(each))
        done = -1
        try:
            done = self._walk(rows, addresses, columns, scores)
        finally:
            # whatever stopped it half-way, a signal or a lack of memory too: all of them are learned, or none
            if done < len(each):
                for part, before in kept:
                    part[...] = before
        if done < len(each):
            given = each if known is None else self._each(known, columns)
            raise self._refusal(done, each[done], tables, given[done])
        return scores

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """An engine in the same state that learns by itself: what generic copying makes, in a third of the time."""
        twin = type(self).__new__(type(self))
        for name, part in vars(self).items():
            setattr(twin, name, part if name in NEVER_CHANGED else copied(part, memo))
        return twin

    def _each(self, rows: Array, columns: Sequence[Array]) -> Sequence[Array]:
        """The rows of each comparison."""
        return rows  # type: ignore[return-value]

    def _keep(self, events: int) -> list[tuple[Array, Array]]:
        """What undoes this many events: parts of the state, each with a copy. Arrays that a block only grows are copied
        only if it closes."""
        closes = self.state.counts[FILLED] + events >= self.block
        names = [name for name in self.state._fields if closes or name not in self.at_close]
        return with_copies(getattr(self.state, name) for name in names)

    def _refusal(self, index: int, row: Array, tables: Sequence[Array], known: Array) -> FeedbackError:
        for name, table in zip(self.names, tables, strict=True):
            for place, item in enumerate(row):
                if not np.isfinite(table[item]).all():
                    message = f"comparison {index}: item in row {known[place]} of modality {name!r}"
                    message += " holds values not finite; nothing was learned"
                    return FeedbackError(message, reason="not_finite", row=index)
        message = f"comparison {index} (rows {known.tolist()}): learning it would overflow {tables[0].dtype}"
        return FeedbackError(f"{message}; nothing was learned: {self.remedy}", reason="diverged", row=index)

    version = property(lambda self: int(self.state.counts[VERSION]))
    mistakes = property(lambda self: int(self.state.counts[MISTAKES]))
    updates = property(lambda self: int(self.state.counts[UPDATES]))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays it holds, scratch included."""
        held = {id(one): one for part in vars(self).values() for one in (part if isinstance(part, tuple) else (part,))}
        return sum(array.nbytes for array in held.values() if isinstance(array, np.ndarray))

    def to_tensors(self) -> dict[str, Array]:
        """The state."""
        return {name: getattr(self.state, name) for name in self.state._fields}

    def restore(self, tensors: Mapping[str, Array]) -> None:
        """Take on the state in these tensors; raises CorruptError if they are not of this engine's shape."""
        try:
            self._fill(tensors)
        except (KeyError, ValueError) as error:
            raise CorruptError(f"state does not fit the learner it names: {error}") from error

    def _fill(self, tensors: Mapping[str, Array]) -> None:
        """Raises KeyError or ValueError."""
        for name in self.state._fields:
            fill(getattr(self.state, name), tensors[name], name)
        self._filled()

    def _filled(self) -> int:
        """Events in the open block; raises ValueError for counts that no learning leads to: kernels trust them."""
        filled, version, *fewer = self.state.counts.tolist()
        if not (0 <= filled < self.block and filled <= version and min(fewer) >= 0 and max(fewer) <= version <= MOST):
            raise ValueError(f"counts are {self.state.counts.tolist()}, the first expected below {self.block}")
        return int(filled)


def copied(part: Any, memo: dict[int, Any]) -> Any:
    """A deep copy; an array that is there twice is copied once."""
    if isinstance(part, np.ndarray):
        if id(part) not in memo:
            memo[id(part)] = part.copy()
        return memo[id(part)]
    if isinstance(part, tuple):
        each = [copied(one, memo) for one in part]
        return type(part)(*each) if hasattr(part, "_fields") else tuple(each)
    return copy.deepcopy(part, memo)


def with_copies(parts: Iterable[Array]) -> list[tuple[Array, Array]]:
    """Each of these arrays, or views, and what it holds now."""
    return [(part, part.copy()) for part in parts]


def fill(target: Array, source: Array, name: str) -> None:
    """Copy, where shape and type agree; raises ValueError."""
    if source.shape != target.shape or source.dtype != target.dtype:
        raise ValueError(f"{name} is {source.dtype} {source.shape}, expected {target.dtype} {target.shape}")
    target[...] = source


def starts(sizes: Array) -> Array:
    """Where each of these parts begins in one flat buffer."""
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)


def near_and_far(rows: Array) -> Array:
    """Near pair and far pair (T, 4) of triplets (T, 3), or of quadruplets, which are that already."""
    return np.ascontiguousarray(rows[:, (0, 1, 0, 2)]) if rows.shape[1] == 3 else rows
