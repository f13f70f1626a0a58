"""Items and metrics to search with, and answers by brute force."""

from __future__ import annotations

import numpy as np

from omdml.metrics import Metric, ProjectionMetric
from omdml.workers.node.galleries.gallery import Query

DIMS = {"color": 6, "text": 11}


class Bilinear(Metric):
    """A metric without an embedding: the product of the first modality's vectors."""

    kind = "bilinear of a test"
    euclidean = False
    dims = DIMS

    def embed(self, features, task=None):
        raise AssertionError("has no embedding")

    def score(self, query, items, task=None):
        return items["color"] @ np.ravel(query["color"])

    def to_tensors(self):
        return {}, {}

    @classmethod
    def from_tensors(cls, tensors, description):
        return cls()


def features(count: int, seed: int = 0, away: float = 0.0) -> dict[str, np.ndarray]:
    """Items in a few clusters, at the distance ``away`` from the origin."""
    draw = np.random.default_rng(seed)
    groups = draw.integers(0, 4, count)
    return {
        name: (away + draw.normal(size=(4, d))[groups] + 0.3 * draw.normal(size=(count, d))).astype(np.float32)
        for name, d in DIMS.items()
    }


def metric(seed: int = 0, base: ProjectionMetric | None = None, change: float = 0.0) -> ProjectionMetric:
    """A random metric, or one that differs from another by ``change``."""
    draw = np.random.default_rng(seed)
    if base is None:
        return ProjectionMetric(
            {"color": 0.3, "text": 0.7}, {n: draw.normal(size=(4, d)).astype(np.float32) for n, d in DIMS.items()}
        )
    weight = np.clip(base.weights["color"] * (1 + change * draw.normal()), 0, 1)
    matrices = {n: w + change * draw.normal(size=w.shape).astype(np.float32) for n, w in base.matrices.items()}
    return ProjectionMetric({"color": weight, "text": 1 - weight}, matrices)


def by_brute_force(metric: Metric, table, row: int) -> np.ndarray:
    """The distances of all items to an item, in float64."""
    exact = ProjectionMetric(metric.weights, {n: w.astype(np.float64) for n, w in metric.matrices.items()})
    embedding = exact.embed(table)
    distances = ((embedding - embedding[row]) ** 2).sum(axis=1)
    distances[row] = np.inf
    return distances


def query_of_row(row: int) -> Query:
    return Query(np.array([row]))
