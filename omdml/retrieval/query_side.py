"""The query side: a learned metric in front of a database that keeps its raw vectors.

A linear metric compares a query q and an item x by ``|L q - L x|^2 = |L q|^2 - 2 (L' L q) . x + |L x|^2``, with the
items' mean subtracted from both. The first term is the same for all items, and so is what the mean adds to the inner
product. So if a database ranks its raw vectors by inner product with ``L' L q``, it ranks by the learned distance,
except for the last term: the learned length of an item is missing. A metric of cosines divides by that length instead
of adding it. How much the missing length costs depends on the data: measure it (:func:`shares_in_order`), and rank the
best few hundred again exactly (:func:`reranked`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from omdml.blas import one_blas_thread
from omdml.errors import MeasureError
from omdml.metrics.base import Metric
from omdml.metrics.cosine import CosineMetric, projected, unit
from omdml.metrics.projection import ProjectionMetric

Array = NDArray[Any]
Features = Mapping[str, Array]


class Shares(NamedTuple):
    """The share of triplets that each ranking has in order, 0 to 1.

    ``plain`` is that of the Euclidean distance between raw vectors, ``query_side`` that of the inner product with
    :func:`query_vectors`, and ``exact`` that of the metric.
    """

    plain: float
    query_side: float
    exact: float


def query_vectors(metric: Metric, queries: Features, sample: Features) -> Array:
    """What to give a database for queries: (n, D) float32, the modalities side by side in the order of ``metric.dims``.

    The database must hold the same features in the same order, and rank by inner product, the largest first.

    Parameters
    ----------
    metric
        A metric of ``lomdml`` or ``dca``.
    queries
        Features (n, d_i) of each modality.
    sample
        Features (m, d_i) of some of the database's items; a thousand are enough. For ``lomdml`` they say where the
        items' mean lies, for ``dca`` how long their projections are.

    Raises
    ------
    MeasureError
        The metric is one of another learner.

    Examples
    --------
    >>> metric = ProjectionMetric({"x": 1.0}, {"x": np.array([[2.0, 0.0], [0.0, 0.5]])})
    >>> query_vectors(metric, {"x": np.array([[1.0, 1.0]])}, {"x": np.zeros((1, 2))})
    array([[4.  , 0.25]], dtype=float32)
    """
    with one_blas_thread():
        if isinstance(metric, ProjectionMetric):
            return _by_projection(metric, queries, sample)
        if isinstance(metric, CosineMetric):
            return _by_cosines(metric, queries, sample)
    raise MeasureError(
        f"a {metric.kind} metric has no query side: expected one of 'lomdml' or 'dca'; search at a node instead"
    )


def reranked(metric: Metric, query: Features, candidates: Features, k: int) -> NDArray[np.int64]:
    """Row numbers (k,) of the candidates nearest to one query under the metric, nearest first.

    Parameters
    ----------
    metric
        Any metric.
    query
        Features (1, d_i) of each modality.
    candidates
        Features (c, d_i) of the items that the database answered. With a few hundred, its order hardly matters.
    k
        How many of them to return; all if there are fewer.

    Raises
    ------
    FeedbackError
        Features do not fit the metric.
    """
    scores = np.asarray(metric.score(query, candidates))
    return np.argsort(-scores, kind="stable")[:k]


def shares_in_order(metric: Metric, triplets: ArrayLike, features: Features, sample: Features) -> Shares:
    """How many triplets plain distance, the query side alone and the metric itself have in order.

    If the query side has fewer in order than plain distance, take candidates by plain distance, and rank those again.

    Parameters
    ----------
    metric
        A metric of ``lomdml`` or ``dca``.
    triplets : (n, 3)
        Row numbers of query, relevant item and irrelevant item in ``features``. They must not have been learned.
    features
        Features (m, d_i) of each modality.
    sample
        As for :func:`query_vectors`.

    Raises
    ------
    MeasureError
        The metric is one of another learner.
    """
    rows = np.asarray(triplets, np.int64)
    parts = [{name: features[name][rows[:, column]] for name in metric.dims} for column in range(3)]
    query, near, far = parts
    q, r, s = (side_by_side(metric, part) for part in parts)
    plain = ((q - r) ** 2).sum(axis=1) < ((q - s) ** 2).sum(axis=1)
    products = np.einsum("ij,ij->i", query_vectors(metric, query, sample), r - s)
    exact = metric.closeness(query, near) > metric.closeness(query, far)
    return Shares(float(plain.mean()), float((products > 0).mean()), float(exact.mean()))


def side_by_side(metric: Metric, features: Features) -> Array:
    """The modalities of a metric side by side, one vector for each item: (n, D) float32."""
    return np.concatenate([np.asarray(features[name], np.float32) for name in metric.dims], axis=1)


def _by_projection(metric: ProjectionMetric, queries: Features, sample: Features) -> Array:
    """As :func:`query_vectors`: ``theta_i W_i' W_i (q_i - mean_i)``, side by side."""
    parts = []
    for name, matrix in metric.matrices.items():
        centred = np.asarray(queries[name], np.float64) - np.asarray(sample[name], np.float64).mean(axis=0)
        parts.append(metric.weights[name] * (centred @ matrix.T @ matrix))
    return np.concatenate(parts, axis=1).astype(np.float32)


def _by_cosines(metric: CosineMetric, queries: Features, sample: Features) -> Array:
    """As :func:`query_vectors`: the sum over experts, each weighted by its share over a typical length."""
    query, items = (side_by_side(metric, features) - metric.mean for features in (queries, sample))
    total = np.zeros(query.shape)
    for name, matrix in metric.experts.items():
        # A typical length of projected items stands for those of all items, which the query cannot know.
        length = np.sqrt((projected(items, matrix) ** 2).sum(axis=1).mean()) or 1.0
        direction = unit(projected(query, matrix)) * (metric.shares[name] / length)
        total += direction @ matrix if len(matrix) else direction
    return total.astype(np.float32)
