"""Metrics of sets: one vector for each set, and greedy matching of elements (MATHS 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from omdml.blas import one_blas_thread
from omdml.metrics.base import Array, Metric, check_features, frozen, query_point
from omdml.pooling import Whitening, begins, checked_sets, netvlad, runs_of_sets, unit

# Names of the learned arrays, and of the modalities' factors; see :class:`SetMetric`.
PARAMETERS = ("A", "bias", "c", "P", "p0", "w", "b", "scale")


class SetMetric(Metric):
    """``S(q, set) = sigma(w v_q . v_set + b)``, v the reduced NetVLAD vector of a set, of unit length (SETNET 3).

    A single element is a set of one. The scores of several query elements are added up.

    Parameters
    ----------
    dims
        Dimension of each modality, in the order in which they lie side by side, D in total.
    parameters
        A (K, D), bias (K,), c (K, D), P (r, K D), p0 (r,), w (), b (), scale (m,).
    whitening
        Whitening of the vectors, which are scaled to unit length again. Scores then keep their meaning as an order, but
        are no probabilities.
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
        """d_i, the dimension of each modality, by name."""
        return dict(self._dims)

    @property
    def size(self) -> int:
        """Number of components of a vector."""
        return len(self.parameters["p0"])

    def embed(self, features: Mapping[str, Array], task: str | None = None) -> Array:
        """v of every row as a set of one: (n, r), of unit length. Inner products, not distances, are learned."""
        rows = check_features(features, self._dims)
        return self._embedded(features, list(np.arange(rows)[:, None]))

    def embed_sets(self, features: Mapping[str, Array], sets: Sequence[Array]) -> Array:
        """v of every set of row numbers: (n, r), of unit length.

        Raises FeedbackError if the features do not fit, or for a set that is empty or names rows that do not exist.
        """
        return self._embedded(features, checked_sets(sets, check_features(features, self._dims)))

    def _embedded(self, features: Mapping[str, Array], sets: Sequence[Array]) -> Array:
        """v (n, r) of sets whose row numbers were checked."""
        A, bias, c, P, p0 = (self.parameters[name] for name in ("A", "bias", "c", "P", "p0"))
        vectors = np.empty((len(sets), len(P)), P.dtype)
        with one_blas_thread():
            for part in runs_of_sets(sets, P.shape[1]):
                chunk = sets[part]
                touched, places = np.unique(np.concatenate(chunk), return_inverse=True)
                members = np.split(places, begins(chunk)[1:])
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
            return self._sigmoid(query @ vectors.T)

    def _sigmoid(self, products: Array) -> Array:
        """S of inner products of vectors."""
        from scipy.special import expit

        scores: Array = expit(self._w * products + self._b)
        return scores

    def score_sets(self, query: Array, vectors: Array) -> Array:
        """Scores (n,) of sets: the sum over query vectors (Q, r), or the score of an aggregated one (1, r)."""
        total: Array = self.similarities(query, vectors).sum(axis=0)
        return total

    def match(self, query: Array, elements: Array, sizes: Array) -> Array:
        """Scores (n,) of sets by greedy matching of query vectors (Q, r) and elements.

        The vectors of the query and the elements of a set are paired, each used once. A score is the sum of the cosines
        of the pairs. SETNET 5.3 does not say what to add up. S would not do, because b is learned for whole sets and is
        too high for single elements.

        Parameters
        ----------
        elements : (N, r)
            Vectors of the elements, one set after another.
        sizes : (n,)
            Number of elements of each set.
        """
        from omdml.kernels.retrieval.matching import greedy_matches

        with one_blas_thread():
            cosines = query @ elements.T
        return greedy_matches(cosines, np.concatenate([[0], np.cumsum(sizes)]))

    def score(self, query: Mapping[str, Array], items: Mapping[str, Array], task: str | None = None) -> Array:
        """S (n,) of every item as a set of one."""
        point = query_point(query, self.dims)
        return self.score_sets(self.embed(point), self.embed(items))

    def closeness(self, left: Mapping[str, Array], right: Mapping[str, Array], task: str | None = None) -> Array:
        """S (n,) of each row of ``right`` for the same row of ``left``, both as sets of one."""
        return self._sigmoid(np.einsum("ij,ij->i", self.embed(left), self.embed(right)))

    def to_tensors(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The parameters, and ``whitening/mean`` and ``whitening/matrix`` if vectors are whitened; ``dims``."""
        tensors = dict(self.parameters)
        if self.whitening is not None:
            tensors |= {"whitening/mean": self.whitening.mean, "whitening/matrix": self.whitening.matrix}
        return tensors, {"dims": self._dims}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], description: Mapping[str, Any]) -> SetMetric:
        """The metric in these tensors; raises KeyError or ValueError if they do not fit together."""
        dims = description["dims"]
        parameters = {name: tensors[name] for name in PARAMETERS}
        if wrong := misshapen(parameters, dims):
            raise ValueError(wrong)
        if "whitening/mean" not in tensors:
            return cls(dims, parameters)
        whitening = Whitening(tensors["whitening/mean"], tensors["whitening/matrix"])
        if whitening.matrix.shape != (len(parameters["p0"]),) * 2 or whitening.mean.shape != parameters["p0"].shape:
            shapes = f"whitening has shapes {whitening.mean.shape} and {whitening.matrix.shape}"
            raise ValueError(f"{shapes}, expected (r,) and (r, r) with r = {len(parameters['p0'])}")
        return cls(dims, parameters, whitening)


def misshapen(parameters: Mapping[str, Array], dims: Mapping[str, int]) -> str:
    """A sentence about the first parameter with a wrong shape; empty if all shapes fit."""
    D, K, r = sum(dims.values()), len(np.atleast_1d(parameters["c"])), len(np.atleast_1d(parameters["p0"]))
    expected = {
        "A": (K, D), "bias": (K,), "c": (K, D), "P": (r, K * D), "p0": (r,), "w": (), "b": (), "scale": (len(dims),)
    }  # fmt: skip
    for name, shape in expected.items():
        # safetensors has no scalars, so a scalar is read as an array of one number.
        if np.shape(parameters[name]) not in (shape, shape or (1,)):
            return f"{name} has shape {np.shape(parameters[name])}, expected {shape}"
    return ""
