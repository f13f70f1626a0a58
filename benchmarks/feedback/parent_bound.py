"""How well any rule could choose between a parent and a model's own metric, by the margins of clicks (MATHS 15 (d)).

A case is a data set with a parent and a person, as in ``parents.py``. A rule sees the margins of as many triplets as
the model has learned, and names the parent's share. Its loss in a case is the mAP that it misses of the better one of
parent and own metric, a mean over seeds and draws of triplets. The worst case of every rule loses at least what the
best rule loses on average over any weighting of the cases. The best rule for a weighting is computed here. It is given
more than a real one has: how likely each margin is in each case, and margins by the own metric as it is now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.clicks import embedding, prepared
from benchmarks.feedback.parents import LOOKS, SEEDS, SETS, clicks, fresh, parents, people
from benchmarks.quality import data_folder
from omdml.coordinates import MAPPED
from omdml.evaluate import mean_average_precision
from omdml.kernels.second_order.experts import CERTAIN, compare, trusted
from omdml.learners.shared.base import Array

# The shares of the parent at which mAP is measured.
SHARES = np.array([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
# The shares that a rule can name.
CHOICES = np.linspace(0.0, 1.0, 41)
# The numbers of clicks after which a rule is judged.
COUNTS = LOOKS[1:3]
TRIPLETS, DRAWS, WEIGHTINGS = 3_000, 100, 200
VIEWS = {"nothing": 1, "which metric errs": 4, "advantages": 40, "both margins": 100}


class Run(NamedTuple):
    """One case with one seed, after a number of clicks."""

    own: Array  # (TRIPLETS,) margins of new triplets
    parent: Array  # (TRIPLETS,)
    quality: Array  # (len(SHARES),) mAP


def margins(embedded: Array, rows: Array) -> Array:
    """``D(q, r) - D(q, s)`` of triplets (n, 3)."""
    query, relevant, irrelevant = (embedded[column] for column in rows.T)
    apart = ((query - relevant) ** 2).sum(axis=1) - ((query - irrelevant) ** 2).sum(axis=1)
    return np.asarray(apart)


def measured(name: str, seed: int) -> dict[tuple[int, str, str, str], Run]:
    """The runs of a data set: by count of clicks, set, parent and person."""
    case, result = prepared(name, seed), {}
    features, alike = case.items[MAPPED], people(name, case.labels)
    known = {parent: embedding(model.metric, features) for parent, model in parents(case, alike).items()}
    for i, (person, labels) in enumerate(alike.items()):
        rows = clicks(labels, LOOKS[-1], seed + 900 + i, case)
        new = clicks(labels, TRIPLETS, seed + 5_000 + i, case)
        model, learned = fresh(case), 0
        for count in COUNTS:
            model.learn_many(rows[learned:count], features)
            learned, own = count, embedding(model.metric, features)
            for parent, elder in known.items():
                both = (np.hstack([np.sqrt(share) * elder, np.sqrt(1 - share) * own]) for share in SHARES)
                quality = [mean_average_precision(x, labels, case.test[::2]) for x in both]
                result[count, name, parent, person] = Run(margins(own, new), margins(elder, new), np.array(quality))
    return result


def classes(runs: Sequence[Run], view: str) -> Array:
    """The class of each triplet of each run, as far as a rule sees it: (len(runs), TRIPLETS)."""
    own, parent = np.array([run.own for run in runs]), np.array([run.parent for run in runs])

    def ranked(values: Array, count: int) -> Array:
        return np.searchsorted(np.quantile(values, np.arange(1, count) / count), values)

    if view == "which metric errs":
        return 2 * (own > 0) + (parent > 0)
    if view == "advantages":
        return ranked(np.tanh(own / CERTAIN) - np.tanh(parent / CERTAIN), VIEWS[view])
    return 10 * ranked(own, 10) + ranked(parent, 10) if view == "both margins" else np.zeros_like(own, np.int64)


def losses(cases: Sequence[Sequence[Run]]) -> Array:
    """What each choice misses of the better one in each run, whose mean mAP over the case's runs counts."""
    result = []
    for runs in cases:
        better = max(np.mean([run.quality[end] for run in runs]) for end in (0, -1))
        result += [better - np.interp(CHOICES, SHARES, run.quality) for run in runs]
    return np.array(result)


def least_loss(cases: Sequence[Sequence[Run]], count: int, view: str, draw: np.random.Generator) -> float:
    """A lower bound of the loss that every rule has in its worst case, if it sees ``count`` triplets."""
    runs = [run for case in cases for run in case]
    belongs, lost = np.repeat(np.arange(len(cases)), [len(case) for case in cases]), losses(cases)
    seen = [np.bincount(row, minlength=VIEWS[view]) / TRIPLETS for row in classes(runs, view)]
    drawn = np.concatenate([draw.multinomial(count, shares, DRAWS) for shares in seen])
    likely = drawn @ np.log(np.maximum(seen, 1e-9)).T
    likely = np.exp(likely - likely.max(axis=1, keepdims=True))
    truth = np.repeat(np.arange(len(runs)), DRAWS)
    weights, bound = np.full(len(cases), 1 / len(cases)), -np.inf
    for step in range(1, WEIGHTINGS + 1):
        choice = ((likely * weights[belongs]) @ lost).argmin(axis=1)
        mean = np.bincount(belongs[truth], lost[truth, choice]) / np.bincount(belongs[truth])
        bound = max(bound, float(weights @ mean))
        # A case in which the rule lost much counts for more in the next weighting.
        weights = weights * np.exp(30 * mean / np.sqrt(step))
        weights /= weights.sum()
    return bound


def loss_of_the_rule(cases: Sequence[Sequence[Run]], count: int, draw: np.random.Generator) -> float:
    """The loss in its worst case of the rule that DCA follows, given the same triplets."""
    runs, lost = [run for case in cases for run in case], losses(cases)
    result = np.zeros(len(runs))
    for i, run in enumerate(runs):
        for chosen in draw.integers(TRIPLETS, size=(DRAWS, count)):
            trust = np.zeros(4)
            for place in chosen:
                compare(trust, float(run.own[place]), float(run.parent[place]), 1.0)
            result[i] += np.interp(trusted(trust, count), CHOICES, lost[i]) / DRAWS
    ends = np.cumsum([len(case) for case in cases])[:-1]
    return float(max(part.mean() for part in np.split(result, ends)))


def table(results: Sequence[dict[tuple[int, str, str, str], Run]]) -> Table:
    """The bounds by what a rule sees, from the runs of all sets and seeds."""
    made = Table("clicks", *VIEWS, "the rule of DCA", title="mAP lost in the worst of the cases: at least; by DCA")
    for count in COUNTS:
        keys = dict.fromkeys(key for result in results for key in result if key[0] == count)
        cases = [[result[key] for result in results if key in result] for key in keys]
        bounds = [least_loss(cases, count, view, np.random.default_rng(0)) for view in VIEWS]
        figures = [*bounds, loss_of_the_rule(cases, count, np.random.default_rng(0))]
        made.add_row(str(count), *(f"{max(figure, 0.0):.3f}" for figure in figures))
    return made


def main(console: Console) -> None:
    """Print the table, or say why there is none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in SETS):
        console.print("Parent bound: the data sets are not here; set OMDML_DATA to their folder. Left out.")
        return
    pairs, results = [(name, seed) for name in SETS for seed in SEEDS], []
    with Progress(console=console, disable=not console.is_terminal) as progress:
        for name, seed in progress.track(pairs, description="parent bound"):
            results.append(measured(name, seed))
    console.print(table(results))
