"""Measures of retrieval and of learning (MATHS 11)."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from omdml.blas import one_blas_thread
from omdml.errors import MeasureError

Array = NDArray[Any]
QUERIES_AT_ONCE = 256


def average_precision(relevance: ArrayLike) -> Array:
    """Of ranked lists: mean over the relevant places of the precision there.

    Parameters
    ----------
    relevance : (..., n)
        True where the item at that rank is relevant. A list without any scores 0.

    Examples
    --------
    >>> float(average_precision([True, False, True]))
    0.8333333333333333
    """
    hits = np.asarray(relevance, bool)
    found = np.cumsum(hits, axis=-1)
    precision = np.where(hits, found / np.arange(1, hits.shape[-1] + 1), 0.0)
    return precision.sum(axis=-1) / np.maximum(hits.sum(axis=-1), 1)


def rank_by_distance(embedded: ArrayLike, queries: ArrayLike) -> Array:
    """Rows in the order of their distance to each query row, the query itself left out: (q, n - 1).

    Raises MeasureError where embeddings are not finite: sorted NaN distances can put the right answer first.
    """
    vectors = np.asarray(embedded, np.float64)
    chosen = np.asarray(queries)
    if not np.isfinite(vectors).all():
        raise MeasureError("embeddings hold values that are not finite: the metric diverged, nothing can be measured")
    vectors = vectors - vectors.mean(axis=0)
    norms = np.einsum("ij,ij->i", vectors, vectors)
    if not np.isfinite(norms).all():
        raise MeasureError("distances between embeddings overflow: the metric diverged, nothing can be measured")
    ranked = np.empty((len(chosen), len(vectors) - 1), np.int64)
    with one_blas_thread():
        for start in range(0, len(chosen), QUERIES_AT_ONCE):
            part = chosen[start : start + QUERIES_AT_ONCE]
            distance = norms - 2 * (vectors[part] @ vectors.T)
            distance[np.arange(len(part)), part] = -np.inf
            ranked[start : start + len(part)] = np.argsort(distance, axis=1, kind="stable")[:, 1:]
    return ranked


def mean_average_precision(embedded: ArrayLike, labels: ArrayLike, queries: ArrayLike) -> float:
    """MAP of query rows against all other rows, those of the same label relevant (OMDML 5.2)."""
    labels = np.asarray(labels)
    ranked = rank_by_distance(embedded, queries)
    return float(average_precision(labels[ranked] == labels[np.asarray(queries)][:, None]).mean())


def precision_at(embedded: ArrayLike, labels: ArrayLike, queries: ArrayLike, k: int) -> float:
    """Mean share of the same label among the k nearest."""
    labels = np.asarray(labels)
    ranked = rank_by_distance(embedded, queries)[:, :k]
    return float((labels[ranked] == labels[np.asarray(queries)][:, None]).mean())


class Prequential(msgspec.Struct):
    """Mistakes as they came, test-then-learn: of all comparisons, and of about the last thousand.

    Counts are whole numbers a hundred comparisons, so that any chunking gives the same state.
    """

    count: int = 0
    mistakes: int = 0
    recent: list[int] = []

    def add(self, scores: Array) -> None:
        """Take in f of comparisons, f > 0 being a mistake."""
        wrong = scores > 0
        at = 0
        while at < len(wrong):
            if self.count % 100 == 0:
                self.recent = [*self.recent[-10:], 0]
            part = wrong[at : at + 100 - self.count % 100]
            found = int(part.sum())
            self.recent[-1] += found
            self.mistakes += found
            self.count += len(part)
            at += len(part)

    @property
    def mistake_rate(self) -> float:
        """Share of mistakes among all comparisons."""
        return self.mistakes / self.count if self.count else 0.0

    @property
    def recent_mistake_rate(self) -> float:
        """Share of mistakes among the last thousand or so."""
        covered = (len(self.recent) - 1) * 100 + ((self.count - 1) % 100 + 1) if self.count else 0
        return sum(self.recent) / covered if covered else 0.0
