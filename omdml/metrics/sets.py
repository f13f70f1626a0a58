"""Metrics of sets: one vector a set, and greedy matching of its elements (MATHS 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from omdml.blas import one_blas_thread
from omdml.kernels.matching import greedy_matches
from omdml.metrics.base import Array, Metric, check_features, frozen
from omdml.pooling import Whitening, begins, netvlad, parts, unit

PARAMETERS = ("A", "bias", "c", "P", "p0", "w", "b", "scale")


class SetMetric(Metric):
    """``S(q, set) = sigma(w v_q . v_set + b)``, v the reduced NetVLAD vector of a set, of unit length (SETNET 3).

    A single element is a set of one; of several query elements the scores are added up.

    Parameters
    ----------
    dims
        Dimension of each modality, in the order in which they lie side by side, D together.
    parameters
        A (K, D), bias (K,), c (K, D), P (r, K D), p0 (r,), w (), b (), scale (m,).
    whitening
        Of the vectors; they then have unit length again, and scores keep their order but are no probabilities.
    """

    kind = "sets"
    euclidean = False

    def __init__(
        self, dims: Mapping[str, int], parameters: Mapping[str, Array], whitening: Whitening | None = None
    ) -> None:
        self._dims = dict(dims)
        self.parameters = {name: frozen(np.asarray(parameters[name])) for name in PARAMETERS}
        self._w, self._b = (float(np.reshape(parameters[name], ())) for name in "wb")
        self.whitening = whitening and Whitening(frozen(whitening.mean), frozen(whitening.matrix))

    @property
    def dims(self) -> dict[str, int]:
        """Numbers that an item has in each modality."""
        return dict(self._dims)

    @property
    def size(self) -> int:
        """Numbers of a vector."""
        return len(self.parameters["p0"])

    def embed(self, features: Mapping[str, Array], task: str | None = None) -> Array:
        """v of every row as a set of one: (n, r), of unit length. Inner products, not distances, are learned."""
        rows = check_features(features, self._dims)
        return self.embed_sets(features, list(np.arange(rows)[:, None]))

    def embed_sets(self, features: Mapping[str, Array], sets: Sequence[Array]) -> Array:
        """v of every set of row numbers: (n, r), of unit length; raises FeedbackError naming one without elements."""
        check_features(features, self._dims)
        begins(sets)
        A, bias, c, P, p0 = (self.parameters[name] for name in ("A", "bias", "c", "P", "p0"))
        vectors = np.empty((len(sets), len(P)), P.dtype)
        with one_blas_thread():
            for part in parts(sets, P.shape[1]):
                some = sets[part]
                touched, places = np.unique(np.concatenate(some), return_inverse=True)
                members = np.split(places, begins(some)[1:])
                pooled = netvlad(self._elements(features, touched), members, A, bias, c)
                vectors[part] = self._whitened(unit(pooled @ P.T + p0))
        return vectors

    def _elements(self, features: Mapping[str, Array], rows: Array) -> Array:
        """The modalities of these rows side by side, scaled."""
        scale = self.parameters["scale"]
        scaled = [np.asarray(features[name][rows], scale.dtype) * scale[i] for i, name in enumerate(self._dims)]
        return np.concatenate(scaled, axis=1)

    def _whitened(self, vectors: Array) -> Array:
        return vectors if self.whitening is None else self.whitening(vectors)

    def similarities(self, query: Array, vectors: Array) -> Array:
        """S of query vectors (Q, r) and of vectors of sets or elements (n, r): (Q, n)."""
        with one_blas_thread():
            return expit(self._w * (query @ vectors.T) + self._b)

    def score_sets(self, query: Array, vectors: Array) -> Array:
        """Scores (n,) of sets: the sum over query vectors (Q, r), or of one aggregated query vector (1, r)."""
        total: Array = self.similarities(query, vectors).sum(axis=0)
        return total

    def match(self, query: Array, elements: Array, sizes: Array) -> Array:
        """Sums (n,) of cosines, query vectors (Q, r) greedily matched to vectors of sets' elements, each taken once.

        Not of S (SETNET 5.3 leaves it open): b is learned for whole sets, and is too high for single elements.

        Parameters
        ----------
        elements : (N, r)
            Elements of one set after another.
        sizes : (n,)
            Elements of each set.
        """
        with one_blas_thread():
            cosines = query @ elements.T
        return greedy_matches(cosines, np.concatenate([[0], np.cumsum(sizes)]))

    def score(self, query: Mapping[str, Array], items: Mapping[str, Array], task: str | None = None) -> Array:
        """S of every item as a set of one."""
        one = {name: np.reshape(query[name], (1, -1)) for name in self._dims if name in query}
        return self.score_sets(self.embed(one), self.embed(items))

    def closeness(self, left: Mapping[str, Array], right: Mapping[str, Array], task: str | None = None) -> Array:
        """S of each row of ``right`` for the row of ``left`` beside it, sets of one both."""
        return expit(self._w * np.einsum("ij,ij->i", self.embed(left), self.embed(right)) + self._b)

    def to_tensors(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The parameters, and ``whitening/mean`` and ``whitening/matrix`` where vectors are whitened; ``dims``."""
        tensors = dict(self.parameters)
        if self.whitening is not None:
            tensors |= {"whitening/mean": self.whitening.mean, "whitening/matrix": self.whitening.matrix}
        return tensors, {"dims": self._dims}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], description: Mapping[str, Any]) -> SetMetric:
        """The metric in these tensors."""
        dims = description["dims"]
        parameters = {name: tensors[name] for name in PARAMETERS}
        if wrong := misshapen(parameters, dims):
            raise ValueError(wrong)
        if "whitening/mean" not in tensors:
            return cls(dims, parameters)
        whitening = Whitening(tensors["whitening/mean"], tensors["whitening/matrix"])
        if whitening.matrix.shape != (len(parameters["p0"]),) * 2 or whitening.mean.shape != parameters["p0"].shape:
            raise ValueError(f"whitening of shapes {whitening.mean.shape}, {whitening.matrix.shape}")
        return cls(dims, parameters, whitening)


def misshapen(parameters: Mapping[str, Array], dims: Mapping[str, int]) -> str:
    """What is wrong with the shapes of these parameters, in words; empty if they fit."""
    D, K, r = sum(dims.values()), len(np.atleast_1d(parameters["c"])), len(np.atleast_1d(parameters["p0"]))
    expected = {
        "A": (K, D), "bias": (K,), "c": (K, D), "P": (r, K * D), "p0": (r,), "w": (), "b": (), "scale": (len(dims),)
    }  # fmt: skip
    for name, shape in expected.items():
        # Bytes hold no scalars, so a scalar comes back as an array with one number.
        if np.shape(parameters[name]) not in (shape, shape or (1,)):
            return f"{name} has shape {np.shape(parameters[name])}, expected {shape}"
    return ""
