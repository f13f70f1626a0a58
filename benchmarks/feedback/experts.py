"""A DCA for each modality beside the joint one, on plain features, weighed in several ways (MATHS 12)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.clicks import Case, begun, embedding, mean, prepared, scores, triplets
from benchmarks.quality import SEEDS, data_folder
from omdml.blas import one_blas_thread

Array = NDArray[Any]
COUNTS = (50, 200, 1_000, 10_000)
# The number of coordinates of each modality.
RANK = 128
# Data sets, and shares of swapped answers.
RUNS = (("caltech101_20", 0.0), ("mfeat", 0.0), ("leaves100", 0.0), ("mfeat", 0.4))
# Places of the experts. Those of single modalities are the last ones.
PLAIN, JOINT, MODALITIES = 0, 1, 2
BETA = 0.999

# A weighing takes the margins f (experts, n) of each expert before it learned each triplet, above 0 if it was wrong.
Weighing = Callable[[Array], Array]


def by_schedule(f: Array) -> Array:
    """Weights by the count, and of modalities by their squared mean margin in units of the root mean square one."""
    n = f.shape[1]
    right = -f[MODALITIES:]
    spread_of = right.sum(axis=1) / np.sqrt((right**2).sum(axis=1) * n)
    by_told = np.maximum(0.0, (n * spread_of + 20 * max(0.0, spread_of.mean()) + 1) / (n + 20)) ** 2
    plain = 3 / (3 + n)
    joint = (1 - plain) * (0.8 - 300 / (1_000 + n))
    if not by_told.any():
        # No modality was right on average. They count alike.
        by_told[:] = 1.0
    return np.array([plain, joint, *((1 - plain - joint) * by_told / by_told.sum())])


def hedged(losses: Array) -> Array:
    """Weights by the sums of losses (experts, n) from 0 to 1, at the rate ``sqrt(8 ln m / n)``."""
    m, n = losses.shape
    return weighed(losses.sum(axis=1), math.sqrt(8 * math.log(m) / n))


def weighed(losses: Array, rate: float) -> Array:
    """The weights ``exp(-rate losses)``, normalized to a sum of 1."""
    weights = np.exp(rate * (losses.min() - losses))
    return weights / weights.sum()


WEIGHINGS: dict[str, Weighing] = {
    "a schedule, modalities by d'^2": by_schedule,
    "Hedge, mistakes, rate sqrt(8 ln m / t)": lambda f: hedged(np.where(f > 0, 1.0, 0.0)),
    f"Hedge, beta {BETA} as in Section 2": lambda f: weighed((f > 0).sum(axis=1), -math.log(BETA)),
    "Hedge, linear loss": lambda f: hedged((1 + np.clip(f, -1, 1)) / 2),
}
OURS, BEST = "ours: joint, plain fading", "best single expert, known afterwards"


def curves(case: Case, wrong: float) -> dict[str, list[float]]:
    """The mAP after each number of triplets, by kind of weighing."""
    features, rows = case.items["features"], triplets(case, COUNTS[-1], wrong)
    parts = [features, *({name: x} for name, x in features.items())]
    models = [begun("DCA", part, case, **({"rank": RANK} if place else {})) for place, part in enumerate(parts)]
    plain = embedding(models[0].metric, features)
    query, relevant, irrelevant = (plain[side] for side in rows.T)
    f = np.empty((1 + len(models), len(rows)))
    f[PLAIN] = 2 * np.einsum("ij,ij->i", query, irrelevant - relevant)
    results: dict[str, list[float]] = {name: [] for name in (OURS, *WEIGHINGS, BEST)}
    learned = 0
    for count in COUNTS:
        for place, (model, part) in enumerate(zip(models, parts, strict=True), start=JOINT):
            f[place, learned:count] = model.learn_many(rows[learned:count], part).scores
        learned = count
        embedded = [plain, *(embedding(model.metric, part) for model, part in zip(models, parts, strict=True))]
        each = [scores(vectors, case)[0] for vectors in embedded]
        results[OURS].append(each[JOINT])
        results[BEST].append(max(each))
        for name, weighing in WEIGHINGS.items():
            shares = np.sqrt(weighing(f[:, :count]))
            weighed = [share * vectors for share, vectors in zip(shares, embedded, strict=True)]
            together = np.concatenate(weighed, axis=1)
            results[name].append(scores(together, case)[0])
    return results


def main(console: Console, runs: Sequence[tuple[str, float]] = RUNS, seeds: Sequence[int] = tuple(SEEDS)) -> None:
    """Print the table, or say why there is none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name, _ in runs):
        console.print("Experts: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    titles = [f"{name}, {wrong:.0%} wrong" if wrong else name for name, wrong in runs]
    table = Table("weights", *titles, title=f"mAP after {', '.join(f'{count:,}' for count in COUNTS)} triplets")
    columns = []
    with Progress(console=console, disable=not console.is_terminal) as progress, one_blas_thread():
        task = progress.add_task("experts", total=len(runs) * len(seeds))
        for name, wrong in runs:
            results = []
            for seed in seeds:
                results.append(curves(prepared(name, seed), wrong))
                progress.advance(task)
            columns.append({label: mean([entry[label] for entry in results]) for label in results[0]})
    for label in columns[0]:
        table.add_row(label, *(" ".join(f"{value:.3f}" for value in column[label]) for column in columns))
    console.print(table)
