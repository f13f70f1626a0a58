"""The engine of OMDML and Qwise: full matrices that stay positive semi-definite (MATHS 3).

The compiled walk learns comparisons until one leaves a matrix that may have a negative eigenvalue. Then Python projects
that matrix, by the cheapest way that :mod:`omdml.engines.spectral` has, and the walk goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from omdml.blas import one_blas_thread
from omdml.engines.base import BLOCK, Array, HedgeEngine, fill, near_and_far, starts
from omdml.engines.spectral import NOISE, BlockSpectrum, add_outer, clip
from omdml.kernels import full as kernel
from omdml.kernels.shared.counts import FILLED


class FullEngine(HedgeEngine):
    """Matrices M_i (d_i, d_i), positive semi-definite after every update.

    Parameters
    ----------
    start
        The matrices to begin with, one per modality: symmetric, positive semi-definite, of one floating type. Copied.
    rule
        Hyperparameters.
    mu, k, trace, refresh
        Regularisers, as in :class:`omdml.learners.qwise.Qwise`. If ``mu`` or ``trace`` is above 0, a block holds one
        comparison, and each update takes an eigendecomposition.
    """

    at_close = frozenset({"M", "X", "c", "bottom"})
    grown = frozenset({"X", "c"})

    def __init__(
        self, start: Mapping[str, Array], rule: kernel.Rule,
        mu: float = 0.0, k: int = 0, trace: float = 0.0, refresh: int = 1,
    ) -> None:  # fmt: skip
        self.rule, self.mu, self.trace, self.refresh = rule, mu, trace, refresh
        self.dense = mu > 0 or trace > 0
        self.block = 1 if self.dense else BLOCK
        n = np.array([len(matrix) for matrix in start.values()], np.int64)
        bottom = np.minimum(n, k if mu > 0 else 0)
        dtype, m, rows = next(iter(start.values())).dtype, len(n), 3 * BLOCK
        self.shape = kernel.Shape(n, starts(n * n), starts(rows * n), starts(2 * self.block * n), self.block)
        self.bottoms = list(zip(starts(bottom * n).tolist(), bottom.tolist(), strict=True))
        with one_blas_thread():
            floors = [0.0 if self.dense else float(np.linalg.eigvalsh(matrix)[0]) for matrix in start.values()]
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
            hints=0.5 * np.maximum(floors, 0.0),
            cut=np.zeros(m, np.int64),
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
            rates=np.zeros(m),
            pending=np.zeros(m, np.bool_),
        )
        # Decompositions of the matrices before the block's first comparison, by modality.
        self._spectra: dict[int, BlockSpectrum] = {}

    def _walk(self, rows: Array, addresses: Array, columns: Sequence[Array], scores: Array) -> int:
        pairs, margins, t = near_and_far(rows), columns[0], 0
        with one_blas_thread():
            while t < len(rows):
                end = min(len(rows), t + self.block - int(self.state.counts[FILLED]))
                kernel.load(pairs[t:end], addresses, self.shape, self.state.M, self.work)
                learned = self._learn_loaded(margins[t:end], scores[t:end])
                if t + learned < end:
                    return t + learned
                t = end
                if self.state.counts[FILLED] == self.block:
                    self._close()
        return t

    def _undo(self, copies: list[tuple[Array, Array]]) -> None:
        super()._undo(copies)
        # The spectra hold terms of the comparisons that were undone.
        self._spectra.clear()

    def _learn_loaded(self, margins: Array, scores: Array) -> int:
        """Learn the loaded comparisons, and project a matrix each time the walk asks for it.

        Returns how many were learned: all of them, unless numbers overflowed.
        """
        e = 0
        while e < len(margins):
            self.work.pending[:] = False
            e = kernel.walk(e, margins, self.shape, self.state, self.rule, self.work, scores)
            if not np.isfinite(scores[e - 1]):
                return e - 1
            for i in np.flatnonzero(self.work.pending).tolist():
                if not self.dense:
                    self._project(i)
                elif not self._regularise(i):
                    return e - 1
        return e

    def _matrix(self, i: int, flat: Array | None = None) -> Array:
        """M_i before the block's first comparison, as a view of ``state.M`` or ``flat``."""
        n, start = self.shape.n[i], self.shape.m_starts[i]
        return (self.state.M if flat is None else flat)[start : start + n * n].reshape(n, n)

    def _spectrum(self, i: int) -> BlockSpectrum:
        if i not in self._spectra:
            self._spectra[i] = BlockSpectrum(self._matrix(i))
        return self._spectra[i]

    def _project(self, i: int) -> None:
        """``M_i <- PSD(M_i)`` after a step: cut the one negative eigenvalue, unless a certificate rules it out."""
        state = self.state
        value, vector, state.hints[i] = self._spectrum(i).lowest(
            *self._rows(i), 0.0 if state.cut[i] else state.hints[i]
        )
        state.floors[i] = max(value, 0.0)
        if value < 0.0:
            kernel.push(vector, -value, -1.0, i, self.shape, state)
            state.bites[i] += 1
            state.cut[i] = 1

    def _regularise(self, i: int) -> bool:
        """``M_i <- PSD(M_i - rate (mu F + trace I + a a' - b b'))``: many eigenvalues may turn negative.

        Returns False if that overflows.
        """
        state, M, rate = self.state, self._matrix(i), self.work.rates[i]
        start, k = self.bottoms[i]
        bottom = state.bottom[start : start + k * len(M)].reshape(k, len(M))
        if state.age[i] < 0:
            bottom[:], state.age[i] = np.linalg.eigh(M.astype(np.float64))[1].T[:k], 0
        kernel.flush_one(i, self.shape, state, M)
        state.used[i] = 0
        for row in np.sqrt(rate * self.mu) * bottom:
            M -= np.outer(row, row)
        M[np.diag_indices(len(M))] -= rate * self.trace
        if not np.isfinite(M).all():
            return False
        values, vectors = np.linalg.eigh(M.astype(np.float64))
        state.bites[i] += clip(M, values, vectors.T, 0.0) > 0
        state.age[i] += 1
        if state.age[i] >= self.refresh:
            bottom[:], state.age[i] = vectors.T[:k], 0
        return True

    def _close(self) -> None:
        """End the block: write it into M, cut away what rounding made negative, and begin the next one."""
        cut = np.flatnonzero(self.state.cut).tolist()
        # Before the flush, because after a restart the spectra must be computed from the old M.
        bases = {i: self._spectrum(i).basis for i in cut}
        kernel.flush_all(self.shape, self.state, self.state.M)
        for i in cut:
            values, rows = bases[i]
            negative = values < -NOISE * np.finfo(self.state.M.dtype).eps * values[-1]
            add_outer(self._matrix(i), -values[negative], rows[negative])
        self.state.used[:] = self.state.cut[:] = 0
        self.state.counts[FILLED] = 0
        self._spectra.clear()

    def matrices(self) -> list[Array]:
        """M_i (d_i, d_i) of all comparisons learned so far, open block included."""
        flat = self.state.M.copy()
        kernel.flush_all(self.shape, self.state, flat)
        return [self._matrix(i, flat) for i in range(len(self.names))]

    bites = property(lambda self: self.state.bites.tolist())

    def to_tensors(self) -> dict[str, Array]:
        """The state as arrays by name; of the open block, only the rows that count."""
        tensors = super().to_tensors()
        for i, name in enumerate(self.names):
            tensors[f"{name}/X"], tensors[f"{name}/c"] = self._rows(i)
        return tensors

    def _rows(self, i: int) -> tuple[Array, Array]:
        used, n, start = self.state.used[i], self.shape.n[i], self.shape.x_starts[i]
        return self.state.X[start : start + used * n].reshape(used, n), self.state.c[i, :used]

    def _fill(self, tensors: Mapping[str, Array]) -> None:
        super()._fill(tensors)
        filled, used = self.state.counts[FILLED], self.state.used
        if used.min() < 0 or used.max() > 3 * filled:
            raise ValueError(f"used has {used.tolist()} rows of {filled} comparisons, expected at most 3 for each")
        for i, name in enumerate(self.names):
            X, c = self._rows(i)
            fill(X, tensors[f"{name}/X"], f"{name}/X")
            fill(c, tensors[f"{name}/c"], f"{name}/c")
        self._spectra.clear()
