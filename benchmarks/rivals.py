"""Quality by the number of comparisons, as in ``clicks``, of more learners: LOMDML, the paper's, and LMNN in a batch.

The whole takes hours on one core. No document quotes it, so ``make evidence`` leaves it out. What is there is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import clicks
from benchmarks.clicks import COUNTS, MAPPED, SEEDS, SETS, Method, Score, cell, data_folder, mean, prepared, scores
from benchmarks.papers.cache import unit_of
from benchmarks.papers.omdml.rivals import lmnn
from omdml.initial import start_matrices

DATA = tuple(SETS)
# Steps of LMNN, and the most triplets that it is given.
DESCENTS, LEARNED_IN_BATCH = 500, 10_000
METHODS = (
    Method("LOMDML, paper", "features"),
    Method("LOMDML", "features", centred=True),
    Method("DCA", "features"),
    Method("DCA", MAPPED),
)
LOOPS = (Method("LOMDML", "features"), Method("DCA", "features"), Method("DCA", MAPPED))


def run(name: str, seed: int) -> list[Score]:
    """Scores of LMNN on all descriptors side by side, after each number of clean triplets, given all at once."""
    case = prepared(name, seed)
    rows, x = clicks.triplets(case, COUNTS[-1], 0.0), case.side_by_side
    start = start_matrices({"x": x[case.train]}, {"x": min(50, x.shape[1])}, "pca", seed)["x"]
    counts = [count for count in COUNTS if count <= LEARNED_IN_BATCH]
    results = [scores((x @ lmnn(x, rows[:count], start, [DESCENTS])[0].T).astype(np.float64), case) for count in counts]
    return results + [(np.nan, np.nan)] * (len(COUNTS) - len(counts))


def in_batch(name: str, seeds: Sequence[int]) -> list[str]:
    """The cells of LMNN's row; means over the seeds."""
    results: Any = mean([unit_of(__name__, {"name": name, "seed": seed}).result for seed in seeds])
    return [cell(result) for result in results]


def main(console: Console, names: Sequence[str] = DATA, seeds: Sequence[int] = tuple(SEEDS)) -> None:
    """Print the tables of ``clicks`` with more learners, and LMNN's; or say why there are none."""
    clicks.main(console, names, seeds, METHODS, LOOPS)
    if not all((data_folder() / f"{name}.npz").is_file() for name in names):
        return
    table = Table(
        "set", *(f"{count:,}" for count in COUNTS), title=f"LMNN-C, {DESCENTS} descents, after so many triplets"
    )
    for name in names:
        table.add_row(name, *in_batch(name, seeds))
    console.print(table)
