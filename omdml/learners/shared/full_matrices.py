"""What OMDML and Qwise share: full matrices, their starts, and how they are served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from omdml.blas import one_blas_thread
from omdml.initial import STARTS, start_matrices
from omdml.learners.shared.base import Array
from omdml.learners.shared.checks import expect, is_number, is_whole
from omdml.learners.shared.quadruplets import QuadrupletLearner
from omdml.metrics.full import FullMetric

if TYPE_CHECKING:
    from omdml.engines.full import FullEngine

# How far rounding may move a start from a symmetric positive semi-definite matrix, as a share of its largest entry. By
# this share opposite entries may differ. By this share times the number of dimensions an eigenvalue may lie below 0.
INDEFINITE = 1e-6


class FullMatrixLearner(QuadrupletLearner):
    """Learners of M_i (d_i, d_i), positive semi-definite after every update."""

    step_changes = "matrix"
    mu: float
    k: int
    trace: float
    refresh: int
    rank: int | None

    def _check(self) -> None:
        expect(is_number(self.mu) and self.mu >= 0, "mu", self.mu, "a weight of at least 0")
        expect(is_whole(self.k) and self.k >= 0, "k", self.k, "a number of eigenvalues")
        expect(self.mu == 0 or self.k >= 1, "k", self.k, "at least 1 if mu is above 0")
        expect(is_number(self.trace) and self.trace >= 0, "trace", self.trace, "a weight of at least 0")
        expect(
            is_whole(self.refresh) and self.refresh >= 1, "refresh", self.refresh, "a number of updates of at least 1"
        )
        expect(self.rank is None or (is_whole(self.rank) and self.rank >= 1), "rank", self.rank, "None or at least 1")
        if isinstance(self.init, str):
            expect(self.init in STARTS, "init", self.init, f"one of {', '.join(STARTS)}, or arrays")
            return
        expect(set(self.init) == set(self.dims), "init", sorted(self.init), f"arrays for {sorted(self.dims)}")
        for name, array in self.init.items():
            check_positive(name, np.asarray(array), self.dims[name])

    def _share(self) -> float:
        """Factor of each modality's distance at the start."""
        return 1.0

    def _sampled(self, features: Mapping[str, Array]) -> dict[str, Array]:
        ranks = {name: min(self.rank or size, size) for name, size in self.dims.items()}
        rows = start_matrices(features, ranks, str(self.init), self.seed)
        with one_blas_thread():
            return {name: self._share() * (matrix.T @ matrix) for name, matrix in rows.items()}

    def _shapes(self, tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        return {name: (size, size) for name, size in self.dims.items()}

    @property
    def metric(self) -> FullMetric:
        """The metric to serve, of all that was learned so far. Raises NotStarted."""
        engine: FullEngine = self._started("metric")
        return FullMetric(self._weights(engine), self.matrices)

    def _weights(self, engine: FullEngine) -> dict[str, float]:
        """Weight of each modality in the sum of distances."""
        return dict.fromkeys(engine.names, 1.0)

    @property
    def matrices(self) -> dict[str, Array]:
        """M_i (d_i, d_i) of each modality, as learned. Raises NotStarted."""
        engine = self._started("matrices")
        return dict(zip(engine.names, engine.matrices(), strict=True))

    @property
    def bites(self) -> dict[str, int]:
        """Number of updates of each modality that PSD changed, because they left a negative eigenvalue."""
        engine = self._started("bites")
        return dict(zip(engine.names, engine.bites, strict=True))


def check_positive(name: str, matrix: Array, size: int) -> None:
    """Refuse a start that is not a symmetric positive semi-definite matrix (size, size)."""
    where = f"init[{name!r}]"
    square = matrix.shape == (size, size) and matrix.dtype.kind in "fiu" and bool(np.isfinite(matrix).all())
    expect(square, where, matrix.shape, f"finite numbers of shape ({size}, {size})")
    largest = float(np.abs(matrix).max())
    asymmetry = float(np.abs(matrix - matrix.T).max())
    got = f"opposite entries that differ by {asymmetry:.3g}"
    expect(asymmetry <= INDEFINITE * largest, where, got, "a symmetric matrix")
    with one_blas_thread():
        lowest = float(np.linalg.eigvalsh(matrix.astype(np.float64))[0])
    got = f"an eigenvalue of {lowest:.3g}"
    expect(lowest >= -INDEFINITE * largest * size, where, got, "a positive semi-definite matrix")
