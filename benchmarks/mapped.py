"""Mapped coordinates: LOMDML on them beside LOMDML on the features, and what a map costs (MATHS 13)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.learning.speed import NINE
from benchmarks.quality import SEEDS, SETS, data_folder, score, split
from omdml import LOMDML
from omdml.builders import from_labels
from omdml.coordinates import MAPPED, CoordinateMap
from omdml.evaluate import mean_average_precision
from omdml.streams.catalogues.building.build import build_catalogue

Array = NDArray[Any]
COUNTS = (200, 1_000, 10_000)
DIMS = {"one of 128": [128], "nine, of 3,209 in all": NINE}
ITEMS, QUERIES = 100_000, 200


def curve(features: dict[str, Array], labels: Array, train: Array, test: Array, seed: int) -> Iterator[float]:
    """MAP of the numbers themselves, then after each number of triplets of training labels."""
    yield mean_average_precision(np.concatenate(list(features.values()), axis=1), labels, test)
    model = LOMDML(dims={name: x.shape[1] for name, x in features.items()}, seed=seed)
    model.start({name: x[train] for name, x in features.items()})
    triplets = from_labels(labels, COUNTS[-1], seed, among=train)
    for first, stop in zip((0, *COUNTS), COUNTS, strict=False):
        model.learn_many(triplets[first:stop], features)
        yield score(model, features, labels, test)


def quality(name: str) -> list[str]:
    """One row: means over the seeds, features and mapped coordinates."""
    curves: list[tuple[list[float], list[float]]] = []
    for seed in SEEDS:
        features, labels, train, test = split(name, seed)
        made = CoordinateMap.fit({modality: x[train] for modality, x in features.items()})
        case = (labels, train, test, seed)
        curves.append((list(curve(features, *case)), list(curve({MAPPED: made.apply(features)}, *case))))
    means = np.mean(curves, axis=0)
    return [name, *(f"{before:.3f} {after:.3f}" for before, after in zip(*means, strict=True))]


def cost(name: str, sizes: list[int]) -> list[str]:
    """One row: a synthetic catalogue with a map and without, and single queries."""
    draw = np.random.default_rng(0)
    # few directions carry most of the variance, as in descriptors
    features = {
        f"m{number}": (draw.standard_normal((ITEMS, 20), np.float32) @ draw.standard_normal((20, size), np.float32))
        + draw.standard_normal((ITEMS, size), np.float32)
        for number, size in enumerate(sizes)
    }
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        for mapped in (False, True):
            began = time.process_time()
            built = build_catalogue(Path(folder) / str(mapped), features, mapped=mapped)
            seconds[mapped] = time.process_time() - began
        assert built.map
        view, map_bytes = built.in_coordinates(MAPPED), built.map.nbytes
        queries = [{modality: x[row : row + 1] for modality, x in features.items()} for row in range(QUERIES)]
        took = []
        for query in queries:
            began = time.perf_counter()
            view.scale(query)
            took.append(time.perf_counter() - began)
        dim = built.map.dim
    return [
        name, f"{seconds[False]:.1f} s", f"{seconds[True]:.1f} s", f"{min(took) * 1e6:,.0f} us",
        f"{4 * sum(sizes):,} + {4 * dim:,}", f"{map_bytes / 1e6:.1f} MB",
    ]  # fmt: skip


def main(console: Console) -> None:
    """Print both tables; only the second one if the data sets are missing."""
    if all((data_folder() / f"{name}.npz").is_file() for name in SETS):
        columns = ("set", "learned nothing", *(f"{count:,} triplets" for count in COUNTS))
        table = Table(
            *columns, title="mAP of test queries, means over five seeds: features, mapped coordinates (LOMDML)"
        )
        for name in SETS:
            table.add_row(*quality(name))
        console.print(table)
    else:
        console.print("Mapped: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
    columns = ("modalities", "build, no map", "with a map", "a raw query", "bytes an item", "map")
    table = Table(*columns, title=f"{ITEMS:,} synthetic items, seconds of one core")
    for name, sizes in DIMS.items():
        table.add_row(*cost(name, sizes))
    console.print(table)
