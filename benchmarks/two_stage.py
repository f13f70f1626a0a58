"""Candidates from an index that holds an older version, ranked again exactly under the live metric.

An index in a vector database, or the cells of an approximate index, was made after ``HELD`` comparisons. The model goes
on learning, and the index stays. Each test query takes the nearest ``CANDIDATES`` items as the index has them, and the
live metric ranks those: recall@10 is the share of the ten nearest under the live metric that are among them. Queries
are items, placed where the index holds them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.clicks import DATA, MAPPED, Array, begun, embedding, prepared, triplets
from benchmarks.quality import data_folder
from omdml.blas import one_blas_thread

HELD, FURTHER = 1_000, (0, 100, 300, 1_000, 3_000, 9_000)
CANDIDATES, K = (50, 100, 200, 500), 10


def ranked(embedded: Array, queries: Array, count: int) -> Array:
    """The nearest ``count`` other items of each query (queries, count)."""
    squares = (embedded**2).sum(axis=1)
    distances = squares - 2 * embedded[queries] @ embedded.T
    distances[np.arange(len(queries)), queries] = np.inf
    return np.argsort(distances, axis=1, kind="stable")[:, :count]


def recall(truth: Array, candidates: Array) -> float:
    """The share of the true nearest that are among the candidates, mean of the queries."""
    shared = [np.isin(near, found).mean() for near, found in zip(truth, candidates, strict=True)]
    return float(np.mean(shared))


def recalls(name: str, seed: int = 0) -> tuple[int, dict[tuple[int, int], float]]:
    """The number of items, and recall@10 by the number of further comparisons and of candidates."""
    case = prepared(name, seed)
    features, rows = case.items[MAPPED], triplets(case, HELD + max(FURTHER), 0.0)
    model = begun("DCA", features, case)
    model.learn_many(rows[:HELD], features)
    held = ranked(embedding(model.metric, features), case.test, max(CANDIDATES))
    found, learned = {}, HELD
    for further in FURTHER:
        if HELD + further > learned:
            model.learn_many(rows[learned : HELD + further], features)
            learned = HELD + further
        truth = ranked(embedding(model.metric, features), case.test, K)
        for count in (K, *CANDIDATES):
            found[further, count] = recall(truth, held[:, :count])
    return len(case.labels), found


def main(console: Console, names: Sequence[str] = DATA) -> None:
    """Print the table, or say why there is none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in names):
        console.print("Two stages: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    depths = [f"{count} ranked again" for count in CANDIDATES]
    table = Table("set", "further comparisons", f"the index's own {K}", *depths)
    table.title = f"recall@{K} of dca from an index that was made after {HELD:,} comparisons, seed 0"
    with one_blas_thread():
        for name in names:
            count, found = recalls(name)
            for further in FURTHER:
                cells = [f"{found[further, depth]:.3f}" for depth in (K, *CANDIDATES)]
                table.add_row(f"{name}, {count:,} items", f"{further:,}", *cells)
    console.print(table)
