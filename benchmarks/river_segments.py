"""A river pipeline on ImageSegments: nearest neighbours on scaled features, and on learned ones."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from river import datasets, metrics, neighbors, preprocessing

from omdml.adapters.river import MetricTransformer

LEARNERS = ("diagonal", "lomdml")
SEEDS = range(3)


def nearest() -> neighbors.KNNClassifier:
    """Exact search: the default engine is approximate, and draws without a seed."""
    return neighbors.KNNClassifier(engine=neighbors.LazySearch(window_size=1000))


def accuracy(model: Any) -> float:
    """The share of samples that were classified rightly before they were learned."""
    right = metrics.Accuracy()
    for x, y in datasets.ImageSegments():
        right.update(y, model.predict_one(x))
        model.learn_one(x, y)
    return float(right.get())


def main(console: Console) -> None:
    plain = accuracy(preprocessing.StandardScaler() | nearest())
    table = Table("features", "accuracy", title="river: KNNClassifier on ImageSegments, test-then-learn")
    table.add_row("scaled", f"{plain:.4f}")
    for name in LEARNERS:
        for seed in SEEDS:
            model = preprocessing.StandardScaler() | MetricTransformer(name, seed=seed) | nearest()
            table.add_row(f"scaled | MetricTransformer({name!r}, seed={seed})", f"{accuracy(model):.4f}")
    console.print(table)


if __name__ == "__main__":
    main(Console())
