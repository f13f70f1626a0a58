"""Quality by the number of comparisons and by the share of wrong ones: what are the first few worth? (MATHS 12)

It measures the default learner, and in the closed loop LOMDML, too; ``rivals`` measures more. Each curve is kept as
soon as it is computed (``benchmarks/papers/cache.py``). So the same command goes on after an interruption. It computes
a curve again only if code or data that it depends on have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy.linalg import eigh

from benchmarks.papers.cache import unit_of
from benchmarks.quality import SEEDS, SETS, data_folder, split
from omdml import DCA, LOMDML, Learner
from omdml.blas import one_blas_thread
from omdml.builders import from_labels
from omdml.coordinates import MAPPED, CoordinateMap
from omdml.evaluate import mean_average_precision
from omdml.initial import principal_start
from omdml.metrics import Metric

Array = NDArray[Any]
Features = dict[str, Array]
Score = tuple[float, float]
DATA = tuple(SETS)
COUNTS = (50, 200, 1_000, 10_000, 50_000)
# Shares of triplets whose two answers are swapped.
WRONG = (0.0, 0.05, 0.2, 0.4)
# Principal coordinates before LDA.
AXES = 256
PAGE, LOOP_COUNTS, LOOP_WRONG = 50, (300, 1_000, 3_000), 0.05
LEARNERS: dict[str, Callable[..., Learner]] = {
    "LOMDML": LOMDML,
    "LOMDML, paper": lambda dims, seed: LOMDML(dims, eta=0.003, step="ogd", beta=0.99, memory=0, seed=seed),
    "DCA": DCA,
}
CENTRED = "LOMDML, centred, cosine"


class Method(NamedTuple):
    """A learner, and what it learns on."""

    learner: str
    of: str
    # Whether its embeddings are measured centred and at unit length, too.
    centred: bool = False

    @property
    def label(self) -> str:
        return f"{self.learner}, {MAPPED}" if self.of == MAPPED else self.learner


METHODS = (Method("DCA", MAPPED),)
LOOPS = (Method("LOMDML", "features"), Method("DCA", MAPPED))


class Case(NamedTuple):
    """A data set with its split, for one seed."""

    # By kind: their "features" as they are, and the coordinates that a catalogue maps them to.
    items: dict[str, Features]
    labels: Array
    # Rows of the two parts.
    train: Array
    test: Array
    seed: int

    @property
    def side_by_side(self) -> Array:
        """All features of all items (n, D)."""
        return np.concatenate(list(self.items["features"].values()), axis=1)


@lru_cache(maxsize=len(SEEDS))
def prepared(name: str, seed: int) -> Case:
    """The case with a map of all items, as a catalogue has one: its build does not know what people will click on."""
    features, labels, train, test = split(name, seed)
    made = CoordinateMap.fit(features)
    return Case({"features": features, MAPPED: {MAPPED: made.apply(features)}}, labels, train, test, seed)


def triplets(case: Case, count: int, wrong: float) -> Array:
    """Triplets of training labels (count, 3), a share of them with their answers swapped."""
    rows = from_labels(case.labels, count, case.seed, among=case.train)
    swapped = np.random.default_rng(case.seed + 1_000).random(count) < wrong
    rows[swapped] = rows[swapped][:, [0, 2, 1]]
    return rows


def scores(embedded: Array, case: Case) -> Score:
    """The mAP of test queries among all items, and among items that no triplet named; 0 if scores are not finite."""
    labels, test = case.labels, case.test
    if not np.isfinite(embedded).all():
        return 0.0, 0.0
    fresh = np.setdiff1d(np.arange(len(labels)), case.train)
    among_fresh = mean_average_precision(embedded[fresh], labels[fresh], np.searchsorted(fresh, test))
    return mean_average_precision(embedded, labels, test), among_fresh


def centred_scores(embedded: Array, case: Case) -> Score:
    """The same scores by cosine, after the mean of the training items is subtracted from the embeddings."""
    if not np.isfinite(embedded).all():
        return 0.0, 0.0
    centred = embedded - embedded[case.train].mean(axis=0)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    return scores(centred / np.where(lengths > 0, lengths, 1.0), case)


def begun(name: str, features: Features, case: Case, **hyperparameters: Any) -> Learner:
    """A learner at its start, which was computed from the catalogue."""
    options = DCA.on_mapped if LEARNERS[name] is DCA and MAPPED in features else {}
    dims = {modality: x.shape[1] for modality, x in features.items()}
    model = LEARNERS[name](dims, seed=case.seed, **options, **hyperparameters)
    model.start(features)
    return model


def embeddings(name: str, features: Features, case: Case, rows: Array, looks: Sequence[int]) -> Iterator[Array]:
    """The embeddings of all items after each of these numbers of triplets; not finite once learning diverged."""
    model, learned = begun(name, features, case), 0
    for look in looks:
        try:
            model.learn_many(rows[learned:look], features)
        except Exception as error:
            if getattr(error, "reason", "") != "diverged":
                raise
            yield from [np.full((1, 1), np.nan)] * (len(looks) - looks.index(look))
            return
        learned = look
        yield embedding(model.metric, features)


def embedding(metric: Metric, features: Mapping[str, Array]) -> Array:
    """The embeddings of all items in float64. After an overflow they are not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return metric.embed(features).astype(np.float64)


