"""Metrics of unit-length embeddings: cosines of learned projections (MATHS 12)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.blas import one_blas_thread
from omdml.metrics.base import Array, Metric, check_features, frozen, query_point

# Rows that are embedded at a time. Few enough to stay in the processor's cache: this is twice as fast as 16,384.
ROWS_AT_ONCE = 1024


class CosineMetric(Metric):
    """``D(p, q) = sum_j share_j |unit(W_j (p - mean)) - unit(W_j (q - mean))|^2``, all modalities side by side.

    An embedding has unit length, and D is 2 minus twice the weighted cosine, so it lies between 0 and 4. A projection
    of length 0 stays 0: it is at distance ``share_j`` from every other one, and the embedding is shorter.

    Parameters
    ----------
    dims
        Dimension of each modality, in the order in which they lie side by side, D in total.
    mean : (D,)
        The mean that is subtracted from items.
    experts
        W_j (r_j, D) by name, at least one; (0, D) stands for the identity.
    shares
        Weight of each expert, >= 0, 1 in total.
    """

    kind = "cosine"
    euclidean = True

    def __init__(
        self, dims: Mapping[str, int], mean: Array, experts: Mapping[str, Array], shares: Mapping[str, float]
    ) -> None:
        self._dims = dict(dims)
        self.mean = frozen(mean)
        self.experts = {name: frozen(matrix) for name, matrix in experts.items()}
        self.shares = {name: float(shares[name]) for name in experts}

    @property
    def dims(self) -> dict[str, int]:
        """d_i, the dimension of each modality, by name."""
        return dict(self._dims)

    @property
    def size(self) -> int:
        """R, the number of components of an embedding."""
        return sum(map(rows_of, self.experts.values()))

    def columns(self, task: str | None = None) -> dict[str, int]:
        """Number of components of the embedding for each expert."""
        return {name: rows_of(matrix) for name, matrix in self.experts.items()}

    def embed(self, features: Mapping[str, Array], task: str | None = None) -> Array:
        """``concat_j sqrt(share_j) unit(W_j (p - mean))`` of every row: (n, R).

        Rows have unit length, unless an expert projects an item to 0: its part of the row is 0 then.
        """
        rows = check_features(features, self._dims)
        embedded = np.empty((rows, self.size), self.mean.dtype)
        self._write_units(features, self._by_expert(embedded), self._factors())
        return embedded

    def _by_expert(self, embedded: Array) -> dict[str, Array]:
        """Each expert's columns of embedded items (n, R), as views."""
        ends = np.cumsum(list(self.columns().values()))[:-1]
        return dict(zip(self.experts, np.split(embedded, ends, axis=1), strict=True))

    def _factors(self) -> dict[str, Any]:
        """``sqrt(share_j)`` of each expert, in the metric's type."""
        return {name: self.mean.dtype.type(math.sqrt(share)) for name, share in self.shares.items()}

    def _write_units(
        self, features: Mapping[str, Array], parts: Mapping[str, Array], factors: Mapping[str, Any]
    ) -> None:
        """Write ``factor_j unit(W_j (p - mean))`` of every row to the part (n, r_j) of each of these experts."""
        from omdml.kernels.second_order.experts import unit_rows

        rows, width = len(next(iter(parts.values()))), max(self._counting[name] for name in parts)
        room = np.empty((min(rows, ROWS_AT_ONCE), width), self.mean.dtype)
        with one_blas_thread():
            for start in range(0, rows, ROWS_AT_ONCE):
                chunk = slice(start, min(start + ROWS_AT_ONCE, rows))
                centred = self._centred(features, chunk, room)
                for name, part in parts.items():
                    counting, matrix = self._counting[name], self.experts[name]
                    vectors = projected(centred[:, :counting], matrix[:, :counting])
                    unit_rows(vectors, factors[name], part[chunk])

    @cached_property
    def _counting(self) -> dict[str, int]:
        """How many of an item's numbers count for each expert: behind these, its W_j has zeros only.

        A learner leaves out the coordinates with the smallest variances, which come last (MATHS 12 (b)).
        """
        return {
            name: 1 + int(np.flatnonzero(matrix.any(axis=0)).max(initial=-1)) if len(matrix) else len(self.mean)
            for name, matrix in self.experts.items()
        }

    def _centred(self, features: Mapping[str, Array], part: slice, room: Array) -> Array:
        """The numbers of these items that count, minus the mean, side by side, in the first rows of ``room``."""
        centred, column = room[: part.stop - part.start], 0
        for name, width in self._dims.items():
            columns = slice(column, min(column + width, room.shape[1]))
            if columns.start < columns.stop:
                # One subtraction into ``room`` would take 1.7 times as long: numpy would copy the mean for each row.
                np.copyto(centred[:, columns], features[name][part, : columns.stop - column], casting="same_kind")
                centred[:, columns] -= self.mean[columns]
            column += width
        return centred

    def score(self, query: Mapping[str, Array], items: Mapping[str, Array], task: str | None = None) -> Array:
        """Minus the learned distance (n,) of each item: higher is closer."""
        point = query_point(query, self.dims)
        return minus_squares(self.embed(items) - self.embed(point))

    def closeness(self, left: Mapping[str, Array], right: Mapping[str, Array], task: str | None = None) -> Array:
        """Minus the learned distance (n,) of each row of ``left`` to the same row of ``right``."""
        return minus_squares(self.embed(left) - self.embed(right))

    def to_tensors(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """``<expert>/W``, ``shares`` in the order of ``experts``, ``mean``, and ``dims``."""
        tensors: dict[str, Array] = {f"{name}/W": matrix for name, matrix in self.experts.items()}
        tensors |= {"mean": self.mean, "shares": np.array(list(self.shares.values()), np.float64)}
        return tensors, {"dims": self._dims, "experts": list(self.experts)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], description: Mapping[str, Any]) -> CosineMetric:
        """The metric in these tensors; raises KeyError or ValueError if they do not fit together."""
        dims, names, mean, shares = description["dims"], description["experts"], tensors["mean"], tensors["shares"]
        experts, width = {name: tensors[f"{name}/W"] for name in names}, sum(dims.values())
        if not names or shares.shape != (len(names),) or mean.shape != (width,) or shares.min() < 0:
            raise ValueError(f"shares of shape {shares.shape} and a mean of shape {mean.shape} for {names}, {dims}")
        if any(matrix.ndim != 2 or matrix.shape[1] != width for matrix in experts.values()):
            raise ValueError(f"W of shapes {[matrix.shape for matrix in experts.values()]}, expected (r, {width})")
        return cls(dims, mean, experts, dict(zip(names, shares.tolist(), strict=True)))


