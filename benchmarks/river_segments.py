"""A river pipeline on ImageSegments: nearest neighbours on scaled features, and on learned ones."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from river import datasets, metrics, neighbors, preprocessing

from omdml.adapters.river import MetricTransformer

LEARNERS = ("lomdml", "omdml", "qwise", "diagonal", "cpmtml")


def accuracy(model: Any) -> float:
    """Share of samples that were told right before they were learned."""
    right = metrics.Accuracy()
    for x, y in datasets.ImageSegments():
        right.update(y, model.predict_one(x))
        model.learn_one(x, y)
    return float(right.get())


def main(console: Console) -> None:
    """Print both."""
    plain = accuracy(preprocessing.StandardScaler() | neighbors.KNNClassifier())
    table = Table("features", "accuracy", title="river: KNNClassifier on ImageSegments, test-then-learn")
    table.add_row("scaled", f"{plain:.4f}")
    for name in LEARNERS:
        model = preprocessing.StandardScaler() | MetricTransformer(name) | neighbors.KNNClassifier()
        table.add_row(f"scaled | MetricTransformer({name!r})", f"{accuracy(model):.4f}")
    console.print(table)


if __name__ == "__main__":
    main(Console())
