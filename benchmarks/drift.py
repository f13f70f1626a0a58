"""Recovery after the labels of the stream change meaning: the paper's weights, Hedge with memory, memory and alarm;
and DCA on mapped coordinates, whose sums fade or do not.

The alarm is what a worker raises (workers/model/judging/drift.py). That it shortens the memory for a while is tried
here only: it gains a little on one set and loses as much on the others, so workers do not do it (DECISIONS.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.clicks import begun, prepared
from benchmarks.quality import data_folder
from omdml.builders import from_labels
from omdml.coordinates import MAPPED
from omdml.evaluate import mean_average_precision
from omdml.workers.model.judging.drift import Drift

Array = NDArray[Any]
SETS = ("yaleb", "mfeat", "caltech101_20")
SEEDS = range(3)
# Comparisons before the change and as many after it, the share of swapped ones, and comparisons in a call.
EACH, WRONG, STEP = 20_000, 0.05, 100
# Numbers of comparisons since the change after which the metric is measured.
LOOKS = (0, 1_000, 2_000, 5_000, 10_000, 20_000)
# After an alarm Hedge remembers SHORT gated events, for SPAN comparisons.
SHORT, SPAN = 500, 2_000
VARIANTS: dict[str, dict[str, Any]] = {
    "the paper's weights": {"beta": 0.99, "memory": 0},
    "memory": {},
    "memory, shorter after the alarm": {},
    "dca, never forgets": {"memory": 0},
    "dca, memory 10,000": {"memory": 10_000},
    "dca, memory 3,000": {"memory": 3_000},
    "dca, memory 1,000": {"memory": 1_000},
}


def later_labels(name: str, before: Array) -> Array:
    """The labels after the change: for yaleb the light instead of the person, otherwise other groups of classes."""
    if name == "yaleb":
        with np.load(data_folder() / f"{name}.npz") as data:
            return np.asarray(data["y_light"])
    classes = int(before.max()) + 1
    return np.random.default_rng(9).permutation(classes)[before] // max(2, classes // 4)


def triplets(labels: Array, seed: int, train: Array) -> Array:
    """Triplets by label (EACH, 3), a share of them inverted."""
    rows = from_labels(labels, EACH, seed, among=train)
    inverted = np.random.default_rng(seed).random(EACH) < WRONG
    rows[inverted] = rows[inverted][:, [0, 2, 1]]
    return rows


def recovered(name: str, seed: int, variant: str) -> tuple[list[float], float]:
    """The mAP under the new labels at every look, and the comparisons from the change to an alarm (NaN without one)."""
    case = prepared(name, seed)
    labels, train, test = case.labels, case.train, case.test
    learner, on = ("DCA", MAPPED) if variant.startswith("dca") else ("LOMDML", "features")
    features, model = case.items[on], begun(learner, case.items[on], case, **VARIANTS[variant])
    new = later_labels(name, labels)
    usual, drift, until, alarm = model._engine.rule, Drift(), 0, np.nan
    scores: list[float] = []
    rows = np.concatenate([triplets(labels, seed, train), triplets(new, seed + 100, train)])
    for first in range(0, len(rows) + 1, STEP):
        if first - EACH in LOOKS:
            scores.append(mean_average_precision(model.metric.embed(features), new, test))
        if variant.endswith("alarm"):
            model._engine.rule = usual._replace(keep=1 - 1 / SHORT) if first < until else usual
        if first < len(rows) and drift.add(model.learn_many(rows[first : first + STEP], features).scores):
            until = first + SPAN
            alarm = first + STEP - EACH if first >= EACH and np.isnan(alarm) else alarm
    return scores, alarm


def alarm_in_words(alarms: list[float]) -> str:
    """The mean number of comparisons until the alarm, over the runs with an alarm."""
    heard = [alarm for alarm in alarms if not np.isnan(alarm)]
    return f"{np.mean(heard):,.0f}" if heard else "none"


def main(console: Console) -> None:
    """Print the table, or say why there is none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in SETS):
        console.print("Drift: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    title = f"mAP under new labels, comparisons after the change ({EACH:,} before it); means over {len(SEEDS)} seeds"
    table = Table("set", "weights", *(f"{look:,}" for look in LOOKS), "alarm after", title=title)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("drift", total=len(SETS) * len(VARIANTS) * len(SEEDS))
        for name in SETS:
            for variant in VARIANTS:
                runs = []
                for seed in SEEDS:
                    runs.append(recovered(name, seed, variant))
                    progress.advance(task)
                scores, alarms = np.mean([run[0] for run in runs], axis=0), [run[1] for run in runs]
                table.add_row(name, variant, *(f"{score:.3f}" for score in scores), alarm_in_words(alarms))
    console.print(table)
