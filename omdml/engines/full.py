"""The full-matrix engine from Python's side: matrices kept positive semi-definite, lazily and exactly (MATHS 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from omdml.blas import one_blas_thread
from omdml.engines.base import BLOCK, Array, Engine, fill, near_and_far, starts
from omdml.kernels import full as kernel
from omdml.kernels.counts import FILLED

GROWN = ("X", "c")  # saved as far as they count


class FullEngine(Engine):
    """Matrices M_i (d_i, d_i), positive semi-definite after every update.

    Parameters
    ----------
    start
        The matrices to begin with, one a modality: symmetric, positive semi-definite, of one floating type. Copied.
    rule
        Hyperparameters.
    k
        Eigenvectors that the Fantope presses down, at most d_i of each modality.
    """

    at_close = frozenset({"M", "X", "c"})

    def __init__(self, start: Mapping[str, Array], rule: kernel.Rule, k: int = 0) -> None:
        self.rule = rule
        dense = rule.mu > 0 or rule.trace > 0
        self.block = 1 if dense else BLOCK
        n = np.array([len(matrix) for matrix in start.values()], np.int64)
        bottom = np.minimum(n, k if rule.mu > 0 else 0)
        dtype, m, rows = next(iter(start.values())).dtype, len(n), 3 * BLOCK
        at_d = starts(2 * self.block * n)
        self.shape = kernel.Shape(n, starts(n * n), starts(rows * n), at_d, starts(bottom * n), bottom, self.block)
        with one_blas_thread():
            floors = [0.0 if dense else float(np.linalg.eigvalsh(matrix)[0]) for matrix in start.values()]
        self.state: kernel.State
        state = kernel.State(
            M=np.concatenate([matrix.ravel() for matrix in start.values()]),
            X=np.zeros(rows * n.sum(), dtype),
            c=np.zeros((m, rows), dtype),
            used=np.zeros(m, np.int64),
            counts=np.zeros(4, np.int64),
            log_weights=np.zeros(m),
            losses=np.zeros(m + 1),
            floors=np.maximum(floors, 0.0),
            based=np.zeros(m, np.int64),
            bites=np.zeros(m, np.int64),
            bottom=np.zeros((bottom * n).sum()),
            age=np.full(m, -1, np.int64),
        )
        super().__init__(list(start), state)
        self.work = kernel.Work(
            D=np.zeros(2 * self.block * n.sum(), dtype),
            MD=np.zeros(2 * self.block * n.sum(), dtype),
            grams=np.zeros((2, rows), dtype),
            f=np.zeros(m),
            weights=np.zeros(m),
            QT=np.empty((n * n).sum()),
            lam=np.empty(n.sum()),
            Y=np.empty(rows * n.sum()),
            ready=np.full(m, -1, np.int64),
        )

    def _walk(self, rows: Array, addresses: Array, columns: Sequence[Array], scores: Array) -> int:
        pairs = near_and_far(rows)
        with one_blas_thread():
            done = kernel.walk(pairs, *columns, addresses, self.shape, self.state, self.rule, self.work, scores)
        if done < len(rows):
            self.work.ready[:] = -1  # the state is about to be put back
        return int(done)

    @property
    def weights(self) -> Array:
        """theta: (m,)."""
        shares = np.exp(self.state.log_weights - self.state.log_weights.max())
        return shares / shares.sum()

    def matrices(self) -> list[Array]:
        """M_i (d_i, d_i) as learned so far, open block included."""
        flat = self.state.M.copy()
        kernel.flush_all(self.shape, self.state, flat)
        parts = np.split(flat, self.shape.at_m[1:])
        return [part.reshape(n, n) for part, n in zip(parts, self.shape.n, strict=True)]

    bites = property(lambda self: self.state.bites.tolist())
    hedge_loss = property(lambda self: float(self.state.losses[-1]))
    fewest_mistakes = property(lambda self: float(self.state.losses[:-1].min()))

    def to_tensors(self) -> dict[str, Array]:
        """The state: of the open block, only the rows that count."""
        tensors = {name: array for name, array in super().to_tensors().items() if name not in GROWN}
        for i, name in enumerate(self.names):
            tensors[f"{name}/X"], tensors[f"{name}/c"] = self._rows(i)
        return tensors

    def _rows(self, i: int) -> tuple[Array, Array]:
        used, n, at = self.state.used[i], self.shape.n[i], self.shape.at_x[i]
        return self.state.X[at : at + used * n].reshape(used, n), self.state.c[i, :used]

    def _fill(self, tensors: Mapping[str, Array]) -> None:
        for name in self.state._fields:
            if name not in GROWN:
                fill(getattr(self.state, name), tensors[name], name)
        used = self.state.used
        if used.min() < 0 or used.max() > self.state.c.shape[1]:
            raise ValueError(f"used is {used.tolist()}, expected up to {self.state.c.shape[1]}")
        if not 0 <= self.state.counts[FILLED] < self.block:
            raise ValueError(f"{self.state.counts[FILLED]} events in the open block, expected fewer than {self.block}")
        for i, name in enumerate(self.names):
            X, c = self._rows(i)
            fill(X, tensors[f"{name}/X"], f"{name}/X")
            fill(c, tensors[f"{name}/c"], f"{name}/c")
        self.work.ready[:] = -1
