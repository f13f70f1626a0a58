"""Low-rank metrics: a projection for each modality, and one embedding of all of them (MATHS 9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from omdml.blas import one_blas_thread
from omdml.metrics.base import CHUNK_ROWS, Array, Metric, check_features, frozen


class ProjectionMetric(Metric):
    """``D(p, q) = sum_i theta_i |W_i (p_i - q_i)|^2``: one Euclidean space of ``sum r_i`` numbers (MATHS 9).

    Parameters
    ----------
    weights
        theta_i of each modality, at least 0, 1 in total.
    matrices
        W_i : (r_i, d_i) of each modality.
    """

    kind = "projection"
    euclidean = True

    def __init__(self, weights: Mapping[str, float], matrices: Mapping[str, Array]) -> None:
        self.weights = {name: float(weights[name]) for name in matrices}
        self.matrices = {name: frozen(matrix) for name, matrix in matrices.items()}
        self._theta = frozen(np.array(list(self.weights.values()), np.float64))

    @property
    def dims(self) -> dict[str, int]:
        """d_i, the dimension of each modality, by name."""
        return {name: matrix.shape[1] for name, matrix in self.matrices.items()}

    @property
    def size(self) -> int:
        """R, the number of components of an embedding."""
        return sum(matrix.shape[0] for matrix in self.matrices.values())

    def columns(self, task: str | None = None) -> dict[str, int]:
        """Number of components of the embedding for each modality."""
        return {name: matrix.shape[0] for name, matrix in self.matrices.items()}

    def embed(self, features: Mapping[str, Array], task: str | None = None) -> Array:
        """``E(p) = concat_i sqrt(theta_i) W_i p_i`` of every row: (n, R)."""
        rows = check_features(features, self.dims)
        dtype = next(iter(self.matrices.values())).dtype
        embedded = np.empty((rows, self.size), dtype)
        with one_blas_thread():
            column = 0
            for name, matrix in self.matrices.items():
                scaled = (np.sqrt(self.weights[name]) * matrix).astype(dtype, copy=False).T
                block = embedded[:, column : column + matrix.shape[0]]
                for start in range(0, rows, CHUNK_ROWS):
                    chunk = np.asarray(features[name][start : start + CHUNK_ROWS], dtype)
                    block[start : start + CHUNK_ROWS] = chunk @ scaled
                column += matrix.shape[0]
        return embedded

    def to_tensors(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """``<modality>/W`` and ``weights``, in the order of ``modalities``."""
        tensors: dict[str, Array] = {f"{name}/W": matrix for name, matrix in self.matrices.items()}
        tensors["weights"] = self._theta
        return tensors, {"modalities": list(self.matrices)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], description: Mapping[str, Any]) -> ProjectionMetric:
        """The metric in these tensors; raises KeyError or ValueError if they do not fit together."""
        names = list(description["modalities"])
        weights, matrices = tensors["weights"], {name: tensors[f"{name}/W"] for name in names}
        if weights.shape != (len(names),):
            raise ValueError(f"weights have shape {weights.shape}, expected ({len(names)},): one for each modality")
        for name, matrix in matrices.items():
            if matrix.ndim != 2:
                raise ValueError(f"{name}/W has shape {matrix.shape}, expected a matrix")
        return cls(dict(zip(names, weights.tolist(), strict=True)), matrices)
