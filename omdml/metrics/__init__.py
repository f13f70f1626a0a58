"""Metrics: immutable results of learning that embed and score items, and are published in snapshots.

They import scipy and compiled kernels only when they compute. A process that only reads a snapshot does not wait for
these.
"""

from omdml.metrics.base import CHUNK_ROWS, METRICS, Metric
from omdml.metrics.bilinear import BilinearMetric
from omdml.metrics.cosine import CosineMetric
from omdml.metrics.coupled import CoupledMetric
from omdml.metrics.diagonal import DiagonalMetric, SignedMetric
from omdml.metrics.full import FullMetric
from omdml.metrics.projection import ProjectionMetric
from omdml.metrics.sets import SetMetric

__all__ = [
    "CHUNK_ROWS",
    "METRICS",
    "BilinearMetric",
    "CosineMetric",
    "CoupledMetric",
    "DiagonalMetric",
    "FullMetric",
    "Metric",
    "ProjectionMetric",
    "SetMetric",
    "SignedMetric",
]
