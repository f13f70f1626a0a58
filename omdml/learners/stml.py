"""stML and utML: one projection, of each task by itself or of the union of all tasks (CP-mtML, Section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from omdml.learners.shared.base import Array
from omdml.learners.shared.pairs import PairLearner
from omdml.metrics.coupled import SHARED, CoupledMetric


class StML(PairLearner):
    """Single-task metric learning (CP-mtML, Section 4.2): L_t of each task learns from its own pairs alone.

    ``d_t^2 = |L_t c|^2`` for the difference c of a pair; where ``y (b_t - d_t^2) < 1``, y being 1 for a similar pair
    and -1 for another, ``L_t <- L_t - rate y L_t c c'`` and ``b_t <- b_t + 0.1 rate y``. Parameters, starts and the cap
    of the step are those of :class:`CPmtML`.
    """

    name: ClassVar[str] = "stml"

    def __init__(
        self,
        dims: Mapping[str, int],
        tasks: Sequence[str] | None = None,
        rank: int = 64,
        eta: float = 1.0,
        step: str = "pa",
        init: str | Mapping[str, ArrayLike] = "wpca",
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        self.dims = dims
        self.tasks = tasks
        self.rank = rank
        self.eta = eta
        self.step = step
        self.init = init
        self.dtype = dtype
        self.seed = seed
        self._prepare()

    @property
    def _stacks(self) -> list[list[str]]:
        return [[task] for task in self._tasks]


class UtML(StML):
    """Metric learning with the union of all tasks (CP-mtML, Section 4.2): one L, one threshold, every task's pairs.

    The update is that of :class:`StML`; names of tasks are checked, and make no difference.
    """

    name: ClassVar[str] = "utml"

    @property
    def _stacks(self) -> list[list[str]]:
        return [[SHARED]]

    def _numbers(self, tasks: Array) -> Array:
        return np.zeros_like(tasks)

    @property
    def metric(self) -> CoupledMetric:
        """What is served: the same for every task."""
        return CoupledMetric(self.dims, self.matrices, {task: [SHARED] for task in self._tasks})