def ceiling(case: Case) -> Score:
    """Scores of linear discriminants of the training items' principal coordinates, given all of their labels."""
    x, labels = case.side_by_side, case.labels[case.train]
    start = principal_start({"x": x[case.train]}, AXES, case.seed)
    z = (x - start["mean"]) @ start["basis"].T
    classes, belongs = np.unique(labels, return_inverse=True)
    means = np.stack([z[case.train][labels == label].mean(axis=0) for label in classes])[belongs]
    within, between = z[case.train] - means, means - means.mean(axis=0)
    with one_blas_thread():
        # by rising ratio of the variance between classes to that within
        _, axes = eigh(between.T @ between, within.T @ within)
        return scores(z @ axes[:, 1 - len(classes) :], case)


def closed_loop(name: str, features: Features, case: Case) -> list[Score]:
    """Scores if people see pages of the current metric, and compare each relevant item with an irrelevant one."""
    labels, train = case.labels, case.train
    model, draw, learned, results = begun(name, features, case), np.random.default_rng(case.seed), 0, []
    gallery = {modality: x[train] for modality, x in features.items()}
    while len(results) < len(LOOP_COUNTS):
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
        rows = np.stack([np.full_like(near, train[query]), near, far], axis=1)[: LOOP_COUNTS[len(results)] - learned]
        model.learn_many(rows, features)
        learned += len(rows)
        if learned == LOOP_COUNTS[len(results)]:
            results.append(scores(embedding(model.metric, features), case))
    return results


def bounds(case: Case) -> list[Score]:
    """Scores of plain features, and of all labels."""
    return [scores(case.side_by_side, case), ceiling(case)]


def after_triplets(case: Case, wrong: float, method: str, of: str, also: bool) -> list[list[Score]]:
    """Scores of a method after each count of random triplets; ``also`` centred, at unit length."""
    measures = (scores, centred_scores)[: 1 + also]
    embedded = embeddings(method, case.items[of], case, triplets(case, COUNTS[-1], wrong), COUNTS)
    return [list(curve) for curve in zip(*([measure(x, case) for measure in measures] for x in embedded), strict=True)]


def loop(case: Case, method: str, of: str) -> list[Score]:
    """Scores of a method in the closed loop."""
    return closed_loop(method, case.items[of], case)


PARTS: dict[str, Callable[..., Any]] = {"bounds": bounds, "triplets": after_triplets, "loop": loop}


def run(part: str, name: str, seed: int, **options: Any) -> Any:
    """Compute one curve or a few; see :mod:`benchmarks.papers.cache`."""
    return PARTS[part](prepared(name, seed), **options)


def means(part: str, name: str, seeds: Sequence[int], **options: Any) -> Array:
    """Means over the seeds of a part's results, which are read from the cache or computed now."""
    units = [{"part": part, "name": name, "seed": seed, **options} for seed in seeds]
    return mean([unit_of(__name__, unit).result for unit in units])


def random_triplets(
    name: str, seeds: Sequence[int], tick: Callable[[], None], methods: Sequence[Method] = METHODS
) -> Table:
    """The rows of one data set, by share of wrong answers and by method; means over the seeds."""
    title = f"{name}, mAP after so many triplets (in brackets among items that no triplet named)"
    table = Table("wrong", "method", *(f"{count:,}" for count in COUNTS), title=title)
    for label, bound in zip(("plain features", "all labels: PCA + LDA"), means("bounds", name, seeds), strict=True):
        table.add_row("", label, *[cell(bound)] * len(COUNTS))
    for wrong in WRONG:
        for method in methods:
            options = {"method": method.learner, "of": method.of, "also": method.centred}
            curves = means("triplets", name, seeds, wrong=wrong, **options)
            for row, curve in zip((method.label, CENTRED), curves, strict=False):
                table.add_row(f"{wrong:.0%}", row, *map(cell, curve))
            tick()
    return table


def loops(name: str, seeds: Sequence[int], tick: Callable[[], None], methods: Sequence[Method] = LOOPS) -> Table:
    """The rows of one data set in the closed loop; means over the seeds."""
    title = f"{name}, closed loop: marks on pages of {PAGE} of the current metric, {LOOP_WRONG:.0%} wrong"
    table = Table("method", *(f"{count:,}" for count in LOOP_COUNTS), title=title)
    for method in methods:
        table.add_row(method.label, *map(cell, means("loop", name, seeds, method=method.learner, of=method.of)))
        tick()
    return table


def mean(values: Any) -> Array:
    return np.mean(values, axis=0)


def cell(scored: Array) -> str:
    """Format a score and its spread as a cell of a table; a dash if it is not finite."""
    return "-" if np.isnan(scored[0]) else f"{scored[0]:.3f} ({scored[1]:.3f})"


def main(
    console: Console,
    names: Sequence[str] = tuple(SETS),
    seeds: Sequence[int] = tuple(SEEDS),
    methods: Sequence[Method] = METHODS,
    in_loops: Sequence[Method] = LOOPS,
) -> None:
    """Print the tables, or say why there are none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in names):
        console.print("Clicks: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("clicks", total=len(names) * (len(WRONG) * len(methods) + len(in_loops)))
        for name in names:
            for made, by in ((random_triplets, methods), (loops, in_loops)):
                console.print(made(name, seeds, lambda: progress.advance(task), by))
