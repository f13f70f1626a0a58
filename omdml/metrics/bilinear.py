"""Bilinear metrics: an unconstrained matrix for each modality (MATHS 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from omdml.blas import one_blas_thread
from omdml.metrics.base import Array, frozen, query_point
from omdml.metrics.scored import ScoredMetric, along


class BilinearMetric(ScoredMetric):
    """``S(q, x) = mean_i q_i' W_i x_i``.

    Parameters
    ----------
    matrices
        W_i : (d_i, d_i) of each modality.
    """

    kind = "bilinear"

    def __init__(self, matrices: Mapping[str, Array]) -> None:
        self.matrices = {name: frozen(matrix) for name, matrix in matrices.items()}

    @property
    def dims(self) -> dict[str, int]:
        """d_i, the dimension of each modality, by name."""
        return {name: len(matrix) for name, matrix in self.matrices.items()}

    def score(self, query: Mapping[str, Array], items: Mapping[str, Array], task: str | None = None) -> Array:
        """S (n,) of every item: one product ``q' W_i``, then one product with the items."""
        point = query_point(query, self.dims)
        with one_blas_thread():
            directions = {
                name: point[name][0].astype(matrix.dtype) @ matrix / matrix.dtype.type(len(self.matrices))
                for name, matrix in self.matrices.items()
            }
        return along(directions, items)

    def score_parts(
        self, query: Mapping[str, Array], items: Mapping[str, Array], task: str | None = None
    ) -> dict[str, Array]:
        """What each modality adds to S of every item: (n,) each."""
        parts = {}
        for name, matrix in self.matrices.items():
            single = BilinearMetric({name: matrix})
            parts[name] = single.score(query, items) / matrix.dtype.type(len(self.matrices))
        return parts

    def closeness(self, left: Mapping[str, Array], right: Mapping[str, Array], task: str | None = None) -> Array:
        """S (n,) of each row of ``right`` for the same row of ``left`` as the query."""
        total: Array = np.zeros(len(next(iter(left.values()))))
        with one_blas_thread():
            for name, matrix in self.matrices.items():
                total += np.einsum("ij,ij->i", left[name].astype(matrix.dtype) @ matrix, right[name])
        return total / len(self.matrices)

    def to_tensors(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """``<modality>/W``, in the order of ``modalities``."""
        return {f"{name}/W": matrix for name, matrix in self.matrices.items()}, {"modalities": list(self.matrices)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], description: Mapping[str, Any]) -> BilinearMetric:
        """The metric in these tensors; raises KeyError or ValueError if they do not fit together."""
        matrices = {name: tensors[f"{name}/W"] for name in description["modalities"]}
        for name, matrix in matrices.items():
            if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
                raise ValueError(f"{name}/W has shape {matrix.shape}, expected a square matrix")
        if not matrices:
            raise ValueError("a bilinear metric has no modalities, expected at least one")
        return cls(matrices)
