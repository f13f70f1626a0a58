"""Quality on real data: mAP after one pass, all defaults, beside the paper's fixed rate at its best (MATHS 2)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from omdml import LOMDML
from omdml.builders import from_labels
from omdml.evaluate import mean_average_precision
from omdml.initial import start_matrices

Array = NDArray[Any]
SETS = {"caltech101_20": "y", "mfeat": "y", "leaves100": "y", "yaleb": "y"}
SEEDS = range(5)
ETAS = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
PAPER_ETAS = (0.001, 0.003, 0.01)


def data_folder() -> Path:
    """The folder of the data sets: ``$OMDML_DATA``, or ``shared/data`` beside the checkout."""
    return Path(os.environ.get("OMDML_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def split(name: str, seed: int) -> tuple[dict[str, Array], Array, Array, Array]:
    """Features scaled on the training part, labels, training rows, test queries (the protocol of OMDML 5.2)."""
    with np.load(data_folder() / f"{name}.npz") as data:
        raw = {key[2:]: np.asarray(data[key], np.float64) for key in data.files if key.startswith("X_")}
        labels = data[SETS[name]]
    order = np.random.default_rng(seed).permutation(len(labels))
    held = 300 if len(labels) < 2000 else 500
    test, train = order[:held], order[held + 500 :] if len(labels) >= 2000 else order[2 * held :]
    features = {}
    for modality, x in raw.items():
        low, high = x[train].min(axis=0), x[train].max(axis=0)
        features[modality] = ((x - low) / np.where(high > low, high - low, 1.0)).astype(np.float32)
    return features, labels, train, test


def score(model: LOMDML, features: dict[str, Array], labels: Array, test: Array) -> float:
    """MAP of the test queries against everything else; 0 if the model diverged."""
    embedded = model.metric.embed(features)
    return mean_average_precision(embedded, labels, test) if np.isfinite(embedded).all() else 0.0


def learned(
    features: dict[str, Array], labels: Array, train: Array, test: Array, seed: int, count: int, **options: Any
) -> float:
    """MAP after ``count`` triplets of training labels; 0 if learning was refused because it diverged."""
    model = LOMDML(dims={name: x.shape[1] for name, x in features.items()}, seed=seed, **options)
    sample = {name: x[train] for name, x in features.items()}
    model.start(sample)
    triplets = from_labels(labels, count, seed, among=train)
    try:
        model.learn_many(triplets, features)
    except Exception as error:
        if getattr(error, "reason", "") != "diverged":
            raise
        return 0.0
    return score(model, features, labels, test)


def paper_start(features: dict[str, Array], train: Array, seed: int) -> dict[str, Array]:
    """PCA rows at their own scale: the start beside which the paper's step is shown."""
    sample = {name: x[train] for name, x in features.items()}
    ranks = {name: min(50, x.shape[1]) for name, x in features.items()}
    started = start_matrices(sample, ranks, "pca", seed)
    return {name: w / np.linalg.norm(w[0]) for name, w in started.items()}


def measure(name: str, tick: Any) -> list[str]:
    """One row of the table: means over the seeds."""
    plain, small, large = [], [], []
    rates: dict[float, list[float]] = {eta: [] for eta in ETAS}
    paper: dict[float, list[float]] = {eta: [] for eta in PAPER_ETAS}
    for seed in SEEDS:
        features, labels, train, test = split(name, seed)
        plain.append(mean_average_precision(np.concatenate(list(features.values()), axis=1), labels, test))
        case = (features, labels, train, test, seed)
        small.append(learned(*case, 5_000))
        large.append(learned(*case, 50_000))
        for eta in ETAS:
            rates[eta].append(learned(*case, 50_000, eta=eta))
        start = paper_start(features, train, seed)
        for eta in PAPER_ETAS:
            paper[eta].append(learned(*case, 50_000, eta=eta, step="ogd", beta=0.99, memory=0, init=start))
        tick()
    means = {eta: float(np.mean(values)) for eta, values in rates.items()}
    best = max(PAPER_ETAS, key=lambda eta: np.mean(paper[eta]))
    worst = min(ETAS, key=lambda eta: means[eta])
    return [
        name, f"{np.mean(plain):.3f}", f"{np.mean(paper[best]):.3f} ({best:g})",
        f"{np.mean(large):.3f} ({min(large):.3f})",
        f"{np.mean(small):.3f} ({min(small):.3f})", f"{means[worst]:.3f} ({worst:g})",
    ]  # fmt: skip


def main(console: Console) -> None:
    """Print the table, or say why there is none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in SETS):
        console.print("Quality: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    columns = ("set", "plain features", "paper, best eta", "default, 50,000", "default, 5,000", "worst eta of 1e-4..10")
    table = Table(*columns, title="mAP of test queries, means over five seeds (the lowest seed in brackets)")
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("quality", total=len(SETS) * len(SEEDS))
        for name in SETS:
            table.add_row(*measure(name, lambda: progress.advance(task)))
    console.print(table)
