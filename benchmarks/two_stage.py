"""Candidates from an index that holds an older version, ranked again exactly under the live metric.

An index in a vector database, or the cells of an approximate index, was made after ``HELD`` comparisons. The model goes
on learning, and the index stays. Each test query takes the nearest ``CANDIDATES`` items as the index has them, and the
live metric ranks those: recall@10 is the share of the ten nearest under the live metric that are among them. Queries
are items, placed where the index holds them.

A node places a query by the live metric instead, turned onto the index. The second table is of real nodes: one that
holds all items, and one that takes candidates from a LanceDB index of an older version.
"""

from __future__ import annotations

import re
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import processes
from benchmarks.clicks import DATA, MAPPED, Array, begun, embedding, prepared, triplets
from benchmarks.new_models import cpu_seconds
from benchmarks.quality import data_folder
from deploy.local.ports import free_port
from omdml import LOMDML
from omdml.blas import one_blas_thread
from omdml.builders import from_labels
from omdml.snapshot import Snapshot
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.node.galleries.candidates import SAMPLE
from omdml.workers.node.galleries.two_stage import DEPTH, turn_of

HELD, FURTHER = 1_000, (0, 100, 300, 1_000, 3_000, 9_000)
CANDIDATES, K = (50, 100, 200, 500), 10
# The column of what a node answers.
NODE = 0
# Of the nodes.
ITEMS, WIDTH, SEARCHES, LEARNED, LATER = 300_000, 128, 200, 300, (0, 300, 3_000)
CONFIGURATION = """
[log]
path = "feedback"
[store]
url = "dir:state"
[catalogues.items]
path = "items"
[models.shop]
learner = "lomdml"
rank = {width}
{candidates}
[node]
bind = "127.0.0.1:{port}"
"""


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


def turned(held: Array, live: Array, queries: Array, count: int) -> Array:
    """What :func:`ranked` says if queries are placed as nodes do it: by the live metric, turned onto the index."""
    sample = np.random.default_rng(0).choice(len(held), min(SAMPLE, len(held)), replace=False)
    places = live[queries] @ turn_of(live[sample].astype(np.float64), held[sample].astype(np.float64))
    distances = (held**2).sum(axis=1) - 2 * places @ held.T
    distances[np.arange(len(queries)), queries] = np.inf
    return np.argsort(distances, axis=1, kind="stable")[:, :count]


def recalls(name: str, seed: int = 0) -> tuple[int, dict[tuple[int, int], float]]:
    """The number of items, and recall@10 by the number of further comparisons and of candidates."""
    case = prepared(name, seed)
    features, rows = case.items[MAPPED], triplets(case, HELD + max(FURTHER), 0.0)
    model = begun("DCA", features, case)
    model.learn_many(rows[:HELD], features)
    index = embedding(model.metric, features)
    held = ranked(index, case.test, max(CANDIDATES))
    found, learned = {}, HELD
    for further in FURTHER:
        if HELD + further > learned:
            model.learn_many(rows[learned : HELD + further], features)
            learned = HELD + further
        live = embedding(model.metric, features)
        truth = ranked(live, case.test, K)
        found[further, NODE] = recall(truth, turned(index, live, case.test, DEPTH))
        for count in (K, *CANDIDATES):
            found[further, count] = recall(truth, held[:, :count])
    return len(case.labels), found


class Asked(NamedTuple):
    """What a node was asked and answered: ids for each query, seconds of each search, and of its processor."""

    ids: list[list[str]]
    seconds: list[float]
    processor_s: float


class Node:
    """A node as a process of its own, with the items or with an index of candidates."""

    def __init__(self, folder: Path, name: str, candidates: str) -> None:
        self.port = free_port()
        text = CONFIGURATION.format(width=WIDTH, candidates=candidates, port=self.port)
        (folder / f"{name}.toml").write_text(text)
        self.process = processes.start(folder, "node", "--config", f"{name}.toml", name=name)

    def get(self, path: str) -> bytes:
        """The body of an answer."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=600) as answer:
            return bytes(answer.read())

    def wait_for(self, version: int) -> None:
        """Wait until this version answers, whole."""
        for _ in range(6_000):
            try:
                (model,) = msgspec.json.decode(self.get("/models"))["models"]
                if model["ready"] and model["version"] == version and model["complete"]:
                    return
            except OSError:
                # It does not listen yet.
                pass
            time.sleep(0.1)
        raise TimeoutError(f"version {version:,} does not answer: see the logs of the nodes")

    def asked(self, items: Sequence[str]) -> Asked:
        """The answers to these items, one after the other."""
        before, ids, seconds = cpu_seconds(self.process.pid), [], []
        for item in items:
            began = time.perf_counter()
            answer = self.get(f"/search?id={item}&k={K}")
            seconds.append(time.perf_counter() - began)
            ids.append([found["id"] for found in msgspec.json.decode(answer)["items"]])
        return Asked(ids, seconds, cpu_seconds(self.process.pid) - before)

    def memory_mb(self) -> tuple[float, float]:
        """Memory of its own, and pages of files that it has mapped."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        own, mapped = (re.search(rf"{name}:\s+(\d+) kB", status) for name in ("RssAnon", "RssFile"))
        assert own
        assert mapped
        return int(own[1]) * 1.024e-3, int(mapped[1]) * 1.024e-3

    def stop(self) -> None:
        """Ask it to end, and wait for it."""
        self.process.terminate()
        self.process.wait(processes.STOP_S)


