"""Query expansion: what a second search brings, and whether learning from its pages hurts (MATHS 16).

The protocol is that of ``clicks``: held-out queries among all items. In the closed loop people see pages of the metric
so far, plain or expanded, and both models are measured by the same plain search and by their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.clicks import LOOP_COUNTS, LOOP_WRONG, PAGE, Array, Case, begun, embedding, prepared, triplets
from benchmarks.quality import SETS, data_folder
from omdml.blas import one_blas_thread
from omdml.coordinates import MAPPED
from omdml.evaluate import average_precision
from omdml.retrieval.expansion import shares

EXPAND = 5
COUNTS = (0, 50, 200, 1_000, 10_000)
SEEDS = (0,)
METHODS = (("DCA", MAPPED), ("LOMDML", "features"))
WRONG = (0.0, 0.2)


def ranked(embedded: Array, row: int, expand: int) -> Array:
    """All rows but the query's, by their distance from it, or from what it expands to."""
    point = embedded[row]
    order = _order(embedded, point, row)
    if expand:
        nearest = embedded[order[:expand]]
        order = _order(embedded, shares(point, nearest) @ np.concatenate([point[None], nearest]), row)
    return order


def _order(embedded: Array, point: Array, row: int) -> Array:
    distances = np.einsum("ij,ij->i", embedded, embedded) - 2 * (embedded @ point)
    distances[row] = np.inf
    return np.argsort(distances, kind="stable")[:-1]


def score(embedded: Array, case: Case, expand: int) -> float:
    """MAP of the test queries among all items."""
    centred = embedded - embedded.mean(axis=0)
    lists = np.stack([ranked(centred, int(row), expand) for row in case.test])
    return float(average_precision(case.labels[lists] == case.labels[case.test][:, None]).mean())


def curve(name: str, seed: int, method: str, of: str, wrong: float) -> Array:
    """Scores (2, counts): plain and expanded, after each count of triplets."""
    case = prepared(name, seed)
    features = case.items[of]
    model, rows, scores, learned = begun(method, features, case), triplets(case, COUNTS[-1], wrong), [], 0
    for count in COUNTS:
        model.learn_many(rows[learned:count], features)
        learned = count
        embedded = embedding(model.metric, features)
        scores.append([score(embedded, case, expand) for expand in (0, EXPAND)])
    return np.array(scores).T


def closed_loop(name: str, seed: int, method: str, of: str, expand: int) -> Array:
    """Scores (2, counts), plain and expanded, of a model that learned from plain pages, or from expanded ones."""
    case = prepared(name, seed)
    features, labels, train = case.items[of], case.labels, case.train
    model, draw, learned, scores = begun(method, features, case), np.random.default_rng(seed), 0, []
    gallery = {modality: x[train] for modality, x in features.items()}
    while len(scores) < len(LOOP_COUNTS):
        embedded = model.metric.embed(gallery)
        query = int(draw.integers(len(train)))
        page = ranked(embedded - embedded.mean(axis=0), query, expand)[:PAGE]
        relevant = (labels[train[page]] == labels[train[query]]) ^ (draw.random(PAGE) < LOOP_WRONG)
        if not 0 < relevant.sum() < PAGE:
            continue
        near = train[page[relevant]]
        far = draw.choice(train[page[~relevant]], len(near))
        rows = np.stack([np.full_like(near, train[query]), near, far], axis=1)[: LOOP_COUNTS[len(scores)] - learned]
        model.learn_many(rows, features)
        learned += len(rows)
        if learned == LOOP_COUNTS[len(scores)]:
            embedded = embedding(model.metric, features)
            scores.append([score(embedded, case, way) for way in (0, EXPAND)])
    return np.array(scores).T


def main(console: Console, names: Sequence[str] = tuple(SETS), seeds: Sequence[int] = SEEDS) -> None:
    """Print the tables, or say why there are none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in names):
        console.print("Expand: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    raised, gained = [], []
    with one_blas_thread():
        for name in names:
            table = Table("method", "wrong", *(f"{count:,}" for count in COUNTS))
            table.title = f"{name}, mAP without and with expand = {EXPAND}, after so many triplets, seeds {list(seeds)}"
            for method, of in METHODS:
                for wrong in WRONG:
                    both = np.mean([curve(name, seed, method, of, wrong) for seed in seeds], axis=0)
                    raised += (both[1] - both[0]).tolist()
                    table.add_row(f"{method}, {of}", f"{wrong:.0%}", *(f"{a:.3f} {b:.3f}" for a, b in both.T))
            console.print(table)
            table = Table("method", "pages", *(f"{count:,}" for count in LOOP_COUNTS))
            table.title = f"{name}, closed loop, the same two searches after learning from such pages"
            for method, of in METHODS:
                of_pages = {}
                for pages, expand in (("plain", 0), ("expanded", EXPAND)):
                    both = np.mean([closed_loop(name, seed, method, of, expand) for seed in seeds], axis=0)
                    table.add_row(f"{method}, {of}", pages, *(f"{a:.3f} {b:.3f}" for a, b in both.T))
                    of_pages[pages] = both[0]
                gained += (of_pages["expanded"] - of_pages["plain"]).tolist()
            console.print(table)
    console.print(f"expansion changed mAP by {min(raised):.3f} to {max(raised):.3f} in {len(raised)} cases")
    worse = [gain for gain in gained if gain < 0]
    console.print(
        f"in {len(worse)} of {len(gained)} cases a model that learned from expanded pages was worse in plain searches, "
        f"by at most {-min(gained):.3f}; in the others it was better, by at most {max(gained):.3f}"
    )
