"""How far a metric is from an earlier one, as its tensors alone tell: norms, spreads and weights.

No event is needed for it, so it also protects models of which too little was held out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omdml.metrics import Metric
from omdml.metrics.cosine import CosineMetric
from omdml.workers.model.judging.reason_codes import WORDS


class Shape(NamedTuple):
    """Norms and spreads of a metric by what they are of, and its weights."""

    sizes: dict[str, float]
    weights: list[float]


def shape_of(metric: Metric) -> Shape:
    """What leaps are measured by: the sizes and the weights of a metric."""
    return Shape(dict(sizes(metric)), weights(metric))


def leap(before: Shape, now: Shape, growth: float, moved: float) -> str:
    """What changed too much between two metrics; empty if nothing did.

    A size may become up to ``growth`` times as large or small. At most the share ``moved`` of the weight may have
    moved.
    """
    for name, size in now.sizes.items():
        usual = before.sizes.get(name, 0.0)
        if usual and not usual / growth <= size <= usual * growth:
            return f"{name} went from {usual:.3g} to {size:.3g} at once"
    share = weight_moved(before.weights, now.weights)
    return f"{share:.0%} {WORDS['weight_moved']} between modalities at once" if share > moved else ""


def not_finite(metric: Metric) -> str:
    """Which tensor holds values that are not finite; empty if none does."""
    for name, tensor in metric.to_tensors()[0].items():
        if not np.isfinite(tensor).all():
            return f"{name} {WORDS['not_finite']}"
    return ""


def sizes(metric: Metric) -> Iterator[tuple[str, float]]:
    """Norm of every tensor, and of a matrix W how many directions it stretches: ``(tr G / |G|_F)^2``, G = W W'.

    The norm of a cosine metric's W says nothing, because what W projects is scaled to unit length.
    """
    cosine = isinstance(metric, CosineMetric)
    for name, tensor in metric.to_tensors()[0].items():
        if name != "weights" and tensor.ndim and not (cosine and tensor.ndim == 2):
            yield f"{WORDS['leap_norm']} {name}", norm(tensor)
        if tensor.ndim == 2:
            gram = tensor @ tensor.T if len(tensor) <= tensor.shape[1] else tensor.T @ tensor
            yield (
                f"{WORDS['leap_spread']} {name} over directions",
                float(gram.trace() / (norm(gram) or 1.0)) ** 2,
            )


def norm(tensor: NDArray[Any]) -> float:
    """The same as ``numpy.linalg.norm``, which takes longer to look at its arguments than to add up a small tensor."""
    flat = tensor.ravel(order="K")
    return float(np.sqrt(flat.dot(flat)))


def weights(metric: Metric) -> list[float]:
    """The weight of each modality; empty if the metric has none."""
    tensor = metric.to_tensors()[0].get("weights")
    return [] if tensor is None else np.asarray(tensor, np.float64).tolist()


def weight_moved(before: list[float], after: list[float]) -> float:
    """Share of the weight that went from some modalities to others."""
    return float(np.abs(np.subtract(after, before)).sum() / 2) if before and after else 0.0
