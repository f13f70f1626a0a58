"""The base of metrics that score items for a query without an embedding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from omdml.blas import one_blas_thread
from omdml.errors import MeasureError
from omdml.metrics.base import CHUNK_ROWS, Array, Metric, check_features


class ScoredMetric(Metric):
    """Metrics without an embedding whose squared Euclidean distance would be the learned one."""

    euclidean = False

    def embed(self, features: Mapping[str, Array], task: str | None = None) -> Array:
        """Raise MeasureError: there is no embedding."""
        raise MeasureError(f"a {self.kind} metric has no embedding: use score(query, items)")

    @abstractmethod
    def score(self, query: Mapping[str, Array], items: Mapping[str, Array], task: str | None = None) -> Array:
        """The learned score (n,) of each item: higher is closer."""


def along(directions: Mapping[str, Array], items: Mapping[str, Array]) -> Array:
    """``sum_i x_i . direction_i`` of every item: (n,), by one matrix-vector product for each modality.

    Parameters
    ----------
    directions
        (d_i,) of each modality.
    items
        (n, d_i); raises FeedbackError if they do not fit.
    """
    rows = check_features(items, {name: len(direction) for name, direction in directions.items()})
    total: Array = np.zeros(rows, next(iter(directions.values())).dtype)
    with one_blas_thread():
        for name, direction in directions.items():
            for start in range(0, rows, CHUNK_ROWS):
                chunk = np.asarray(items[name][start : start + CHUNK_ROWS], direction.dtype)
                total[start : start + CHUNK_ROWS] += chunk @ direction
    return total
