"""Measures of retrieval and of learning (MATHS 11)."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from omdml.blas import one_blas_thread
from omdml.errors import MeasureError, quoted

Array = NDArray[Any]
# Number of queries whose distances to all rows are in memory at a time.
QUERIES_AT_ONCE = 256
# Gains double with every grade. The gain of this grade is still finite.
HIGHEST_GRADE = 1_000


def average_precision(relevance: ArrayLike) -> Array:
    """Average precision of ranked lists: the mean of the precision at each relevant place.

    Parameters
    ----------
    relevance : (..., n)
        True if the item at that rank is relevant. A list without a relevant item has 0.

    Examples
    --------
    >>> float(average_precision([True, False, True]))
    0.8333333333333333
    """
    hits = as_array("relevance", relevance, bool)
    hits_so_far = np.cumsum(hits, axis=-1)
    precision = np.where(hits, hits_so_far / np.arange(1, hits.shape[-1] + 1), 0.0)
    return precision.sum(axis=-1) / np.maximum(hits.sum(axis=-1), 1)


def rank_by_distance(embedded: ArrayLike, queries: ArrayLike) -> Array:
    """Rows in the order of their distance to each query row, the query itself left out: (Q, n - 1).

    Parameters
    ----------
    embedded : (n, R)
    queries : (Q,)
        Row numbers.

    Raises
    ------
    MeasureError
        There is no query, a query is not the number of a row, there are fewer than two rows, or embeddings or distances
        are not finite. (Sorting NaN distances can put the right answer first.)
    """
    vectors = as_array("embedded", embedded, np.float64)
    chosen = as_array("queries", queries)
    if not chosen.size:
        raise MeasureError("no query: give the row of at least one")
    if vectors.ndim != 2 or len(vectors) < 2:
        raise MeasureError(f"embeddings of shape {vectors.shape}, expected (n, R), n at least 2")
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= len(vectors):
        raise MeasureError(f"queries={quoted(queries)}: expected row numbers (Q,) from 0 to {len(vectors) - 1}")
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
    """Mean average precision of query rows against all other rows; rows of the same label are relevant (OMDML 5.2).

    ``embedded`` is (n, R), ``labels`` (n,), and ``queries`` (Q,) are row numbers. Raises the MeasureError of
    :func:`rank_by_distance`.
    """
    return float(average_precision(hits_by_distance(embedded, labels, queries)).mean())


def precision_at(embedded: ArrayLike, labels: ArrayLike, queries: ArrayLike, k: int) -> float:
    """Mean share of the same label among the k nearest; shapes and errors as in :func:`mean_average_precision`.

    Raises MeasureError also if k is below 1.
    """
    check_places(k)
    return float(hits_by_distance(embedded, labels, queries)[:, :k].mean())


def one_call_at(embedded: ArrayLike, labels: ArrayLike, queries: ArrayLike, k: int) -> float:
    """1-call@K: share of queries with an item of their label among the k nearest (CP-mtML 4).

    Shapes and errors are those of :func:`precision_at`.
    """
    return float(cumulative_match(embedded, labels, queries, k)[-1])


def cumulative_match(embedded: ArrayLike, labels: ArrayLike, queries: ArrayLike, k: int) -> Array:
    """CMC curve (min(k, n - 1),): share of queries with an item of their label among the 1, 2, ... nearest (RANK 6).

    Shapes and errors are those of :func:`precision_at`.
    """
    check_places(k)
    hits = hits_by_distance(embedded, labels, queries)[:, :k]
    return np.logical_or.accumulate(hits, axis=1).mean(axis=0)


def hits_by_distance(embedded: ArrayLike, labels: ArrayLike, queries: ArrayLike) -> Array:
    """Whether each row of :func:`rank_by_distance` has the query's label, (Q, n - 1).

    Raises its MeasureError, also if there is not one label for each row.
    """
    ranked, row_labels = rank_by_distance(embedded, queries), as_array("labels", labels)
    count = ranked.shape[1] + 1
    if row_labels.shape != (count,):
        raise MeasureError(f"labels of shape {row_labels.shape}, expected ({count},): one for each embedding")
    hits: Array = row_labels[ranked] == row_labels[np.asarray(queries)][:, None]
    return hits


def as_array(name: str, values: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """The values as an array of at least one dimension; raises MeasureError if they are no such array."""
    try:
        array = np.asarray(values, dtype)
    except (TypeError, ValueError) as error:
        raise MeasureError(f"{name}={quoted(values)}: expected an array ({error})") from error
    if not array.ndim:
        raise MeasureError(f"{name}={quoted(values)}: expected an array")
    return array


def check_places(k: object) -> None:
    """Raise MeasureError unless k is a whole number of at least 1."""
    if not isinstance(k, int | np.integer) or k < 1:
        raise MeasureError(f"k={k!r}: expected a number of places of at least 1")


def ndcg(relevance: ArrayLike, k: int) -> Array:
    """nDCG of ranked lists: discounted gain of the first k places, divided by that of the best order (SETNET Eq. 3).

    The gain of grade rel is ``2^rel - 1``. At place p it is divided by ``log2(p + 1)``.

    Parameters
    ----------
    relevance : (..., n)
        Grade, from 0 to 1,000, of the item at each rank. A list of zeros scores 0.
    k
        Number of places that count, at least 1.

    Raises
    ------
    MeasureError
        A grade or k is out of range.

    Examples
    --------
    >>> round(float(ndcg([0, 3, 1], k=2)), 3)
    0.579
    """
    check_places(k)
    grades = as_array("relevance", relevance, np.float64)
    bad = grades[~((grades >= 0) & (grades <= HIGHEST_GRADE))]
    if bad.size:
        raise MeasureError(f"grade of relevance {bad[0]:g}: expected 0 to {HIGHEST_GRADE}")
    gains = np.exp2(grades) - 1
    discount = 1 / np.log2(np.arange(2, min(k, grades.shape[-1]) + 2))
    best = np.sort(gains, axis=-1)[..., ::-1][..., : len(discount)] @ discount
    return (gains[..., : len(discount)] @ discount) / np.where(best > 0, best, 1.0)


def rank_by_score(scores: ArrayLike) -> Array:
    """Indices of items in the order of their scores (..., n), highest first; of equal scores, the lowest index first.

    Raises MeasureError if scores are not finite: sorted NaN scores can put the right answer first.
    """
    values = as_array("scores", scores, np.float64)
    if not np.isfinite(values).all():
        raise MeasureError("scores hold values that are not finite: the metric diverged, nothing can be measured")
    return np.argsort(-values, axis=-1, kind="stable")


class Prequential(msgspec.Struct):
    """Counts of mistakes, among all comparisons and among about the last thousand, each scored before it was learned.

    ``recent`` has the number of mistakes in each of the last eleven hundreds of comparisons, the newest last, which may
    be incomplete. A hundred begins at each multiple of 100 of all comparisons, so the counts do not depend on how
    comparisons were batched.
    """

    count: int = 0
    mistakes: int = 0
    recent: list[int] = []

    def __post_init__(self) -> None:
        """Raise ValueError for counts that no sequence of comparisons can have."""
        size = min(-(-self.count // 100), 11)
        if not (len(self.recent) == size and 0 <= self.mistakes <= self.count and set(self.recent) <= set(range(101))):
            counts = f"count {self.count}, mistakes {self.mistakes}, recent {self.recent[:12]}"
            raise ValueError(f"{counts}: no sequence of comparisons has these counts")

    def add(self, scores: Array) -> None:
        """Count comparisons by their scores f (n,); f > 0 is a mistake."""
        is_mistake = scores > 0
        start = 0
        while start < len(is_mistake):
            if self.count % 100 == 0:
                self.recent = [*self.recent[-10:], 0]
            part = is_mistake[start : start + 100 - self.count % 100]
            mistakes = int(part.sum())
            self.recent[-1] += mistakes
            self.mistakes += mistakes
            self.count += len(part)
            start += len(part)

    @property
    def mistake_rate(self) -> float:
        """Share of mistakes among all comparisons."""
        return self.mistakes / self.count if self.count else 0.0

    @property
    def recent_mistake_rate(self) -> float:
        """Share of mistakes among the comparisons that ``recent`` covers: the last 1,001 to 1,100, or all if fewer."""
        return sum(self.recent) / self.covered if self.covered else 0.0

    @property
    def covered(self) -> int:
        """Number of comparisons whose mistakes ``recent`` counts."""
        return (len(self.recent) - 1) * 100 + ((self.count - 1) % 100 + 1) if self.count else 0
