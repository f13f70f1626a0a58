"""stML and utML: one projection for each task, or one for the union of all tasks (CP-mtML, Section 4)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from omdml.learners.shared.base import Array
from omdml.learners.shared.pairs import PairLearner
from omdml.metrics.coupled import SHARED, CoupledMetric


class StML(PairLearner):
    """Single-task metric learning (CP-mtML, Section 4.2): L_t of each task learns from its own pairs alone.

    ``d_t^2 = |L_t c|^2`` is the squared distance of a pair in the sense of task t, c being the difference of its items
    and b_t the threshold of the task. y is 1 for a similar pair and -1 for a dissimilar one. If
    ``loss = 1 - y (b_t - d_t^2)`` is above 0, the pair takes the step

        L_t <- L_t - rate y L_t c c',    b_t <- b_t + 0.1 rate y.

    Parameters, starts and the cap of the step are those of :class:`CPmtML` without the shared matrix: there is no
    ``eta0``, ``gamma`` or ``serve``, and arrays in ``init`` are those of the tasks.
    """

    name: ClassVar[str] = "stml"

    @property
    def _stacks(self) -> list[list[str]]:
        return [[task] for task in self._tasks]


class UtML(StML):
    """Metric learning with the union of all tasks (CP-mtML, Section 4.2): one L and one threshold learn all pairs.

    Update and parameters are those of :class:`StML`. Names of tasks are checked, but make no difference. If ``init`` is
    arrays, there is one, called ``shared``.
    """

    name: ClassVar[str] = "utml"

    @property
    def _stacks(self) -> list[list[str]]:
        return [[SHARED]]

    def _numbers(self, tasks: Array) -> Array:
        return np.zeros_like(tasks)

    @property
    def metric(self) -> CoupledMetric:
        """The metric to serve, the same for every task. Raises NotStarted."""
        return CoupledMetric(self.dims, self.matrices, {task: [SHARED] for task in self._tasks})
