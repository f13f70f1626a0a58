"""mtLMCA: a projection that all tasks share, followed by a small matrix of each task (CP-mtML, Section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from omdml.blas import one_blas_thread
from omdml.learners.cpmtml import CoupledLearner
from omdml.learners.shared.base import Array
from omdml.learners.shared.checks import expect
from omdml.learners.shared.pairs import check_array, rank_of
from omdml.metrics.coupled import SHARED, CoupledMetric

if TYPE_CHECKING:
    from omdml.engines.coupled import LmcaEngine


class MtLMCA(CoupledLearner):
    """Multi-task large margin component analysis (Yang et al. 2013, as CP-mtML, Section 6.1, trains it).

    Each task has the matrix ``L_t = R_t' L_0``: L_0 (r, sum of dims) is shared, R_t (r, r) is its own. c is the
    difference of a pair, ``p = L_0 c`` and ``e = R_t' p = L_t c``. y is 1 for a similar pair and -1 for a dissimilar
    one, and b_t is the threshold of task t. If ``loss = 1 - y (b_t - |e|^2)`` is above 0, the pair takes the step

        L_0 <- L_0 - gamma rate y R_t e c',    R_t <- R_t - rate y p e',    b_t <- b_t + 0.1 rate y.

    Departures from the paper, measured as for :class:`CPmtML` (yaleb, mAP of the two tasks):

    - L_0 starts like that of CP-mtML, not as the identity.
    - The rate is capped (``step="pa"``). Along the rate the loss is a polynomial of degree 4, so no formula gives the
      cap. The rate begins at ``min(eta, 1 / (4 (|p|^2 + gamma |c|^2 |R_t' R_t e| / |e|)))``, which changes e by about a
      quarter. Then it is halved until the loss lies between zero and what it was. That gives 0.805 and 0.655 at any
      ``eta`` from 0.1 to 10. The fixed rate gives 0.727 and 0.688 at 0.003, 0.724 and 0.653 at 0.01, and diverges at
      0.03.

    Parameters are those of :class:`CPmtML`, without ``serve``. If ``init`` is arrays, ``shared`` is L_0 (r, sum of
    dims), and a task's name stands for its R_t, which is the identity if it is left out. ``matrices`` has the same
    names.
    """

    name: ClassVar[str] = "mtlmca"

    @property
    def _stacks(self) -> list[list[str]]:
        return [[SHARED]] * len(self._tasks)

    @property
    def _names(self) -> list[str]:
        return [SHARED, *self._tasks]

    def _check_arrays(self, arrays: Mapping[str, Array]) -> None:
        names = set(arrays)
        expect(SHARED in names and names <= set(self._names), "init", sorted(names), f"arrays for {self._names}")
        rank = len(np.atleast_1d(arrays[SHARED]))
        expect(rank > 0, "init", rank, "at least one row")
        for name, array in arrays.items():
            check_array(name, array, (rank, sum(self.dims.values()) if name == SHARED else rank))

    def _sampled(self, features: Mapping[str, Array]) -> dict[str, Array]:
        return {SHARED: super()._sampled(features)[SHARED]}

    def _begin(self, start: Mapping[str, Array]) -> LmcaEngine:
        from omdml.engines.coupled import LmcaEngine

        L = start[SHARED]
        R = np.stack([start.get(task, np.eye(len(L), dtype=L.dtype)) for task in self._tasks])
        return LmcaEngine(self.dims, L[None], R, self._rule())

    def _shapes(self, tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
        rank = rank_of(tensors)
        return {SHARED: (rank, sum(self.dims.values())), **dict.fromkeys(self._tasks, (rank, rank))}

    @property
    def metric(self) -> CoupledMetric:
        """The metric to serve: ``R_t' L_0`` for each task, and L_0 for queries without a task. Raises NotStarted."""
        shared, *task_matrices = self.matrices.values()
        with one_blas_thread():
            products = {task: R.T @ shared for task, R in zip(self._tasks, task_matrices, strict=True)}
        return CoupledMetric(self.dims, {SHARED: shared, **products}, {task: [task] for task in products})
