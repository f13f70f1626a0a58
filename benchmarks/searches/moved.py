"""Candidates of a gallery that an older version embedded, ranked again under a metric that moved on.

For each pair of versions it measures whether a node would trust the candidates, and the recall@10 of its answers beside
a search of the whole gallery. Then new versions are published to a real node: how soon does it answer with them, and
how long do searches take until the gallery is embedded? This is measured with candidates and without.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.quality import data_folder
from omdml import DCA, LOMDML, Learner
from omdml.blas import one_blas_thread
from omdml.builders import from_labels
from omdml.coordinates import MAPPED, CoordinateMap
from omdml.metrics import Metric
from omdml.snapshot import Snapshot
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.node.following.making_views import PATIENCE_S
from omdml.workers.node.galleries.gallery import PROBES, Gallery, Query
from omdml.workers.node.galleries.reranking import Reranking
from omdml.workers.node.node import RetrievalNode

Array = NDArray[Any]
Features = Mapping[str, Array]
Answers = list[set[int]]
COUNT, WIDTH, K = int(os.environ.get("OMDML_MOVED_ITEMS", "1000000")), 128, 10
# Numbers of items of which recall is measured, by learner or kind of item; never more than COUNT.
RECALLED = {"dca": 300_000, "lomdml": 100_000, "pictures": 60_000}
# Items that are drawn: kinds in each of two senses, and the directions in which these show.
KINDS, SHOWN = 300, 12
QUERIES = 100
# Comparisons learned by the version that was embedded, and by the one that answers.
MOVES = {
    0: (1, 3, 10, 30, 100, 1_000),
    1: (3, 10, 30, 100),
    3: (4, 5),
    10: (11, 13, 30, 100),
    100: (101, 110, 130, 300, 1_000),
    1_000: (1_001, 1_010, 1_030, 1_100, 1_300, 2_000, 6_000, 0, 100),
    6_000: (6_010, 6_100, 7_000, 12_000, 0, 1_000),
}
# Shares of the items that a filter leaves; 1: no filter.
LEFT = (1.0, 0.1, 0.01)
# What the node goes through, one after the other: all of it is published as new versions.
PUBLISHED = (1_000, 1_001, 1_010, 1_100, 2_000, 6_000, 1_000, 0)


def main(console: Console) -> None:
    """Print the tables; those of real items only if the data sets are there."""
    with one_blas_thread():
        pairs: list[Pair] = []
        for name in ("dca", "lomdml"):
            items, labels = drawn(min(COUNT, RECALLED[name]))
            console.print(recalls(f"drawn items, {name}", begun(name, items), items, labels, pairs))
        console.print(published(*drawn(COUNT)))
        if not (data_folder() / "cifar10.npz").is_file():
            console.print("moved: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
            return
        items, labels = pictures(min(COUNT, RECALLED["pictures"]))
        console.print(recalls("pictures, dca", begun("dca", items), items, labels, pairs))
        console.print(summary(pairs))


class Pair(NamedTuple):
    """The result of two versions: whether candidates were trusted, recalls by LEFT, and how long the trial took."""

    trusted: bool
    recalls: list[float]
    trial_s: float


def summary(pairs: Sequence[Pair]) -> str:
    """What holds for all pairs of versions."""
    trusted = [pair for pair in pairs if pair.trusted]
    trials, others = ([1e3 * pair.trial_s for pair in pairs if pair.trusted is trust] for trust in (True, False))
    return (
        f"{len(trusted)} of {len(pairs)} pairs of versions were trusted; their lowest recall was "
        f"{min(pair.recalls[0] for pair in trusted):.3f}, and with filters "
        f"{min(min(pair.recalls[1:]) for pair in trusted):.3f}; a trial took {min(trials):.0f} to {max(trials):.0f} ms "
        f"if it ended well, and at most {max(others):.0f} ms if not"
    )


def drawn(count: int) -> tuple[Features, Array]:
    """Items (n, d) that are alike in two senses, each in directions of its own, with labels of the first sense.

    The other sense shows more, so the plain distance goes by that.
    """
    draw = np.random.default_rng(0)
    turn = np.linalg.qr(draw.normal(size=(WIDTH, WIDTH)))[0].astype(np.float32)
    centres = (draw.normal(size=(2, KINDS, SHOWN)) * np.array([0.8, 1.2])[:, None, None]).astype(np.float32)
    labels, result = draw.integers(0, KINDS, (2, count)), np.empty((count, WIDTH), np.float32)
    for start in range(0, count, 50_000):
        rows = slice(start, min(start + 50_000, count))
        place = 0.3 * draw.standard_normal((rows.stop - start, WIDTH), dtype=np.float32)
        place[:, : 2 * SHOWN] *= 0.5 / 0.3
        place[:, :SHOWN] += centres[0, labels[0, rows]]
        place[:, SHOWN : 2 * SHOWN] += centres[1, labels[1, rows]]
        result[rows] = place @ turn
    return {"x": result}, labels[0]


def pictures(count: int) -> tuple[Features, Array]:
    """The pictures of CIFAR-10 as a catalogue maps their descriptors, and mixtures of two of a kind, with labels."""
    data, draw = np.load(data_folder() / "cifar10.npz"), np.random.default_rng(0)
    features = {name.removeprefix("X_"): data[name] for name in data.files if name.startswith("X_")}
    own, labels = CoordinateMap.fit(features).apply(features), data["y"]
    order = np.argsort(labels, kind="stable")
    first = draw.integers(0, len(own), count)
    starts = np.searchsorted(labels[order], np.arange(labels.max() + 2))
    begin, end = starts[labels[first]], starts[labels[first] + 1]
    second = order[begin + (draw.random(count) * (end - begin)).astype(np.int64)]
    result, spread = np.empty((count, own.shape[1]), np.float32), 0.05 * own.std(axis=0)
    for start in range(0, count, 50_000):
        rows = slice(start, min(start + 50_000, count))
        share = draw.uniform(0.5, 1, (rows.stop - start, 1)).astype(np.float32)
        result[rows] = share * own[first[rows]] + (1 - share) * own[second[rows]]
        result[rows] += spread * draw.standard_normal(result[rows].shape, dtype=np.float32)
    return {MAPPED: result}, labels[first]


def begun(name: str, features: Features) -> Learner:
    """A learner at its start, which was computed from the items."""
    dims = {modality: x.shape[1] for modality, x in features.items()}
    if name == "lomdml":
        learner: Learner = LOMDML(dims, rank=WIDTH, seed=0)
    else:
        learner = DCA(dims, seed=0, **(DCA.on_mapped if MAPPED in features else {}))
    learner.start(features)
    return learner


def versions(learner: Learner, features: Features, labels: Array, counts: set[int]) -> dict[int, Metric]:
    """The metrics after each of these numbers of comparisons."""
    rows, metrics = from_labels(labels, max(counts), 1), {}
    for count in sorted(counts):
        learner.learn_many(rows[learner.version : count], features)
        metrics[count] = learner.metric
    return metrics


def recalls(title: str, learner: Learner, features: Features, labels: Array, pairs: list[Pair]) -> Table:
    """Recall of answers from candidates, of each pair of versions, and what the node's trial says.

    Adds what it found to ``pairs``.
    """
    count = len(labels)
    metrics = versions(learner, features, labels, {*MOVES, *(new for pair in MOVES.values() for new in pair)})
    draw = np.random.default_rng(5)
    rows = draw.choice(count, QUERIES, replace=False)
    queries = {
        left: [Query(row[None], among=None if left == 1 else draw.random(count) < left) for row in rows]
        for left in LEFT
    }
    # One filter for all queries: as many masks as queries would take long to make.
    queries = {left: [query._replace(among=asked[0].among) for query in asked] for left, asked in queries.items()}
    exact: dict[int, dict[float, Answers]] = {}
    for version, metric in metrics.items():
        gallery = Gallery(metric, features)
        exact[version] = {
            left: [set(hits.rows.tolist()) for hits in gallery.nearest_each(asked, K)]
            for left, asked in queries.items()
        }
    table = Table(
        "embedded", "answered", "prepared", "tried", "trusted", "recall@10",
        *(f"a filter leaves {left:.0%}" for left in LEFT[1:]), "of the version before", "search", "beside the gallery",
    )  # fmt: skip
    table.title = f"{title}: {count:,} x {sum(x.shape[1] for x in features.values())}, {QUERIES} queries"
    for old, news in MOVES.items():
        gallery = Gallery(metrics[old], features)
        began = time.thread_time()
        for number in range(PROBES):
            gallery.probe(number)
        prepared = time.thread_time() - began
        for new in news:
            reranking = Reranking(gallery, metrics[new], features, old)
            began = time.thread_time()
            trusted = reranking.holds()
            trial = time.thread_time() - began
            shares, took, plain = [], [], []
            for left, asked in queries.items():
                answers = []
                for query in asked:
                    began = time.thread_time()
                    hits = reranking.nearest(query, K)
                    took.append(time.thread_time() - began)
                    assert hits is not None
                    answers.append(set(hits.rows.tolist()))
                    if left == 1:
                        began = time.thread_time()
                        gallery.nearest(query, K)
                        plain.append(time.thread_time() - began)
                shares.append(shared(answers, exact[new][left]))
            took = took[:QUERIES]
            pairs.append(Pair(trusted, shares, trial))
            table.add_row(
                f"{old:,}", f"{new:,}", f"{1e3 * prepared:.0f} ms", f"{1e3 * trial:.0f} ms", "yes" if trusted else "no",
                *(f"{share:.3f}" for share in shares), f"{shared(exact[old][1.0], exact[new][1.0]):.3f}",
                f"{1e3 * np.median(took):.1f} ms", f"{np.median(np.divide(took, plain)):.2f}x",
            )  # fmt: skip
    return table


def shared(answers: Answers, exact: Answers) -> float:
    """The share of the exact answers that was found, mean of the queries."""
    return float(np.mean([len(mine & right) / len(right) for mine, right in zip(answers, exact, strict=True)]))


def published(features: Features, labels: Array) -> Table:
    """How soon a node answers with a version that was just published, and how long searches take meanwhile."""
    metrics = versions(begun("dca", features), features, labels, set(PUBLISHED))
    table = Table("before", "published", "", "first answer", "embedded", "searches meanwhile", "p50", "p99")
    table.title = f"a node with {COUNT:,} x {WIDTH}, dca: seconds after a version was published"
    with tempfile.TemporaryDirectory() as folder:
        build_catalogue(Path(folder), features, ids=[f"i{row}" for row in range(COUNT)], mapped=False)
        catalogue = MappedCatalogue(Path(folder))
        for way, patience_s in (("candidates", PATIENCE_S), ("as before", 1e9)):
            store = MemoryStore()
            epoch = store.claim("shop").epoch
            store.publish(snapshot(catalogue, metrics[PUBLISHED[0]], 0), epoch)
            with RetrievalNode(store, lambda model: catalogue, ["shop"], patience_s=patience_s) as node:
                wait(lambda node=node: node.loaded("shop") is not None)
                for number, (old, new) in enumerate(pairwise(PUBLISHED), 1):
                    publish = partial(store.publish, snapshot(catalogue, metrics[new], number), epoch)
                    table.add_row(f"{old:,}", f"{new:,}", way, *swap(node, publish, number))
    return table


def swap(node: RetrievalNode, publish: Callable[[], object], version: int) -> Iterator[str]:
    """The cells of one swap to a version that this publishes."""
    rows = np.random.default_rng(version).integers(0, COUNT, 100_000)
    took: list[float] = []
    answered: list[float] = []
    done = threading.Event()

    def ask() -> None:
        for row in rows.tolist():
            if done.is_set():
                return
            began = time.perf_counter()
            answer = node.search(ids=[f"i{row}"])
            took.append(time.perf_counter() - began)
            if answer.version == version and not answered:
                answered.append(time.perf_counter())

    asking = threading.Thread(target=ask)
    began = time.perf_counter()
    publish()
    asking.start()
    wait(lambda: bool(answered) and node.view().origin is None)
    embedded = time.perf_counter()
    done.set()
    asking.join()
    p50, p99 = 1e3 * np.quantile(took, [0.5, 0.99])
    yield from (f"{answered[0] - began:.2f} s", f"{embedded - began:.1f} s", f"{len(took)}")
    yield from (f"{p50:.0f} ms", f"{p99:.0f} ms")


def snapshot(catalogue: Catalogue, metric: Metric, version: int) -> Snapshot:
    return Snapshot(
        model="shop", learner="dca", version=version, generation=catalogue.generation, event_time=None,
        oldest_event_time=None, progress={}, metric=metric,
    )  # fmt: skip


def wait(condition: Callable[[], bool]) -> None:
    """Look every 5 ms, so that the times measured are no later than that."""
    while not condition():
        time.sleep(0.005)
