"""Metrics of tasks: stacks of projections, each shared by tasks or owned by one (MATHS 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from omdml.blas import one_blas_thread
from omdml.errors import FeedbackError
from omdml.metrics.base import CHUNK_ROWS, Array, Metric, check_features, frozen

# Name of the matrix that all tasks share.
SHARED = "shared"


class CoupledMetric(Metric):
    """``D_t(p, q) = sum_k |L_k (p - q)|^2`` over the matrices of task t, all modalities side by side in one vector.

    A query without a task is measured by the shared matrix, or by the sum over all tasks if nothing is shared. If there
    is only one task, such a query counts as one of that task.

    Parameters
    ----------
    dims
        Dimension of each modality, in the order in which they lie side by side.
    matrices
        (r, sum d_i) by name; one of them may be ``shared``.
    stacks
        Names of each task's matrices. Several tasks may have the same matrices.
    """

    kind = "coupled"
    euclidean = True

    def __init__(
        self, dims: Mapping[str, int], matrices: Mapping[str, Array], stacks: Mapping[str, Sequence[str]]
    ) -> None:
        self._dims = dict(dims)
        self.matrices = {name: frozen(matrix) for name, matrix in matrices.items()}
        self.stacks = {task: list(names) for task, names in stacks.items()}

    @property
    def dims(self) -> dict[str, int]:
        """d_i, the dimension of each modality, by name."""
        return dict(self._dims)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of tasks that queries may give."""
        return tuple(self.stacks)

    def same_as(self, task: str | None) -> str | None:
        """None for a task with the same matrices as queries without a task, otherwise the task itself."""
        return None if self._names(task) == self._names(None) else task

    def projection(self, task: str | None = None) -> Array:
        """The stacked matrices of a task: (R, sum d_i); raises FeedbackError for an unknown task."""
        return np.concatenate([self.matrices[name] for name in self._names(task)])

    def _names(self, task: str | None) -> Sequence[str]:
        """Names of the matrices that measure in the sense of ``task``; raises FeedbackError for an unknown task."""
        if task is not None:
            if task not in self.stacks:
                known = ", ".join(self.stacks)
                raise FeedbackError(f"no task {task!r}; expected one of {known}", reason="unknown_task")
            return self.stacks[task]
        if len(self.stacks) == 1:
            return next(iter(self.stacks.values()))
        return [SHARED] if SHARED in self.matrices else list(self.matrices)

    def columns(self, task: str | None = None) -> dict[str, int]:
        """Number of components of the embedding for each matrix: the shared one, and the task's own."""
        return {name: len(self.matrices[name]) for name in self._names(task)}

    def embed(self, features: Mapping[str, Array], task: str | None = None) -> Array:
        """``[L_0; L_t] p`` of every row: (n, R); raises FeedbackError for an unknown task."""
        rows, projection = check_features(features, self._dims), self.projection(task)
        embedded = np.empty((rows, len(projection)), projection.dtype)
        with one_blas_thread():
            for start in range(0, rows, CHUNK_ROWS):
                parts = [
                    np.asarray(features[name][start : start + CHUNK_ROWS], projection.dtype) for name in self._dims
                ]
                embedded[start : start + CHUNK_ROWS] = np.concatenate(parts, axis=1) @ projection.T
        return embedded

    def to_tensors(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """``<name>/L``; described by ``dims``, ``stacks`` and the order of ``names``."""
        tensors = {f"{name}/L": matrix for name, matrix in self.matrices.items()}
        return tensors, {"dims": self._dims, "stacks": self.stacks, "names": list(self.matrices)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], description: Mapping[str, Any]) -> CoupledMetric:
        """The metric in these tensors; raises KeyError or ValueError if they do not fit together."""
        dims, stacks = description["dims"], description["stacks"]
        matrices = {name: tensors[f"{name}/L"] for name in description["names"]}
        width = sum(dims.values())
        for name, matrix in matrices.items():
            if matrix.ndim != 2 or matrix.shape[1] != width or matrix.dtype.kind != "f":
                raise ValueError(f"{name}/L is {matrix.dtype} {matrix.shape}, expected floats (r, {width})")
        if not matrices or any(name not in matrices for names in stacks.values() for name in names):
            raise ValueError(f"the tasks name the matrices {stacks}, but there are {sorted(matrices)}")
        return cls(dims, matrices, stacks)
