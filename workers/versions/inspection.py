"""What a snapshot holds, in words and numbers, and what changed between two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omdml.errors import StoreError
from omdml.evaluate import rank_by_distance
from omdml.metrics import CosineMetric, Metric
from omdml.snapshot import Snapshot

Array = NDArray[Any]
# Items asked, and neighbours of each, to tell how much answers changed.
SAMPLE, NEAREST = 200, 10
# Items among which these are looked for, at most.
GALLERY = 5_000
# Ends the name of a matrix that embeds all modalities together.
EXPERT = "/W"
# Tensors of weights, and the list that says whose they are.
WEIGHTS = {"weights": "modalities", "shares": "experts"}


class MetricTensor(NamedTuple):
    """One tensor of a metric.

    ``largest`` and ``smallest`` are singular values of a matrix, entries of a vector; ``directions`` is the effective
    number of directions that a matrix stretches, ``exp`` of the entropy of its squared singular values' shares.
    """

    name: str
    shape: tuple[int, ...]
    norm: float
    largest: float
    smallest: float
    directions: float | None


def parts(metric: Metric) -> Iterator[MetricTensor]:
    """The tensors of a metric but its weights."""
    for name, tensor in metric.to_tensors()[0].items():
        if name in WEIGHTS:
            continue
        values: Array = np.atleast_1d(tensor.astype(np.float64))
        if not values.size:
            # An expert without rows stands for the identity.
            values = np.eye(values.shape[1])
        norm, directions = float(np.linalg.norm(values)), None
        if values.ndim == 2:
            values = np.linalg.svd(values, compute_uv=False)
            share = values**2 / (float((values**2).sum()) or 1.0)
            directions = float(np.exp(-(share * np.log(np.where(share > 0, share, 1.0))).sum()))
        yield MetricTensor(name, tensor.shape, norm, float(values.max()), float(values.min()), directions)


def weight_owner(metric: Metric) -> str:
    """What the weights of a metric are of: a modality, or an expert that embeds all modalities together."""
    return "expert" if isinstance(metric, CosineMetric) else "modality"


def weights(metric: Metric) -> dict[str, float]:
    """Weights of the modalities, or of the experts that embed them together; empty if a metric has none."""
    tensors, description = metric.to_tensors()
    for name, owners in WEIGHTS.items():
        if name in tensors:
            return dict(zip(description[owners], tensors[name].tolist(), strict=True))
    return {}


class TensorChange(NamedTuple):
    """How one tensor changed: ``relative`` is the norm of the difference, as a share of the norm before."""

    name: str
    relative: float


def changes(before: Snapshot, after: Snapshot) -> list[TensorChange]:
    """How the tensors changed, weights among them unless they are those of experts, which come and go.

    Raises StoreError if the two are of different kinds or shapes.
    """
    old, new = before.metric.to_tensors()[0], after.metric.to_tensors()[0]
    experts: set[str] = set()
    if isinstance(before.metric, CosineMetric) and isinstance(after.metric, CosineMetric):
        old, new = with_all_experts(old, new), with_all_experts(new, old)
        experts = {name for name in old if name.endswith(EXPERT)}
    # An expert has as many rows as it knows directions.
    shapes = [{name: tensor.shape[name in experts :] for name, tensor in tensors.items()} for tensors in (old, new)]
    if before.metric.kind != after.metric.kind or shapes[0] != shapes[1]:
        raise StoreError(
            f"model {before.model!r}: versions {before.version} and {after.version} are metrics of different shapes "
            f"({before.metric.kind} {shapes[0]}, {after.metric.kind} {shapes[1]}): there is nothing to compare"
        )
    return [TensorChange(name, relative_change(old[name], new[name], name in experts)) for name in old]


def with_all_experts(tensors: Mapping[str, Array], others: Mapping[str, Array]) -> dict[str, Array]:
    """Experts' tensors of one metric, and those without a row that only the other one has."""
    missing = {name: tensor[:0] for name, tensor in others.items() if name not in tensors}
    return {name: tensor for name, tensor in sorted({**tensors, **missing}.items()) if name != "shares"}


def relative_change(old: Array, new: Array, expert: bool) -> float:
    """The size of the change relative to the old value. For an expert's rows A, the change of ``A'A``.

    What an expert says of two items depends on A'A alone: directions that are about as telling change places and signs.
    """
    old, new = old.astype(np.float64), new.astype(np.float64)
    if expert:
        size, both, other = (float((first @ two.T).ravel() @ (first @ two.T).ravel())
                             for first, two in ((old, old), (old, new), (new, new)))  # fmt: skip
        difference, norm = float(np.sqrt(max(0.0, size - 2 * both + other))), float(np.sqrt(size))
    else:
        difference, norm = float(np.linalg.norm(new - old)), float(np.linalg.norm(old))
    return difference / norm if norm else float(difference > 0)


def neighbours_kept(before: Metric, after: Metric, features: Mapping[str, Array], task: str | None = None) -> float:
    """Share of the nearest items that two metrics agree on, over items drawn with a fixed seed."""
    draw = np.random.default_rng(0)
    count = len(next(iter(features.values())))
    chosen = np.sort(draw.choice(count, min(GALLERY, count), replace=False))
    table = {name: np.asarray(features[name][chosen]) for name in before.dims}
    queries = draw.choice(len(chosen), min(SAMPLE, len(chosen)), replace=False)
    near = [nearest(metric, table, queries, task) for metric in (before, after)]
    shares = [len(set(a) & set(b)) / len(a) for a, b in zip(*(neighbours.tolist() for neighbours in near), strict=True)]
    return float(np.mean(shares))


def nearest(metric: Metric, table: Mapping[str, Array], queries: Array, task: str | None) -> Array:
    """Rows of the items nearest to each query row, itself left out: (q, NEAREST)."""
    if metric.euclidean:
        return rank_by_distance(metric.embed(table, task), queries)[:, :NEAREST]
    neighbours = []
    for query in queries:
        scores = metric.score({name: rows[query] for name, rows in table.items()}, table, task)
        order = np.argsort(-scores, kind="stable")
        neighbours.append(order[order != query][:NEAREST])
    return np.array(neighbours)