class UnitVectors:
    """What each expert of a metric makes of some items: ``unit(W_j (p - mean))``, (n, r_j) by name.

    From one version of a model to the next, the matrices of most experts do not change. The vectors that an unchanged
    matrix makes of the same items are taken from the version before, and not computed again.

    Parameters
    ----------
    features
        One matrix (n, d) for each modality.
    before
        The vectors of the same items under an earlier metric; None: everything is computed.
    """

    def __init__(self, metric: CosineMetric, features: Mapping[str, Array], before: UnitVectors | None = None) -> None:
        self.metric = metric
        rows = check_features(features, metric.dims)
        unchanged = before.shared_with(metric) if before else {}
        new = {
            name: np.empty((rows, width), metric.mean.dtype)
            for name, width in metric.columns().items()
            if name not in unchanged
        }
        if new:
            metric._write_units(features, new, dict.fromkeys(new, metric.mean.dtype.type(1)))
        self.by_expert = {name: (unchanged | new)[name] for name in metric.experts}

    def shared_with(self, metric: CosineMetric) -> dict[str, Array]:
        """The vectors of the experts that another metric has as well, with the same matrix."""
        if not same_array(metric.mean, self.metric.mean) or metric.dims != self.metric.dims:
            return {}
        return {
            name: vectors
            for name, vectors in self.by_expert.items()
            if name in metric.experts and same_array(metric.experts[name], self.metric.experts[name])
        }

    def embed(self, rows: slice = slice(None)) -> Array:
        """The metric's embedding of these rows, with the same bytes: (n, R)."""
        vectors = {name: units[rows] for name, units in self.by_expert.items()}
        embedded = np.empty((len(next(iter(vectors.values()))), self.metric.size), self.metric.mean.dtype)
        factors = self.metric._factors()
        for name, part in self.metric._by_expert(embedded).items():
            np.multiply(vectors[name], factors[name], out=part)
        return embedded

    @property
    def nbytes(self) -> int:
        """How many bytes of memory the vectors take."""
        return sum(vectors.nbytes for vectors in self.by_expert.values())


def same_array(array: Array, other: Array) -> bool:
    """Whether two arrays hold the same numbers of the same type."""
    return array.dtype == other.dtype and np.array_equal(array, other)


def projected(vectors: Array, matrix: Array) -> Array:
    """Vectors (n, D) times W (r, D): (n, r). A matrix without rows leaves them as they are."""
    return vectors @ matrix.T if len(matrix) else vectors


def rows_of(matrix: Array) -> int:
    """Number of components of a projection by this matrix; D if it has no rows."""
    return len(matrix) or int(matrix.shape[1])


def unit(vectors: Array) -> Array:
    """The rows (n, R), scaled to unit length; a row of zeros stays as it is."""
    scaled: Array = (vectors / lengths(vectors)[:, None]).astype(vectors.dtype, copy=False)
    return scaled


def lengths(vectors: Array) -> NDArray[np.float64]:
    """The length (n,) of each row, and 1 for a row of zeros, which stays as it is if it is divided by that."""
    result: NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    result[result == 0] = 1.0
    return result


def minus_squares(differences: Array) -> Array:
    """Minus the squared length (n,) of each row (n, R)."""
    return -np.einsum("ij,ij->i", differences, differences)
