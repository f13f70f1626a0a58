"""What pairs are worth to DCA beside triplets, by their number and by how many of them are wrong (MATHS 12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.clicks import Case, begun, cell, embedding, mean, prepared, scores, triplets
from benchmarks.quality import SEEDS, SETS, data_folder
from omdml.blas import one_blas_thread
from omdml.coordinates import MAPPED

Array = NDArray[Any]
COUNTS = (50, 200, 1_000, 10_000)
WRONG = (0.0, 0.05, 0.2, 0.4)
# share of pairs that people call similar; None: triplets
STREAMS = {"triplets": None, "similar pairs": 1.0, "pairs of both kinds": 0.5}


def pairs(case: Case, count: int, wrong: float, share: float) -> tuple[Array, Array]:
    """Pairs (count, 2) of training items, and which of them people call similar; for a share of them, they are not."""
    draw, rows = np.random.default_rng(case.seed + 2_000), triplets(case, count, 0.0)
    similar = draw.random(count) < share
    alike = similar ^ (draw.random(count) < wrong)
    return np.stack([rows[:, 0], np.where(alike, rows[:, 1], rows[:, 2])], axis=1), similar


def curve(case: Case, wrong: float, share: float | None) -> Array:
    """Scores after each number of events of a stream."""
    features = case.items[MAPPED]
    model, learned, result = begun("DCA", features, case), 0, []
    if share is None:
        rows, similar = triplets(case, COUNTS[-1], wrong), None
    else:
        rows, similar = pairs(case, COUNTS[-1], wrong, share)
    for count in COUNTS:
        called = {} if similar is None else {"similar": similar[learned:count]}
        model.learn_many(rows[learned:count], features, **called)
        learned = count
        result.append(scores(embedding(model.metric, features), case))
    return np.array(result)


def main(console: Console, names: Sequence[str] = tuple(SETS), seeds: Sequence[int] = tuple(SEEDS)) -> None:
    """Print the tables, or say why there are none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in names):
        console.print("Pairs: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    with Progress(console=console, disable=not console.is_terminal) as progress, one_blas_thread():
        task = progress.add_task("pairs", total=len(names) * len(WRONG) * len(STREAMS))
        for name in names:
            cases = [prepared(name, seed) for seed in seeds]
            title = f"{name}, DCA, mapped: mAP after so many events (in brackets among items that none named)"
            table = Table("wrong", "events", *(f"{count:,}" for count in COUNTS), title=title)
            for wrong in WRONG:
                for stream, share in STREAMS.items():
                    scores = mean([curve(case, wrong, share) for case in cases])
                    table.add_row(f"{wrong:.0%}", stream, *map(cell, scores))
                    progress.advance(task)
            console.print(table)
