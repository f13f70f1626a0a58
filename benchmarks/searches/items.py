"""Items that change while people search: what a thousand changes a second do to searches."""

from __future__ import annotations

import http.client
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.searches.requests import HOST, PORT, answered, await_ready, publish
from benchmarks.services import processes
from omdml.streams.catalogues.building.build import build_catalogue

ITEMS, DIMS, RANK = 100_000, {"colour": 64, "shape": 64}, 50
# Changes a second, and searches a second.
CHANGES, SEARCHES = 1_000, 25
# Changes of one request.
TOGETHER = 50
SECONDS = 30.0
WARM_UP_S = 5.0


def main(console: Console) -> None:
    with tempfile.TemporaryDirectory() as folder, node(Path(folder)):
        search(WARM_UP_S)
        alone = search(SECONDS)
        stop, done = threading.Event(), []
        changing = threading.Thread(target=change, args=(stop, done))
        changing.start()
        time.sleep(WARM_UP_S)
        first, began = len(done), time.perf_counter()
        beside = search(SECONDS)
        made, took = (len(done) - first) * TOGETHER, time.perf_counter() - began
        stop.set()
        changing.join()
        afterwards = search(SECONDS)
    table = Table("searches", "p50", "p99")
    table.title = (
        f"{ITEMS:,} items, {sum(DIMS.values())} numbers, rank {RANK}; {SEARCHES} searches a second over HTTP, "
        f"requests of {TOGETHER} changes (eight in ten put, one gives attributes, one deletes)"
    )
    for name, times in (("alone", alone), ("beside changes", beside), ("alone, afterwards", afterwards)):
        p50, p99 = np.quantile(times, [0.5, 0.99]) * 1e3
        table.add_row(name, f"{p50:.1f} ms", f"{p99:.1f} ms")
    console.print(table)
    ratio = float(np.quantile(beside, 0.99) / np.quantile(alone, 0.99))
    p50, p99 = np.quantile(done, [0.5, 0.99]) * 1e3
    console.print(f"p99 beside changes: {ratio:.2f} times that of searches alone")
    console.print(
        f"{made / took:,.0f} changes a second for {took:.0f} s; confirmed after p50 {p50:.0f} ms, p99 {p99:.0f} ms"
    )


def search(seconds: float) -> list[float]:
    """Search at an even rate; returns the seconds of each request."""
    connection = http.client.HTTPConnection(HOST, PORT, timeout=30)
    times = []
    for number in paced(SEARCHES, seconds):
        began = time.perf_counter()
        # Items with such numbers are never deleted.
        answered(connection, ("GET", f"/search?id={number * 20 % ITEMS}&k=10", None))
        times.append(time.perf_counter() - began)
    connection.close()
    return times


def change(stop: threading.Event, done: list[float]) -> None:
    """Change items at an even rate until told to stop. Add the seconds that each request takes to ``done``."""
    connection, draw = http.client.HTTPConnection(HOST, PORT, timeout=30), np.random.default_rng(1)
    for number in paced(CHANGES / TOGETHER, float("inf")):
        if stop.is_set():
            break
        lines = [line(number * TOGETHER + place, draw) for place in range(TOGETHER)]
        body = "\n".join(map(json.dumps, lines)).encode()
        began = time.perf_counter()
        answered(connection, ("POST", "/items", body))
        done.append(time.perf_counter() - began)
    connection.close()


def line(number: int, draw: np.random.Generator) -> dict[str, object]:
    """One change of an item. Items that searches ask for only get other attributes."""
    item = int(draw.integers(ITEMS))
    kind = number % 10
    if kind == 1 or item % 20 == 0:
        return {"id": f"{item // 20 * 20}", "attributes": {"price": number % 100, "brand": "acme"}}
    if kind == 2:
        return {"id": f"{item}", "delete": True}
    vectors = {name: draw.random(dim).round(4).tolist() for name, dim in DIMS.items()}
    return {"id": f"{item}", "features": vectors}


def paced(rate: float, seconds: float) -> Iterator[int]:
    """Count up, ``rate`` times a second. A number that is late comes at once."""
    began, number = time.perf_counter(), 0
    while number / rate < seconds:
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        yield number
        number += 1


@contextmanager
def node(folder: Path) -> Iterator[None]:
    """A node as a process of its own, with a version live."""
    draw = np.random.default_rng(0)
    build_catalogue(
        folder / "items", {name: draw.random((ITEMS, dim)).astype(np.float32) for name, dim in DIMS.items()}
    )
    (folder / "omdml.toml").write_text(
        f'[log]\npath = "feedback"\n[store]\nurl = "dir:state"\n[catalogues.items]\npath = "items"\n'
        f'[models.shop]\nlearner = "lomdml"\nrank = {RANK}\ncoordinates = "features"\n[node]\nbind = "{HOST}:{PORT}"\n'
    )
    publish(folder)
    with processes.running(folder, "node") as child:
        await_ready(child, folder / "node.log")
        yield
