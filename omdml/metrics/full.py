"""Full-matrix metrics: a positive semi-definite matrix for each modality, factored to embed (MATHS 9)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from omdml.blas import one_blas_thread
from omdml.metrics.base import Array, frozen
from omdml.metrics.projection import ProjectionMetric


class FullMetric(ProjectionMetric):
    """``D(p, q) = sum_i theta_i (p_i - q_i)' M_i (p_i - q_i)``.

    Parameters
    ----------
    weights
        theta_i of each modality.
    full
        M_i : (d_i, d_i) of each modality, symmetric; eigenvalues that rounding left below 0 count as 0.
    """

    kind = "full"

    def __init__(self, weights: Mapping[str, float], full: Mapping[str, Array]) -> None:
        self.weights = {name: float(weights[name]) for name in full}
        self.full = {name: frozen(matrix) for name, matrix in full.items()}

    @cached_property
    def matrices(self) -> dict[str, Array]:  # type: ignore[override]
        """Symmetric square roots of M_i, computed when first used. They change little when M_i changes little."""
        return {name: frozen(root(matrix).astype(matrix.dtype)) for name, matrix in self.full.items()}

    @property
    def dims(self) -> dict[str, int]:
        """d_i, the dimension of each modality, by name."""
        return {name: len(matrix) for name, matrix in self.full.items()}

    def closeness(self, left: Mapping[str, Array], right: Mapping[str, Array], task: str | None = None) -> Array:
        """Minus the learned distance (n,), computed without square roots."""
        total: Array = np.zeros(len(next(iter(left.values()))))
        with one_blas_thread():
            for name, matrix in self.full.items():
                difference = np.asarray(left[name] - right[name], matrix.dtype)
                total -= self.weights[name] * np.einsum("ij,ij->i", difference @ matrix, difference)
        return total

    def to_tensors(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """``<modality>/M`` and ``weights``, in the order of ``modalities``."""
        tensors: dict[str, Array] = {f"{name}/M": matrix for name, matrix in self.full.items()}
        tensors["weights"] = np.array(list(self.weights.values()), np.float64)
        return tensors, {"modalities": list(self.full)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], description: Mapping[str, Any]) -> FullMetric:
        """The metric in these tensors; raises KeyError or ValueError if they do not fit together."""
        names = list(description["modalities"])
        weights, full = tensors["weights"], {name: tensors[f"{name}/M"] for name in names}
        for name, matrix in full.items():
            if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
                raise ValueError(f"{name}/M has shape {matrix.shape}, expected a square matrix")
        if weights.shape != (len(names),):
            raise ValueError(f"weights have shape {weights.shape}, expected ({len(names)},): one for each modality")
        return cls(dict(zip(names, weights.tolist(), strict=True)), full)


def root(matrix: Array) -> Array:
    """The symmetric square root (d, d) of a positive semi-definite matrix (d, d), float64."""
    with one_blas_thread():
        values, vectors = np.linalg.eigh(matrix.astype(np.float64))
        rooted: Array = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return rooted
