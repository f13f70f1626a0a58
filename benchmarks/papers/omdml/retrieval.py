"""Retrieval as OMDML's tables measure it: a set, triplets of its training labels, queries that rank everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality import split
from omdml.builders import from_labels
from omdml.evaluate import average_precision, rank_by_score
from omdml.initial import principal

Array = NDArray[Any]
Scorer = Callable[[Array], Array]  # of query rows (q,): how close all items are (q, n)
# The number of queries to choose on.
VALIDATION = 200


class Best(NamedTuple):
    """The candidate that validation queries chose."""

    # MAP of the validation queries.
    score: float
    index: int
    scorer: Scorer


class Case(NamedTuple):
    """A set scaled to [0, 1], triplets, and queries."""

    features: dict[str, Array]
    labels: Array
    rows: Array  # (T, 3)
    train: Array
    validation: Array
    test: Array
    seed: int

    def with_triplets(self, triplets: int) -> Case:
        """The same with ``triplets`` triplets of training labels."""
        return self._replace(rows=from_labels(self.labels, triplets, self.seed, among=self.train))

    def score(self, scorer: Scorer, queries: Array) -> float:
        """MAP of these queries against everything else."""
        scores = np.array(scorer(queries), float)
        # The query itself must come last.
        scores[np.arange(len(queries)), queries] = scores.min() - 1
        ranked = rank_by_score(scores)[:, :-1]
        return float(average_precision(self.labels[ranked] == self.labels[queries][:, None]).mean())

    def best(self, candidates: list[Scorer]) -> Best:
        """The best of these on validation queries."""
        scores = [self.score(scorer, self.validation) for scorer in candidates]
        index = int(np.argmax(scores))
        return Best(scores[index], index, candidates[index])

    def reduced(self, x: Array, size: int) -> Array:
        """A descriptor (n, d) centred, on its first ``size`` principal directions of the training part, or all d."""
        centred = x - x[self.train].mean(axis=0, dtype=float)
        return centred @ principal(centred[self.train], min(size, x.shape[1]))[1].T

    def model(self, made: Callable[..., Any], features: Mapping[str, Array], **options: Any) -> Any:
        """A learner of ours, begun on the training part."""
        model = made({name: x.shape[1] for name, x in features.items()}, seed=self.seed, **options)
        model.start({name: x[self.train] for name, x in features.items()})
        return model


def prepared(name: str, seed: int, triplets: int) -> Case:
    """A set by the protocol of `benchmarks/quality.py`."""
    features, labels, train, test = split(name, seed)
    rest = np.setdiff1d(np.arange(len(labels)), np.concatenate([train, test]))
    validation = np.random.default_rng(seed).permutation(rest)[:VALIDATION]
    return Case(features, labels, np.empty((0, 3), int), train, validation, test, seed).with_triplets(triplets)


def near(z: Array) -> Scorer:
    """Minus the squared distances of embedded items (n, r)."""
    norms = np.einsum("ij,ij->i", z, z)
    return lambda queries: 2 * z[queries] @ z.T - norms - norms[queries][:, None]
