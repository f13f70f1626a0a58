"""The engine of OASIS: one unconstrained matrix for each modality, in the blocked exact form (MATHS 2.1, 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from omdml.engines.base import BLOCK, Array, Engine, fill, starts
from omdml.kernels import bilinear as kernel
from omdml.kernels.shared.counts import FILLED


class BilinearEngine(Engine):
    """Matrices W_i (d_i, d_i) of ``S_i(p, q) = p' W_i q``, each learned from its own loss.

    Parameters
    ----------
    start
        The matrices to begin with, one for each modality, all of one floating type. Copied.
    C
        Largest rate of a step.
    """

    at_close = frozenset({"W", "Q", "U"})
    grown = frozenset({"Q", "U"})

    def __init__(self, start: Mapping[str, Array], C: float) -> None:
        self.C = C
        n = np.array([len(matrix) for matrix in start.values()], np.int64)
        dtype = next(iter(start.values())).dtype
        self.shape = kernel.Shape(n, starts(n * n), starts(BLOCK * n), BLOCK)
        Q, U, work_Q, work_U, WU = (np.zeros(BLOCK * n.sum(), dtype) for _ in range(5))
        self.state: kernel.State
        state = kernel.State(
            W=np.concatenate([matrix.ravel() for matrix in start.values()]),
            Q=Q,
            U=U,
            used=np.zeros(len(n), np.int64),
            counts=np.zeros(4, np.int64),
        )
        super().__init__(list(start), state)
        self.work = kernel.Work(work_Q, work_U, WU, s=np.zeros(len(n)), minus=np.full(BLOCK, -1, dtype))

    def _walk(self, rows: Array, addresses: Array, columns: Sequence[Array], scores: Array) -> int:
        return int(kernel.walk(rows, addresses, self.shape, self.state, self.C, self.work, scores))

    def matrices(self) -> list[Array]:
        """W_i (d_i, d_i) of all comparisons learned so far, open block included."""
        flat = self.state.W.copy()
        kernel.flush_all(self.shape, self.state, flat, self.work.minus)
        parts = np.split(flat, self.shape.w_starts[1:])
        return [part.reshape(n, n) for part, n in zip(parts, self.shape.n, strict=True)]

    def to_tensors(self) -> dict[str, Array]:
        """The state as arrays by name; of the open block, only the rows that count."""
        tensors = super().to_tensors()
        for i, name in enumerate(self.names):
            tensors[f"{name}/Q"], tensors[f"{name}/U"] = self._rows(i)
        return tensors

    def _rows(self, i: int) -> tuple[Array, Array]:
        used, n, start = self.state.used[i], self.shape.n[i], self.shape.x_starts[i]
        Q, U = (flat[start : start + used * n].reshape(used, n) for flat in (self.state.Q, self.state.U))
        return Q, U

    def _fill(self, tensors: Mapping[str, Array]) -> None:
        super()._fill(tensors)
        filled, used = self.state.counts[FILLED], self.state.used
        if not 0 <= used.min() <= used.max() <= filled:
            raise ValueError(f"used has {used.tolist()} rows of {filled} comparisons, expected at most 1 for each")
        for i, name in enumerate(self.names):
            for part, target in zip("QU", self._rows(i), strict=True):
                fill(target, tensors[f"{name}/{part}"], f"{name}/{part}")
