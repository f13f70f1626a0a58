"""Vectors of sets: SETNET's baselines and SetNet, and how sets are scored by them and chosen."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.setnet.galleries import Gallery, World, measured
from omdml import SetNet
from omdml.comparisons import Judgement
from omdml.kernels.retrieval.matching import greedy_matches
from omdml.metrics import SetMetric
from omdml.pooling import Whitening, fit_whitening, generalised_mean, mean_pooling

Array = NDArray[Any]
Encode = Callable[[Sequence[Array]], Array]  # vectors (n, r), of unit length, of sets of row numbers
Score = Callable[[Encode, Gallery, int], Array]  # scores (Q, n) of sets of so many elements
# Numbers of elements in a set.
SIZES = (2, 3, 4, 5)
# Ranks of whitening, and p of the generalised mean.
RANKS, POWERS = (32, 64, 128), (1.0, 1.5, 3.0)
# STOPS are numbers of judgements, whose sets have TRAINED elements.
ETAS, STOPS, TRAINED = (0.001, 0.01), (1_000, 4_000), 3
W = " + W"
CHANCE, MEAN, GENERALISED, ELEMENTS = "chance", "mean pooling", "generalised mean", "element by element"
MEAN_LEARNED, SETNET, START = "mean pooling, learned", "SetNet", "SetNet, not trained"


class Case(NamedTuple):
    """The gallery on which methods are chosen, and the one on which they are measured."""

    validation: Gallery
    test: Gallery

    def best(self, candidates: Mapping[str, Encode], score: Score) -> dict[str, Any]:
        """What is kept of a method: the setting of highest nDCG@10 on validation, means over the sizes."""
        of = {setting: np.mean(curve(encode, score, self.validation)[0]) for setting, encode in candidates.items()}
        chosen = max(of, key=lambda setting: of[setting])
        return self.only(candidates[chosen], score, chosen)

    def only(self, encode: Encode, score: Score, chosen: str = "") -> dict[str, Any]:
        """The same for a method without settings to choose from."""
        return {"chosen": chosen, "ndcg": curve(encode, score, self.test)}


def curve(encode: Encode, score: Score, where: Gallery) -> list[list[float]]:
    """NDCG@10 and nDCG@30 by size of set."""
    return np.transpose([measured(where.relevance, score(encode, where, size)) for size in SIZES]).tolist()


def singles(encode: Encode, rows: Array) -> Array:
    """Vectors (..., r) of elements as sets of one."""
    touched, places = np.unique(rows, return_inverse=True)
    vectors: Array = encode(list(touched[:, None]))[places.reshape(rows.shape)]
    return vectors


def by_cosines(encode: Encode, where: Gallery, size: int) -> Array:
    """Cosines of query elements and sets, added up."""
    return singles(encode, where.queries).sum(axis=1) @ encode(list(where.sets[:, :size])).T


def by_logistic(metric: SetMetric, encode: Encode, where: Gallery, size: int) -> Array:
    """The scores that SetNet learns, which a node serves: a logistic function of each cosine, added up."""
    asked, sets = singles(encode, where.queries), encode(list(where.sets[:, :size]))
    return metric.similarities(asked.reshape(-1, metric.size), sets).reshape(*asked.shape[:2], -1).sum(axis=1)


def by_elements(encode: Encode, where: Gallery, size: int) -> Array:
    """Greedy matching of query elements to the elements of each set."""
    elements = singles(encode, where.sets[:, :size]).reshape(len(where.sets) * size, -1)
    begins = np.arange(0, len(elements) + 1, size)
    return np.array([greedy_matches(asked @ elements.T, begins) for asked in singles(encode, where.queries)])


def set_vectors(case: Case, given: World, method: str, metrics: Mapping[str, SetMetric]) -> dict[str, Any]:
    """The learned metric that validation chooses, and the same with its vectors whitened.

    They are whitened by the learner's own ``whiten``: all directions are kept, the covariance is shrunk, and nothing is
    chosen. Averages keep as many directions as validation chooses among RANKS.
    """
    plain = case.best({setting: encoder(given, metric) for setting, metric in metrics.items()}, by_cosines)
    white = encoder(given, metrics[plain["chosen"]], whiten=True)
    return {method: plain, method + W: case.only(white, by_cosines)}


def pooled(given: World, judged: Sequence[Judgement]) -> dict[str, dict[str, Encode]]:
    """Averages of elements, by setting. The whitening of generalised means is fitted on the sets to learn from.

    A generalised mean needs numbers that are not negative. So it is that of positive and negative parts, side by side.
    """
    sets = [rows for judgement in judged for rows in judgement.irrelevant]
    parts = np.hstack([np.maximum(given.x, 0.0), np.maximum(-given.x, 0.0)])
    powers: dict[str, Encode] = {f"p {p:g}": partial(generalised_mean, parts, power=p) for p in POWERS}
    white = {
        f"{setting}, {rank}": partial(encode, whitening=whitening)
        for setting, encode in powers.items()
        for rank, whitening in whitenings(encode(sets)).items()
    }
    averaged = averages(given)
    return {MEAN: {"": averaged.pop("")}, MEAN + W: averaged, GENERALISED: powers, GENERALISED + W: white}


def averages(given: World) -> dict[str, Encode]:
    """Means of unit elements, as they are or whitened."""
    white = whitenings(given.x[given.known]).items()
    return {
        "": partial(mean_pooling, given.x),
        **{rank: partial(mean_pooling, given.x, whitening=whitening) for rank, whitening in white},
    }


def whitenings(sample: Array) -> dict[str, Whitening]:
    """The whitenings of a sample (n, d), by rank."""
    return {f"rank {rank}": fit_whitening(sample, rank) for rank in RANKS}


def averaging(size: int) -> dict[str, Array]:
    """Parameters of one cluster with which SetNet is mean pooling of unit elements."""
    zeros = {"A": (1, size), "bias": 1, "c": (1, size), "p0": size}
    ones = {"P": np.eye(size), "w": np.array(10.0), "b": np.array(-3.0), "scale": np.ones(1)}
    return {**{name: np.zeros(shape) for name, shape in zeros.items()}, **ones}


def learned(given: World, judged: Sequence[Judgement], init: Any, seed: int) -> dict[str, SetMetric]:
    """SetNet's metrics, by rate and judgements; that of its start is named ''."""
    metrics = {}
    for eta in ETAS:
        model = SetNet({"x": given.x.shape[1]}, init=init, eta=eta, whiten=True, seed=seed)
        model.start({"x": given.x[given.known]})
        metrics[""] = model.metric
        for begin, end in itertools.pairwise((0, *STOPS)):
            model.learn_many(judged[begin:end], {"x": given.x})
            metrics[f"eta {eta:g}, {end:,}"] = model.metric
    return metrics


def encoder(given: World, metric: SetMetric, whiten: bool = False) -> Encode:
    """The encoder of a metric that was learned, its vectors whitened or not."""
    served = metric if whiten else SetMetric(metric.dims, metric.parameters)
    return partial(served.embed_sets, {"x": given.x})
