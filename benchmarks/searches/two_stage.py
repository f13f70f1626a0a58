"""Candidates from an index that holds an older version, ranked again exactly under the live metric.

An index in a vector database, or the cells of an approximate index, was made after ``HELD`` comparisons. The model goes
on learning, and the index stays. Each test query takes the nearest ``CANDIDATES`` items as the index has them, and the
live metric ranks those: recall@10 is the share of the ten nearest under the live metric that are among them. Queries
are items, placed where the index holds them.

A node places a query by the live metric instead, turned onto the index. The other tables are of real nodes over HTTP,
asked in turn: one that holds all items, and ones that take candidates from PostgreSQL and from LanceDB, whose indexes
hold an older version. The last table is of searches with filters: ``price`` can be looked for by the index, ``since``
(a date) cannot, so the node has to ask for more candidates.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.clicks import DATA, MAPPED, Array, begun, embedding, prepared, triplets
from benchmarks.quality import data_folder
from benchmarks.services import processes
from benchmarks.services.new_models import cpu_seconds
from deploy.local import PostgresServer
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
# Key of the recall of a node's own answers, among recalls by number of candidates.
NODE = 0
# Number of items of the nodes, and of their coordinates.
ITEMS, WIDTH = int(os.environ.get("OMDML_TWO_STAGE_ITEMS", "300000")), 128
SEARCHES = int(os.environ.get("OMDML_TWO_STAGE_SEARCHES", "200"))
LEARNED, LATER = 300, (0, 300, 3_000)
# Seconds that anything may take on a machine that others use, too.
PATIENCE_S = 600
KINDS = ("PostgreSQL", "LanceDB")
# Shares of the items that filters leave, and the days among which each item has one.
SHARES, DAYS = (0.3, 0.1, 0.03, 0.01), 10_000
CONFIGURATION = """
[log]
path = "feedback"
[store]
url = "dir:state"
[catalogues.items]
path = "items"
attributes = "attributes.jsonl"
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
    shared = [np.isin(near, candidate).mean() for near, candidate in zip(truth, candidates, strict=True)]
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
    recalled, learned = {}, HELD
    for further in FURTHER:
        if HELD + further > learned:
            model.learn_many(rows[learned : HELD + further], features)
            learned = HELD + further
        live = embedding(model.metric, features)
        truth = ranked(live, case.test, K)
        recalled[further, NODE] = recall(truth, turned(index, live, case.test, DEPTH))
        for count in (K, *CANDIDATES):
            recalled[further, count] = recall(truth, held[:, :count])
    return len(case.labels), recalled


class Asked(NamedTuple):
    """What a node was asked and answered: ids for each query, seconds of each search, and of processors."""

    ids: list[list[str]]
    seconds: list[float]
    processor_s: float
    server_s: float


