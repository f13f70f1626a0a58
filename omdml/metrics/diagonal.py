"""Diagonal and signed metrics: one weight for each coordinate, all modalities side by side (MATHS 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from omdml.metrics.base import CHUNK_ROWS, Array, Metric, check_features, frozen, query_point
from omdml.metrics.scored import ScoredMetric, along


class WeightedCoordinates(Metric):
    """Base of metrics with one weight for each coordinate.

    Parameters
    ----------
    weights
        w_i : (d_i,) of each modality.
    """

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = {name: frozen(vector) for name, vector in weights.items()}

    @property
    def dims(self) -> dict[str, int]:
        """d_i, the dimension of each modality, by name."""
        return {name: len(vector) for name, vector in self.weights.items()}

    def to_tensors(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """``<modality>/w``, in the order of ``modalities``."""
        return {f"{name}/w": vector for name, vector in self.weights.items()}, {"modalities": list(self.weights)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], description: Mapping[str, Any]) -> Self:
        """The metric in these tensors; raises KeyError or ValueError if they do not fit together."""
        weights = {name: tensors[f"{name}/w"] for name in description["modalities"]}
        if not weights or any(vector.ndim != 1 for vector in weights.values()):
            raise ValueError(
                f"weights have shapes {[w.shape for w in weights.values()]}, expected a vector for each modality"
            )
        return cls(weights)


class DiagonalMetric(WeightedCoordinates):
    """``D(p, q) = sum_i w_i . ((p_i - q_i) o (p_i - q_i))``; no weight is negative."""

    kind = "diagonal"
    euclidean = True

    def columns(self, task: str | None = None) -> dict[str, int]:
        """Number of components of the embedding for each modality."""
        return self.dims

    def embed(self, features: Mapping[str, Array], task: str | None = None) -> Array:
        """``concat_i sqrt(w_i) o p_i`` of every row: (n, sum d_i)."""
        rows = check_features(features, self.dims)
        roots = np.sqrt(np.concatenate(list(self.weights.values())))
        embedded = np.empty((rows, len(roots)), roots.dtype)
        column = 0
        for name, size in self.dims.items():
            block = embedded[:, column : column + size]
            for start in range(0, rows, CHUNK_ROWS):
                chunk = np.asarray(features[name][start : start + CHUNK_ROWS], roots.dtype)
                np.multiply(chunk, roots[column : column + size], out=block[start : start + CHUNK_ROWS])
            column += size
        return embedded

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], description: Mapping[str, Any]) -> Self:
        """The metric in these tensors; raises KeyError or ValueError if they do not fit together."""
        metric = super().from_tensors(tensors, description)
        if any((vector < 0).any() for vector in metric.weights.values()):
            raise ValueError("a diagonal metric has weights below 0, expected at least 0")
        return metric


class SignedMetric(ScoredMetric, WeightedCoordinates):
    """``D(p, q) = sum_i w_i . (p_i - q_i)``: how much more of an attribute p has than q (LAW 2.4)."""

    kind = "signed"

    def score_parts(
        self, query: Mapping[str, Array], items: Mapping[str, Array], task: str | None = None
    ) -> dict[str, Array]:
        """What each modality adds to the score of every item: (n,) each."""
        return {
            name: along({name: weights}, items) - along({name: weights}, {name: np.reshape(query[name], (1, -1))})
            for name, weights in self.weights.items()
        }

    def score(self, query: Mapping[str, Array], items: Mapping[str, Array], task: str | None = None) -> Array:
        """How much more of the attribute each item has than the query: (n,)."""
        point = query_point(query, self.dims)
        return along(self.weights, items) - along(self.weights, point)

    def closeness(self, left: Mapping[str, Array], right: Mapping[str, Array], task: str | None = None) -> Array:
        """How much more of the attribute each row of ``right`` has than the same row of ``left``: (n,)."""
        return along(self.weights, right) - along(self.weights, left)
