"""Quality by the number of comparisons: what the first handful is worth, with how many of them wrong (MATHS 12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.papers.peers import lmnn
from benchmarks.quality import SEEDS, SETS, data_folder, split
from omdml import DCA, LOMDML, Learner
from omdml.builders import from_labels
from omdml.evaluate import mean_average_precision
from omdml.initial import start_matrices
from omdml.metrics import Metric

Array = NDArray[Any]
COUNTS = (50, 200, 1_000, 10_000, 50_000)
WRONG = (0.0, 0.05, 0.2, 0.4)  # share of triplets whose two answers are swapped
DESCENTS, LEARNED_IN_BATCH = 500, 10_000  # of LMNN, and the most triplets that it is given
PAGE, LOOP_COUNTS, LOOP_WRONG = 50, (300, 1_000, 3_000), 0.05
LEARNERS: dict[str, Callable[..., Learner]] = {
    "LOMDML": LOMDML,
    "LOMDML, paper": lambda dims, seed: LOMDML(dims, eta=0.003, step="ogd", beta=0.99, memory=0, seed=seed),
    "DCA": DCA,
}
Case = tuple[dict[str, Array], Array, Array, Array]  # features, labels, training rows, test queries


def triplets(case: Case, count: int, seed: int, wrong: float) -> Array:
    """Triplets of training labels (count, 3), a share of them with their answers swapped."""
    _, labels, train, _ = case
    rows = from_labels(labels, count, seed, among=train)
    swapped = np.random.default_rng(seed + 1_000).random(count) < wrong
    rows[swapped] = rows[swapped][:, [0, 2, 1]]
    return rows


def scores(embedded: Array, case: Case) -> tuple[float, float]:
    """MAP of the test queries among all items, and among those that no triplet named; 0 if they are not finite."""
    _, labels, train, test = case
    if not np.isfinite(embedded).all():
        return 0.0, 0.0
    fresh = np.setdiff1d(np.arange(len(labels)), train)
    among_fresh = mean_average_precision(embedded[fresh], labels[fresh], np.searchsorted(fresh, test))
    return mean_average_precision(embedded, labels, test), among_fresh


def begun(name: str, case: Case, seed: int) -> Learner:
    """A learner that knows the training items."""
    features, _, train, _ = case
    model = LEARNERS[name]({modality: x.shape[1] for modality, x in features.items()}, seed=seed)
    model.start({modality: x[train] for modality, x in features.items()})
    return model


def curve(name: str, case: Case, rows: Array, seed: int, looks: Sequence[int]) -> list[tuple[float, float]]:
    """Scores after each of these numbers of triplets; 0 from where learning was refused because it diverged."""
    model, found, learned = begun(name, case, seed), [], 0
    for look in looks:
        try:
            model.learn_many(rows[learned:look], case[0])
        except Exception as error:
            if getattr(error, "reason", "") != "diverged":
                raise
            break
        learned = look
        found.append(scores(embedding(model.metric, case[0]), case))
    return found + [(0.0, 0.0)] * (len(looks) - len(found))


def embedding(metric: Metric, features: Mapping[str, Array]) -> Array:
    """Every item, float64; overflow shows as values that are not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return metric.embed(features).astype(np.float64)


def in_batch(case: Case, rows: Array, seed: int, looks: Sequence[int]) -> list[tuple[float, float]]:
    """Scores of LMNN on all descriptors side by side, given so many triplets at once."""
    features, _, train, _ = case
    x = np.concatenate(list(features.values()), axis=1)
    start = start_matrices({"x": x[train]}, {"x": min(50, x.shape[1])}, "pca", seed)["x"]
    fit = [look for look in looks if look <= LEARNED_IN_BATCH]
    found = [scores((x @ lmnn(x, rows[:look], start, [DESCENTS])[0].T).astype(np.float64), case) for look in fit]
    return found + [(np.nan, np.nan)] * (len(looks) - len(fit))


def closed_loop(name: str, case: Case, seed: int) -> list[tuple[float, float]]:
    """Scores where people see pages of the current metric, and compare each relevant item with an irrelevant one."""
    features, labels, train, _ = case
    model, draw, learned, found = begun(name, case, seed), np.random.default_rng(seed), 0, []
    gallery = {modality: x[train] for modality, x in features.items()}
    while len(found) < len(LOOP_COUNTS):
        embedded = model.metric.embed(gallery)
        query = int(draw.integers(len(train)))
        apart = ((embedded - embedded[query]) ** 2).sum(axis=1)
        apart[query] = np.inf
        page = np.argsort(apart, kind="stable")[:PAGE]
        relevant = (labels[train[page]] == labels[train[query]]) ^ (draw.random(PAGE) < LOOP_WRONG)
        if not 0 < relevant.sum() < PAGE:
            continue
        near = train[page[relevant]]
        far = draw.choice(train[page[~relevant]], len(near))
        rows = np.stack([np.full_like(near, train[query]), near, far], axis=1)[: LOOP_COUNTS[len(found)] - learned]
        model.learn_many(rows, features)
        learned += len(rows)
        if learned == LOOP_COUNTS[len(found)]:
            found.append(scores(embedding(model.metric, features), case))
    return found


def table_of(name: str, seeds: Sequence[int], tick: Callable[[], None]) -> tuple[Table, Table]:
    """The tables of one set: by share of wrong answers, and in the closed loop; means over the seeds."""
    cases = [split(name, seed) for seed in seeds]
    plain = np.mean([scores(np.concatenate(list(case[0].values()), axis=1), case) for case in cases], axis=0)
    title = f"{name}, mAP after so many triplets (in brackets among items that no triplet named)"
    table = Table("wrong", "method", *(f"{count:,}" for count in COUNTS), title=title)
    table.add_row("", "plain features", *[told(plain)] * len(COUNTS))
    for wrong in WRONG:
        given = [triplets(case, COUNTS[-1], seed, wrong) for case, seed in zip(cases, seeds, strict=True)]
        runs = list(zip(cases, given, seeds, strict=True))
        for method in LEARNERS:
            found = np.mean([curve(method, case, rows, seed, COUNTS) for case, rows, seed in runs], axis=0)
            table.add_row(f"{wrong:.0%}", method, *map(told, found))
            tick()
        if wrong == 0:
            found = np.mean([in_batch(case, rows, seed, COUNTS) for case, rows, seed in runs], axis=0)
            table.add_row(f"{wrong:.0%}", f"LMNN-C, {DESCENTS} descents", *map(told, found))
            tick()
    title = f"{name}, closed loop: marks on pages of {PAGE} of the current metric, {LOOP_WRONG:.0%} wrong"
    loop = Table("method", *(f"{count:,}" for count in LOOP_COUNTS), title=title)
    for method in ("LOMDML", "DCA"):
        found = np.mean([closed_loop(method, case, seed) for case, seed in zip(cases, seeds, strict=True)], axis=0)
        loop.add_row(method, *map(told, found))
        tick()
    return table, loop


def told(found: Array) -> str:
    """Two scores as a cell."""
    return "-" if np.isnan(found[0]) else f"{found[0]:.3f} ({found[1]:.3f})"


def main(console: Console, names: Sequence[str] = tuple(SETS), seeds: Sequence[int] = tuple(SEEDS)) -> None:
    """Print the tables, or say why there are none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in names):
        console.print("Clicks: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("clicks", total=len(names) * (len(WRONG) * len(LEARNERS) + 3))
        for name in names:
            for table in table_of(name, seeds, lambda: progress.advance(task)):
                console.print(table)
