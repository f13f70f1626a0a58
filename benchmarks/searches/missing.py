"""Items that lack modalities: what to put in their place, mAP with three in ten blocks missing (MATHS 17).

Learners learn on whole items, so that only the search is compared. *Left out*: a distance is that of the modalities
that both items have, divided by their share of the mean distance. *Mean*: the modality's mean over the catalogue.
*Conditional mean*: ridge regression from the modalities that are there, learned on the items that have all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.clicks import Array, Case, Features, begun, embedding, prepared, triplets
from benchmarks.quality import SETS, data_folder, split
from omdml.blas import one_blas_thread
from omdml.coordinates import MAPPED, CoordinateMap
from omdml.evaluate import average_precision, mean_average_precision
from omdml.metrics import Metric, ProjectionMetric

COUNT, SEEDS, MISSING = 1_000, (0, 1, 2), 0.3
RIDGES = (0.01, 0.1, 1.0)


def holes(names: Sequence[str], count: int, seed: int) -> dict[str, Array]:
    """Which items (n,) lack each modality; every item has one at least."""
    draw = np.random.default_rng(seed + 7)
    lacking = draw.random((count, len(names))) < MISSING
    whole = np.flatnonzero(lacking.all(axis=1))
    lacking[whole, draw.integers(0, len(names), len(whole))] = False
    return dict(zip(names, lacking.T, strict=True))


def mean_filled(features: Features, lacking: dict[str, Array]) -> Features:
    """Missing blocks are the mean of those that are there."""
    filled = {name: x.copy() for name, x in features.items()}
    for name, x in filled.items():
        x[lacking[name]] = features[name][~lacking[name]].mean(axis=0)
    return filled


def conditional(features: Features, lacking: dict[str, Array], ridge: float) -> Features:
    """Missing blocks are their conditional mean, by one joint Gaussian of the mean-filled items' moments.

    The covariance is that of the items that have both blocks; ``ridge`` is a share of the mean variance.
    """
    names = list(features)
    filled, means = mean_filled(features, lacking), {}
    for name in names:
        means[name] = features[name][~lacking[name]].mean(axis=0, dtype=np.float64)
    patterns, which = np.unique(np.stack([lacking[name] for name in names], axis=1), axis=0, return_inverse=True)
    centred = {name: features[name].astype(np.float64) - means[name] for name in names}
    for number, pattern in enumerate(patterns):
        if not pattern.any():
            continue
        rows = np.flatnonzero(which.ravel() == number)
        there = [name for name, gone in zip(names, pattern, strict=True) if not gone]
        has = ~np.any([lacking[name] for name in there], axis=0)
        for name in (name for name, gone in zip(names, pattern, strict=True) if gone):
            both = np.flatnonzero(has & ~lacking[name])
            if len(both) < 2:
                continue
            x = np.concatenate([centred[modality][both] for modality in there], axis=1)
            new = np.concatenate([centred[modality][rows] for modality in there], axis=1)
            # In the smaller of the two Gram matrices: there are often fewer items than numbers.
            gram = x @ x.T
            size = ridge * np.trace(gram) / min(x.shape)
            solved = np.linalg.solve(gram + size * np.eye(len(both)), centred[name][both])
            filled[name][rows] = (new @ x.T) @ solved + means[name]
    return filled


def left_out(metric: Metric, case: Case, lacking: dict[str, Array]) -> float:
    """MAP by distances of the modalities that both items have, divided by their share of the mean distance."""
    assert isinstance(metric, ProjectionMetric)
    features, test = case.items["features"], case.test
    names = list(metric.matrices)
    there = np.stack([~lacking[name] for name in names], axis=1).astype(float)
    total, weight = np.zeros((len(test), len(there))), np.zeros((len(test), len(there)))
    for place, name in enumerate(names):
        matrix = metric.matrices[name].astype(np.float64)
        z = features[name] @ matrix.T
        squares = np.einsum("ij,ij->i", z, z)
        apart = np.maximum(squares[test][:, None] + squares - 2 * z[test] @ z.T, 0) * metric.weights[name]
        both = there[test, place][:, None] * there[:, place]
        total += both * apart
        # The mean distance of a modality says how much of the whole is missing without it.
        weight += both * apart.mean()
    distances = np.where(weight > 0, total / np.maximum(weight, 1e-300), np.inf)
    distances[np.arange(len(test)), test] = -np.inf
    ranked = np.argsort(distances, axis=1, kind="stable")[:, 1:]
    return float(average_precision(case.labels[ranked] == case.labels[test][:, None]).mean())


def scores(name: str, seed: int) -> dict[str, dict[str, float]]:
    """The mAP of the test queries, by method and way. The queries lack blocks as all items do."""
    case = prepared(name, seed)
    features, labels, _, _ = split(name, seed)
    lacking = holes(list(features), len(labels), seed)
    ways: dict[str, Features] = {"whole": features, "mean": mean_filled(features, lacking)}
    ways |= {f"conditional, ridge {ridge:g}": conditional(features, lacking, ridge) for ridge in RIDGES}
    results: dict[str, dict[str, float]] = {}
    made = CoordinateMap.fit(features)
    views: dict[str, tuple[str, Callable[[Features], Features]]] = {
        "DCA": (MAPPED, lambda x: {MAPPED: made.apply(x)}), "LOMDML": ("features", lambda x: x)
    }  # fmt: skip
    for method, (of, view) in views.items():
        model = begun(method, case.items[of], case)
        model.learn_many(triplets(case, COUNT, 0.0), case.items[of])
        results[method] = {}
        for way, x in ways.items():
            results[method][way] = mean_average_precision(embedding(model.metric, view(x)), labels, case.test)
        if method == "LOMDML":
            results[method]["left out"] = left_out(model.metric, case, lacking)
        else:
            # The map is a sum over modalities. Only the terms of the present ones are added up here; that the metric
            # compares at unit length makes up for the size of the others.
            centre = {name: np.broadcast_to(x.mean(axis=0), x.shape) for name, x in features.items()}
            zero = made.apply(centre)
            parts = {name: made.apply({**centre, name: x}) - zero for name, x in features.items()}
            partial = sum(np.where(lacking[name][:, None], 0, part) for name, part in parts.items())
            results[method]["left out"] = mean_average_precision(
                embedding(model.metric, {MAPPED: partial}), labels, case.test
            )
    return results


def main(console: Console, names: Sequence[str] = tuple(SETS), seeds: Sequence[int] = SEEDS) -> None:
    """Print the table, or say why there is none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in names):
        console.print("Missing: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    with one_blas_thread():
        for name in names:
            results = [scores(name, seed) for seed in seeds]
            ways = list(results[0]["DCA"])
            table = Table(
                "method", *ways, title=f"{name}, mAP with {MISSING:.0%} of the blocks missing, {COUNT:,} triplets"
            )
            for method in results[0]:
                table.add_row(method, *(f"{np.mean([entry[method][way] for entry in results]):.3f}" for way in ways))
            console.print(table)
