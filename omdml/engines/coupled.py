"""The engines of CP-mtML, stML, utML and mtLMCA: projections of tasks, in the blocked exact form (MATHS 2.1, 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from omdml.engines.base import BLOCK, Array, Engine, fill, starts
from omdml.kernels import coupled, lmca
from omdml.kernels.shared.counts import FILLED


class CoupledEngine(Engine):
    """Parts L_m (r, d), each shared by tasks or owned by one, on all modalities side by side.

    Parameters
    ----------
    dims
        Dimension of each modality, in the order in which they lie side by side.
    start
        (M, r, d) The parts to begin with. Copied.
    parts
        (T, k) Numbers of each task's parts. No part may appear in two columns.
    rule
        Hyperparameters.
    """

    grown = frozenset({"X", "P", "c", "task"})
    at_close = frozenset({"L"}) | grown
    remedy = "scale the features, or with step='ogd' take a lower eta"

    def __init__(self, dims: Mapping[str, int], start: Array, parts: Array, rule: coupled.Rule) -> None:
        self.rule = rule
        n = np.array(list(dims.values()), np.int64)
        self.shape = coupled.Shape(n, starts(n), parts)
        super().__init__(list(dims), coupled.State(**self._fields(start)))
        self.work: Any = coupled.Work(**self._buffers(start), u=np.zeros(parts.shape[1]))

    def _fields(self, start: Array) -> dict[str, Array]:
        """Arrays of the state before the first pair, by name."""
        (count, r, d), (tasks, k), dtype = start.shape, self.shape.parts.shape, start.dtype
        return {
            "L": start.copy(),
            "b": np.ones(tasks),
            "X": np.zeros((BLOCK, d), dtype),
            "P": np.zeros((BLOCK, k, r), dtype),
            "c": np.zeros((BLOCK, k), dtype),
            "task": np.zeros(BLOCK, np.int64),
            "used": np.zeros(1, np.int64),
            "seen": np.zeros(count, np.int64),
            "counts": np.zeros(4, np.int64),
        }

    def _buffers(self, start: Array) -> dict[str, Array]:
        """Arrays of the working space, by name, as far as ``LmcaEngine`` has them, too."""
        (_, r, d), k, dtype = start.shape, self.shape.parts.shape[1], start.dtype
        return {
            "D": np.zeros((BLOCK, d), dtype),
            "P": np.zeros((BLOCK, k, r), dtype),
            "X": np.zeros((BLOCK + 2, d), dtype),
            "Q": np.zeros((BLOCK + 2, r), dtype),
            "part": np.zeros(BLOCK, np.int64),
            "grams": np.zeros((BLOCK, 1), dtype),
        }

    def _walk(self, rows: Array, addresses: Array, columns: Sequence[Array], scores: Array) -> int:
        return int(coupled.walk(rows, *columns, addresses, self.shape, self.state, self.rule, self.work, scores))

    @property
    def thresholds(self) -> Array:
        """b (T,): the threshold of each task."""
        return self.state.b.copy()

    def parts(self) -> list[Array]:
        """L_m (r, d) of all pairs learned so far, open block included."""
        L = self.state.L.copy()
        coupled.flush_all(self.shape, self.state, L, self.work)
        return list(L)

    def to_tensors(self) -> dict[str, Array]:
        """The state as arrays by name; of the open block, only the rows that count."""
        used = self.state.used[0]
        return super().to_tensors() | {name: getattr(self.state, name)[:used] for name in self.grown}

    def _fill(self, tensors: Mapping[str, Array]) -> None:
        super()._fill(tensors)
        filled, used = self.state.counts[FILLED], self.state.used[0]
        if not 0 <= used <= filled:
            raise ValueError(f"used has {used} rows of {filled} comparisons, expected at most 1 for each")
        for name in sorted(self.grown):
            fill(getattr(self.state, name)[:used], tensors[name], name)
        if not np.isin(self.state.task[:used], np.arange(len(self.shape.parts))).all():
            count, numbers = len(self.shape.parts), self.state.task[:used].tolist()
            raise ValueError(f"task has the numbers {numbers}, expected 0 to {count - 1}")


class LmcaEngine(CoupledEngine):
    """One L (r, d) that T tasks share, and R_t (r, r) of each: ``L_t = R_t' L``.

    Parameters
    ----------
    dims
        Dimension of each modality, in the order in which they lie side by side.
    start
        (1, r, d) L to begin with. Copied.
    R
        (T, r, r) R_t to begin with. Copied.
    rule
        Hyperparameters.
    """

    def __init__(self, dims: Mapping[str, int], start: Array, R: Array, rule: coupled.Rule) -> None:
        super().__init__(dims, start, np.zeros((len(R), 1), np.int64), rule)
        self.state = lmca.State(**self.state._asdict(), R=R.copy())
        self.work = lmca.Work(**self._buffers(start), ends=np.zeros((3, R.shape[1]), R.dtype))

    def _walk(self, rows: Array, addresses: Array, columns: Sequence[Array], scores: Array) -> int:
        return int(lmca.walk(rows, *columns, addresses, self.shape, self.state, self.rule, self.work, scores))

    def parts(self) -> list[Array]:
        """L, then R_t of each task, of all pairs learned so far, open block included."""
        return [*super().parts(), *self.state.R.copy()]
