"""Metrics: what was learned, as immutable things that embed, score, and travel in a snapshot."""

from omdml.metrics.base import CHUNK_ROWS, METRICS, Metric
from omdml.metrics.full import FullMetric
from omdml.metrics.projection import ProjectionMetric

__all__ = ["CHUNK_ROWS", "METRICS", "FullMetric", "Metric", "ProjectionMetric"]