def clusters(draw: np.random.Generator) -> tuple[Array, Array]:
    """Items (n, d) around 1,000 centres that differ in 24 directions, with labels (n,), and noise in all others."""
    centres, labels = draw.normal(size=(1_000, 24)), draw.integers(0, 1_000, ITEMS)
    within = draw.normal(size=(ITEMS, 24)) * 0.7 + centres[labels]
    turn = np.linalg.qr(draw.normal(size=(WIDTH, WIDTH)))[0]
    noise = draw.normal(size=(ITEMS, WIDTH - 24)) * 0.5
    return (np.concatenate([within, noise], axis=1) @ turn).astype(np.float32), labels


def nodes_table() -> Table:
    """Memory, latency and recall of a node with an index of candidates, beside one that holds the items."""
    table = Table(
        "further comparisons", "node", "memory", "mapped files", "search, p50", "p99", "processor", f"recall@{K}"
    )
    table.title = f"{ITEMS:,} x {WIDTH}, {SEARCHES} searches over HTTP, LanceDB on the same machine"
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place, one_blas_thread():
        folder = Path(place)
        features, labels = clusters(draw)
        ids = [f"i{row}" for row in range(ITEMS)]
        build_catalogue(folder / "items", {"item": features}, ids=ids)
        del features
        catalogue = MappedCatalogue(folder / "items")
        learner = LOMDML(dims=dict(catalogue.dims), rank=WIDTH)
        learner.start(catalogue.features)
        store = DirectoryStore(str(folder / "state"))
        epoch = store.claim("shop").epoch
        rows = from_labels(labels, LEARNED + max(LATER), 0)
        items = [ids[row] for row in draw.choice(ITEMS, SEARCHES, replace=False)]

        def learn(until: int) -> None:
            learner.learn_many(rows[learner.version : until], catalogue.features)
            store.publish(snapshot_of(learner, catalogue), epoch)

        learn(LEARNED)
        (folder / "sync.toml").write_text(CONFIGURATION.format(width=WIDTH, candidates="", port=1))
        arguments = "sync", "shop", "--config", "sync.toml", "--to", "lancedb:vectors"
        if processes.start(folder, *arguments).wait():
            raise RuntimeError((folder / "sync.log").read_text())
        nodes = {
            "all items": Node(folder, "whole", ""),
            "candidates": Node(folder, "candidates", 'candidates = "lancedb:vectors"'),
        }
        try:
            for further in LATER:
                if further:
                    learn(LEARNED + further)
                asked = {}
                for name, node in nodes.items():
                    node.wait_for(learner.version)
                    node.asked(items[:20])
                    asked[name] = node.asked(items)
                for name, node in nodes.items():
                    table.add_row(f"{further:,}", name, *columns(node, asked[name], asked["all items"]))
        finally:
            for node in nodes.values():
                node.stop()
    return table


def snapshot_of(learner: LOMDML, catalogue: MappedCatalogue) -> Snapshot:
    """What was learned so far."""
    return Snapshot(
        model="shop", learner="lomdml", version=learner.version, generation=catalogue.generation, event_time=None,
        oldest_event_time=None, progress={}, metric=learner.metric,
    )  # fmt: skip


def columns(node: Node, asked: Asked, right: Asked) -> list[str]:
    """The cells of a row, after its name."""
    own, mapped = node.memory_mb()
    p50, p99 = np.percentile(asked.seconds, [50, 99]) * 1e3
    shared = [len(set(mine) & set(theirs)) / K for mine, theirs in zip(asked.ids, right.ids, strict=True)]
    processor = asked.processor_s / SEARCHES * 1e3
    return [f"{own:,.0f} MB", f"{mapped:,.0f} MB", f"{p50:.0f} ms", f"{p99:.0f} ms", f"{processor:.1f} ms",
            f"{np.mean(shared):.3f}"]  # fmt: skip


def main(console: Console, names: Sequence[str] = DATA) -> None:
    """Print the tables; the first one only if the data sets are there."""
    console.print(nodes_table())
    if not all((data_folder() / f"{name}.npz").is_file() for name in names):
        console.print("Two stages: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    depths = [*(f"{count} ranked again" for count in CANDIDATES), f"{DEPTH} by a node"]
    table = Table("set", "further comparisons", f"the index's own {K}", *depths)
    table.title = f"recall@{K} of dca from an index that was made after {HELD:,} comparisons, seed 0"
    with one_blas_thread():
        for name in names:
            count, found = recalls(name)
            for further in FURTHER:
                cells = [f"{found[further, depth]:.3f}" for depth in (K, *CANDIDATES, NODE)]
                table.add_row(f"{name}, {count:,} items", f"{further:,}", *cells)
    console.print(table)
