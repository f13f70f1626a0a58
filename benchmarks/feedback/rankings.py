"""What a ranking should count for: each of its comparisons as one or less, in a closed loop of pages (MATHS 12)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.clicks import Case, cell, embedding, mean, prepared, scores
from benchmarks.quality import SEEDS, SETS, data_folder
from omdml import DCA
from omdml.blas import one_blas_thread
from omdml.coordinates import MAPPED

Array = NDArray[Any]
PAGE, SEARCHES, WRONG = 10, (10, 30, 100), (0.05, 0.2)
# Each of the first AT_ONCE searches sees what the last one taught. Later, TOGETHER searches see the same metric.
AT_ONCE, TOGETHER = 30, 5


class Rule(NamedTuple):
    """How a ranking of R relevant and I irrelevant items is learned."""

    # Each comparison has the weight (R I) ** -power.
    power: float
    # R comparisons, with the irrelevant items in turn, and not all R I of them.
    in_turn: bool = False


RULES = {
    "R I comparisons of weight 1": Rule(0.0),
    "of weight 1 / sqrt(R I)": Rule(0.5),
    "of weight 1 / (R I)": Rule(1.0),
    "R comparisons of weight 1": Rule(0.0, in_turn=True),
}


def compared(query: int, relevant: Array, irrelevant: Array, rule: Rule) -> Array:
    """The triplets (n, 3) of a ranking."""
    if rule.in_turn:
        near, far = relevant, np.resize(irrelevant, len(relevant))
    else:
        near, far = (x.ravel() for x in np.meshgrid(relevant, irrelevant, indexing="ij"))
    return np.stack([np.full(len(near), query), near, far], axis=1)


def closed_loop(case: Case, wrong: float, rule: Rule) -> Array:
    """Scores after each number of searches: people mark what is relevant on pages of the current metric."""
    features, labels, train = case.items[MAPPED], case.labels, case.train
    model = DCA({MAPPED: features[MAPPED].shape[1]}, seed=case.seed, **DCA.on_mapped)
    model.start(features)
    gallery, draw, results = {MAPPED: features[MAPPED][train]}, np.random.default_rng(case.seed), []
    searches = 0
    while len(results) < len(SEARCHES):
        if searches < AT_ONCE or searches % TOGETHER == 0:
            embedded = model.metric.embed(gallery)
        query = int(draw.integers(len(train)))
        nearness = embedded @ embedded[query]
        nearness[query] = -math.inf
        page = np.argsort(-nearness, kind="stable")[:PAGE]
        marked = (labels[train[page]] == labels[train[query]]) ^ (draw.random(PAGE) < wrong)
        searches += 1
        if 0 < marked.sum() < PAGE:
            rows = compared(train[query], train[page[marked]], train[page[~marked]], rule)
            model.learn_many(rows, features, weight=len(rows) ** -rule.power)
        if searches == SEARCHES[len(results)]:
            results.append(scores(embedding(model.metric, features), case))
    return np.array(results)


def main(console: Console, names: Sequence[str] = tuple(SETS), seeds: Sequence[int] = tuple(SEEDS)) -> None:
    """Print the tables, or say why there are none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in names):
        console.print("Rankings: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    with Progress(console=console, disable=not console.is_terminal) as progress, one_blas_thread():
        task = progress.add_task("rankings", total=len(names) * len(WRONG) * len(RULES))
        for name in names:
            cases = [prepared(name, seed) for seed in seeds]
            title = f"{name}, DCA, mapped: mAP after so many searches, marks on pages of {PAGE} of the current metric"
            table = Table("wrong", "a ranking is", *(f"{count:,}" for count in SEARCHES), title=title)
            for wrong in WRONG:
                for label, rule in RULES.items():
                    scores = mean([closed_loop(case, wrong, rule) for case in cases])
                    table.add_row(f"{wrong:.0%}", label, *map(cell, scores))
                    progress.advance(task)
            console.print(table)
