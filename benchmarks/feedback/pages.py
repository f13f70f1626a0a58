"""What a result page's clicks should stand for: rules against each other, by what people look at (MATHS 14).

People see pages of the metric that is learned from them, look at some of what is shown, and click. Each rule makes
comparisons of the same kind of page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.clicks import Case, Features, begun, embedding, prepared
from benchmarks.quality import SETS, data_folder
from omdml import Learner
from omdml.comparisons import preferred
from omdml.coordinates import MAPPED
from omdml.evaluate import mean_average_precision
from omdml.feedback import Page

Array = NDArray[Any]
Pairs = list[tuple[int, int]]
PAGE, LOOKS, SEEDS = 20, (30, 100, 300), range(2)
# A page shows the metric as it was up to so many pages ago, because nodes do not follow at each click.
FOLLOWS_EVERY = 10
# How likely a click is, on an item that is looked at.
RELEVANT, IRRELEVANT = 0.8, 0.1
# Only the first mapped coordinates, to save time.
COORDINATES = 128
# The most copies of a comparison that stand for its weight.
MOST_COPIES = 10


def ranks(relevant: Array, draw: np.random.Generator) -> Array:
    """Clicks if rank r is looked at with the chance 1 / r, whatever was clicked (position-based model)."""
    looked_at = draw.random(len(relevant)) < 1 / np.arange(1, len(relevant) + 1)
    return looked_at & (draw.random(len(relevant)) < np.where(relevant, RELEVANT, IRRELEVANT))


def cascade(relevant: Array, draw: np.random.Generator) -> Array:
    """Clicks of people who go down a page, and give up with chance 0.1 after an item, or 0.5 after a relevant click."""
    clicked = np.zeros(len(relevant), bool)
    for rank, fits in enumerate(relevant):
        clicked[rank] = draw.random() < (RELEVANT if fits else IRRELEVANT)
        if draw.random() < (0.5 if clicked[rank] and fits else 0.1):
            break
    return clicked


PEOPLE = {"ranks": ranks, "cascade": cascade}


def every_other(clicked: Array) -> Pairs:
    """Naive: each clicked item before all that were not clicked."""
    return [(c, s) for c in np.flatnonzero(clicked) for s in np.flatnonzero(~clicked)]


def skipped_above(clicked: Array) -> Pairs:
    """Joachims 2002: each clicked item before those above it that were not clicked."""
    return [(c, s) for c, s in every_other(clicked) if s < c]


def skipped_above_and_next(clicked: Array) -> Pairs:
    """Those, and the one directly below each clicked item, if that was not clicked."""
    return [(c, s) for c, s in every_other(clicked) if s <= c + 1]


def ours(clicked: Array) -> Pairs:
    """The comparisons that omdml makes of the page."""
    items = [str(rank) for rank in range(len(clicked))]
    page = Page(model="", query="", shown=tuple(items), clicked=tuple(np.array(items)[clicked].tolist()))
    return [(int(item), int(other)) for item, other in preferred(page)]


def inverse_propensity(clicked: Array) -> Pairs:
    """Naive, with as many copies of a pair as the rank of its clicked item: the inverse chance of a look at it."""
    return [pair for pair in every_other(clicked) for _ in range(min(MOST_COPIES, pair[0] + 1))]


RULES: dict[str, Callable[[Array], Pairs]] = {
    "naive": every_other,
    "naive, 1/p": inverse_propensity,
    "above": skipped_above,
    "above, next": skipped_above_and_next,
    "omdml": ours,
}


class Outcome(NamedTuple):
    """mAP after each of LOOKS pages; comparisons a page, and the share of them that say the truth, and the opposite."""

    curve: list[float]
    count: float
    right: float
    wrong: float


def on_few_coordinates(case: Case) -> Case:
    """The case with the first mapped coordinates alone."""
    mapped = np.ascontiguousarray(case.items[MAPPED][MAPPED][:, :COORDINATES])
    return case._replace(items={**case.items, MAPPED: {MAPPED: mapped}})


def measured(model: Learner, features: Features, case: Case) -> float:
    """mAP of the test queries among all items."""
    return mean_average_precision(embedding(model.metric, features), case.labels, case.test)


def loop(learner: str, of: str, case: Case, people: Callable[..., Array], rule: Callable[[Array], Pairs]) -> Outcome:
    """Learn from clicks on pages that are ranked by what was learned so far."""
    features, labels, train = case.items[of], case.labels, case.train
    model, draw = begun(learner, features, case), np.random.default_rng(case.seed)
    gallery = {modality: x[train] for modality, x in features.items()}
    gains: list[int] = []
    curve: list[float] = []
    embedded, pages = model.metric.embed(gallery), 0
    while pages < LOOKS[-1]:
        query = int(draw.integers(len(train)))
        apart = ((embedded - embedded[query]) ** 2).sum(axis=1)
        apart[query] = np.inf
        page = np.argpartition(apart, PAGE)[:PAGE]
        page = page[np.argsort(apart[page], kind="stable")]
        relevant = labels[train[page]] == labels[train[query]]
        clicked = people(relevant, draw)
        if not clicked.any():
            continue
        pages += 1
        if pairs := np.array(rule(clicked), np.int64).reshape(-1, 2).tolist():
            rows = np.array([[train[query], train[page[c]], train[page[s]]] for c, s in pairs])
            model.learn_many(rows, features)
            gains += [int(relevant[c]) - int(relevant[s]) for c, s in pairs]
        if pages % FOLLOWS_EVERY == 0:
            embedded = model.metric.embed(gallery)
        if pages in LOOKS:
            curve.append(measured(model, features, case))
    truth = np.array(gains)
    return Outcome(curve, len(gains) / pages, float((truth > 0).mean()), float((truth < 0).mean()))


LEARNERS = (("DCA", MAPPED), ("LOMDML", "features"))


def table(name: str, cases: Sequence[Case], learner: str, of: str, tick: Callable[[], None]) -> Table:
    """The rows of one data set and learner, by people and rule; means over the cases."""
    title = f"{name}, {learner}: mAP after so many pages of {PAGE} with a click"
    table = Table("people", "rule", *map(str, LOOKS), "comparisons a page", "right", "wrong", title=title)
    plain = np.mean([measured(begun(learner, case.items[of], case), case.items[of], case) for case in cases])
    table.add_row("", "nothing learned", f"{plain:.3f}")
    for people, click in PEOPLE.items():
        for rule, pairs in RULES.items():
            results = [loop(learner, of, case, click, pairs) for case in cases]
            curve = np.mean([entry.curve for entry in results], axis=0)
            count, right, wrong = np.mean([entry[1:] for entry in results], axis=0)
            shares = (f"{count:.1f}", f"{right:.0%}", f"{wrong:.0%}")
            table.add_row(people, rule, *(f"{mean:.3f}" for mean in curve), *shares)
            tick()
    return table


def main(console: Console, names: Sequence[str] = tuple(SETS), seeds: Sequence[int] = tuple(SEEDS)) -> None:
    """Print the tables, or say why there are none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in names):
        console.print("Pages: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("pages", total=len(names) * len(LEARNERS) * len(PEOPLE) * len(RULES))
        for name in names:
            cases = [on_few_coordinates(prepared(name, seed)) for seed in seeds]
            for learner, of in LEARNERS:
                console.print(table(name, cases, learner, of, lambda: progress.advance(task)))