class Node:
    """A node as a process of its own, with the items or with an index of candidates."""

    def __init__(self, folder: Path, name: str, candidates: str, server: PostgresServer | None = None) -> None:
        self.port, self._server = free_port(), server
        text = CONFIGURATION.format(width=WIDTH, candidates=candidates, port=self.port)
        (folder / f"{name}.toml").write_text(text)
        self.process = processes.start(folder, "node", "--config", f"{name}.toml", name=name)

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE_S) as answer:
            return bytes(answer.read())

    def wait_for(self, version: int) -> None:
        """Wait until this version answers, whole."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                (model,) = msgspec.json.decode(self.get("/models"))["models"]
                if model["ready"] and model["version"] == version and model["complete"]:
                    return
            except OSError:
                # It does not listen yet.
                pass
            time.sleep(0.1)
        raise TimeoutError(f"version {version:,} does not answer: see the logs of the nodes")

    def search(self, item: str, matching: Mapping[str, Any]) -> list[str]:
        """The ids of the K items that the node answers for this one."""
        body = {"id": item, "k": K} | ({"filter": matching} if matching else {})
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/search", msgspec.json.encode(body), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return [item["id"] for item in msgspec.json.decode(answer.read())["items"]]

    def processor_s(self) -> tuple[float, float]:
        """Seconds of processor so far: of the node, and of its database server."""
        server = 0.0
        if self._server:
            children = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children").read_text().split()
            server = sum(cpu_seconds(int(child)) for child in children)
        return cpu_seconds(self.process.pid), server

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
        self.process.wait(PATIENCE_S)


def clusters(draw: np.random.Generator) -> tuple[Array, Array]:
    """Items (n, d) around 1,000 centres that differ in 24 directions, with labels (n,), and noise in all others."""
    centres, labels = draw.normal(size=(1_000, 24)), draw.integers(0, 1_000, ITEMS)
    within = draw.normal(size=(ITEMS, 24)) * 0.7 + centres[labels]
    turn = np.linalg.qr(draw.normal(size=(WIDTH, WIDTH)))[0]
    noise = draw.normal(size=(ITEMS, WIDTH - 24)) * 0.5
    return (np.concatenate([within, noise], axis=1) @ turn).astype(np.float32), labels


def in_turn(nodes: Mapping[str, Node], items: Sequence[str], matching: Mapping[str, Any]) -> dict[str, Asked]:
    """Answers to these items, each asked of one node after the other."""
    asked = {}
    for node in nodes.values():
        for item in items[:10]:
            node.search(item, matching)
    before = {name: node.processor_s() for name, node in nodes.items()}
    ids: dict[str, list[list[str]]] = {name: [] for name in nodes}
    seconds: dict[str, list[float]] = {name: [] for name in nodes}
    for item in items:
        for name, node in nodes.items():
            began = time.perf_counter()
            ids[name].append(node.search(item, matching))
            seconds[name].append(time.perf_counter() - began)
    for name, node in nodes.items():
        own, server = np.subtract(node.processor_s(), before[name]).tolist()
        asked[name] = Asked(ids[name], seconds[name], own, server)
    return asked


def write_attributes(path: Path, ids: Sequence[str]) -> None:
    """A price from 0 to 1, and a day, of each item."""
    draw = np.random.default_rng(1)
    prices, days = draw.random(len(ids)).tolist(), draw.integers(0, DAYS, len(ids)).tolist()
    with path.open("wb") as lines:
        for name, price, day in zip(ids, prices, days, strict=True):
            lines.write(msgspec.json.encode({"id": name, "price": price, "since": day_of(day)}) + b"\n")


def day_of(number: int) -> str:
    """The date of a day by its number."""
    return (date(2000, 1, 1) + timedelta(number)).isoformat()


def nodes_tables(kinds: Sequence[str] = KINDS) -> Iterator[Table]:
    """Memory, latency and recall of nodes with an index of candidates, beside one that holds the items."""
    table = Table(
        "further comparisons", "node", "memory", "mapped files", "search, p50", "p99", "of all items", "processor",
        "server", f"recall@{K}",
    )  # fmt: skip
    table.title = f"{ITEMS:,} x {WIDTH}, {SEARCHES} searches over HTTP, databases on the same machine"
    filtered = Table("a filter leaves", "node", "p50, of all items", "processor", "server", f"recall@{K}")
    filtered.title = "The same with filters by an attribute that the index can look for (price), or cannot (since)"
    with contextlib.ExitStack() as stack:
        stack.enter_context(one_blas_thread())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        draw = np.random.default_rng(0)
        features, labels = clusters(draw)
        ids = [f"i{row}" for row in range(ITEMS)]
        build_catalogue(folder / "items", {"item": features}, ids=ids, mapped=False)
        del features
        write_attributes(folder / "attributes.jsonl", ids)
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
        nodes = {"all items": Node(folder, "whole", "")}
        stack.callback(nodes["all items"].stop)
        for kind in kinds:
            server = stack.enter_context(PostgresServer()) if kind == "PostgreSQL" else None
            # An HNSW graph is made much faster if it fits into this memory.
            address = f"{server.url}?options=-c%20maintenance_work_mem%3D1GB" if server else "lancedb:vectors"
            arguments = "sync", "shop", "--config", "sync.toml", "--to", address
            if processes.start(folder, *arguments).wait():
                raise RuntimeError((folder / "sync.log").read_text())
            nodes[kind] = Node(folder, kind, f'candidates = "{server.url if server else address}"', server)
            stack.callback(nodes[kind].stop)
        for further in LATER:
            if further:
                learn(LEARNED + further)
            for node in nodes.values():
                node.wait_for(learner.version)
            asked = in_turn(nodes, items, {})
            for name, node in nodes.items():
                table.add_row(f"{further:,}", name, *columns(node, asked[name], asked["all items"]))
            if further == LATER[1]:
                for share in SHARES:
                    for matching in ({"price": {"lt": share}}, {"since": {"lt": day_of(int(share * DAYS))}}):
                        asked = in_turn(nodes, items, matching)
                        for name in nodes:
                            cells = short_columns(asked[name], asked["all items"])
                            filtered.add_row(f"{share:.0%}, by {next(iter(matching))}", name, *cells)
        yield table
        yield filtered


def snapshot_of(learner: LOMDML, catalogue: MappedCatalogue) -> Snapshot:
    """A snapshot of what a learner has learned so far."""
    return Snapshot(
        model="shop", learner="lomdml", version=learner.version, generation=catalogue.generation, event_time=None,
        oldest_event_time=None, progress={}, metric=learner.metric,
    )  # fmt: skip


def short_columns(asked: Asked, right: Asked) -> list[str]:
    """How many times longer a search took than with all items; its processor time; recall."""
    shared = [
        len(set(mine) & set(theirs)) / max(1, len(theirs)) for mine, theirs in zip(asked.ids, right.ids, strict=True)
    ]
    own, server = (f"{seconds / SEARCHES * 1e3:.1f} ms" for seconds in (asked.processor_s, asked.server_s))
    longer = np.median(asked.seconds) / np.median(right.seconds)
    return [f"{longer:.2f} x", own, server if asked.server_s else "", f"{np.mean(shared):.3f}"]


def columns(node: Node, asked: Asked, right: Asked) -> list[str]:
    """The cells of a row, after its name."""
    own, mapped = node.memory_mb()
    p50, p99 = np.percentile(asked.seconds, [50, 99]) * 1e3
    return [f"{own:,.0f} MB", f"{mapped:,.0f} MB", f"{p50:.0f} ms", f"{p99:.0f} ms", *short_columns(asked, right)]


def main(console: Console, names: Sequence[str] = DATA) -> None:
    """Print the tables; the first one only if the data sets are there."""
    for nodes in nodes_tables():
        console.print(nodes)
    if not all((data_folder() / f"{name}.npz").is_file() for name in names):
        console.print("Two stages: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    depths = [*(f"{count} ranked again" for count in CANDIDATES), f"{DEPTH} by a node"]
    table = Table("set", "further comparisons", f"the index's own {K}", *depths)
    table.title = f"recall@{K} of dca from an index that was made after {HELD:,} comparisons, seed 0"
    with one_blas_thread():
        for name in names:
            count, recalled = recalls(name)
            for further in FURTHER:
                cells = [f"{recalled[further, depth]:.3f}" for depth in (K, *CANDIDATES, NODE)]
                table.add_row(f"{name}, {count:,} items", f"{further:,}", *cells)
    console.print(table)
