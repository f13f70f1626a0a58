"""What a node's HTTP costs: searches and feedback, request after request on connections that stay open."""

from __future__ import annotations

import http.client
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.learning.speed import NINE
from benchmarks.services import processes
from omdml import LOMDML
from omdml.snapshot import Snapshot
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.opening import open_catalogue
from omdml.streams.stores.opening import open_store

ITEMS, RANK = 5_000, 50
HOST, PORT = "127.0.0.1", 9467
WARM_UP, REQUESTS = 200, 2_000
CLIENTS = (1, 8)
START_S = 60

# One request: method, path, body.
Ask = tuple[str, str, bytes | None]


def main(console: Console) -> None:
    table = Table("requests", "connections", "p50", "p99", "requests/s")
    table.title = f"A node over HTTP, kept-alive connections: {ITEMS:,} items, {len(NINE)} modalities, rank {RANK}"
    with tempfile.TemporaryDirectory() as folder, node(Path(folder)):
        for name, ask in {"GET /search": search, "POST /feedback, one event": feedback}.items():
            for clients in CLIENTS:
                times, took = measure(ask, clients)
                p50, p99 = np.quantile(times, [0.5, 0.99]) * 1e3
                table.add_row(name, f"{clients}", f"{p50:.2f} ms", f"{p99:.2f} ms", f"{len(times) / took:,.0f}")
    console.print(table)


def search(number: int) -> Ask:
    """A request for the items closest to an item."""
    return "GET", f"/search?id={number % ITEMS}&k=10", None


def feedback(number: int) -> Ask:
    """A comparison; the answer comes when it is on disk."""
    names = {
        name: str((number * step + 1) % ITEMS) for name, step in (("query", 3), ("relevant", 5), ("irrelevant", 7))
    }
    return "POST", "/feedback", json.dumps({"type": "triplet", "model": "shop", **names}).encode()


def measure(ask: Callable[[int], Ask], clients: int) -> tuple[list[float], float]:
    """Seconds of each request, and of all of them together."""
    times: list[float] = []
    warm = threading.Barrier(clients + 1)

    def client(first: int) -> None:
        connection = http.client.HTTPConnection(HOST, PORT, timeout=30)
        for number in range(WARM_UP):
            answered(connection, ask(number))
        warm.wait()
        for number in range(first, first + REQUESTS // clients):
            began = time.perf_counter()
            answered(connection, ask(number))
            times.append(time.perf_counter() - began)
        connection.close()

    threads = [threading.Thread(target=client, args=(place * REQUESTS,)) for place in range(clients)]
    for thread in threads:
        thread.start()
    warm.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return times, time.perf_counter() - began


def answered(connection: http.client.HTTPConnection, ask: Ask) -> None:
    """Send a request and read its answer; a refusal ends the benchmark."""
    connection.request(*ask)
    response = connection.getresponse()
    body = response.read()
    if response.status not in (200, 202):
        raise RuntimeError(f"{ask[:2]}: {response.status} {body!r}")


@contextmanager
def node(folder: Path) -> Iterator[None]:
    """A node as a process of its own, with a version live."""
    draw = np.random.default_rng(0)
    features = {f"m{i}": draw.normal(0, 1, (ITEMS, d)).astype(np.float32) for i, d in enumerate(NINE)}
    build_catalogue(folder / "items", features)
    (folder / "omdml.toml").write_text(
        f'[log]\npath = "feedback"\n[store]\nurl = "dir:state"\n[catalogues.items]\npath = "items"\n'
        f'[models.shop]\nlearner = "lomdml"\nrank = {RANK}\n[node]\nbind = "{HOST}:{PORT}"\n'
    )
    publish(folder)
    with processes.running(folder, "node") as child:
        await_ready(child, folder / "node.log")
        yield


def publish(folder: Path, rank: int = RANK) -> None:
    """Put the metric that a model starts with into the store."""
    catalogue, store = open_catalogue(folder / "items"), open_store(f"dir:{folder / 'state'}")
    learner = LOMDML(dims=dict(catalogue.dims), rank=rank)
    learner.start(catalogue.features)
    snapshot = Snapshot(
        model="shop", learner="lomdml", version=0, generation=catalogue.generation,
        event_time=None, oldest_event_time=None, progress={}, metric=learner.metric,
    )  # fmt: skip
    store.publish(snapshot, store.claim("shop").epoch)


def await_ready(child: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the node answers with a version."""
    deadline = time.monotonic() + START_S
    while child.poll() is None and time.monotonic() < deadline:
        connection = http.client.HTTPConnection(HOST, PORT, timeout=5)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.05)
    raise RuntimeError(log.read_text()[-2000:])
