"""``python -m benchmarks ten_million``: ten million items, from the build of their catalogue to searches while versions
go live.

Log and store are in folders. Ten million items need 15 GB of free memory and 8 GB of disk for temporary files, and take
about five minutes on two cores. ``OMDML_TEN_MILLION_ITEMS`` sets another number of items.
"""

from __future__ import annotations

import http.client
import json
import os
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

from benchmarks.searches.million import items
from benchmarks.services import processes
from benchmarks.services.new_models import cpu_seconds
from deploy.local.ports import free_port
from omdml.feedback import Triplet, encode
from omdml.streams.files.source import FileSink

ITEMS, WIDTH = int(os.environ.get("OMDML_TEN_MILLION_ITEMS", "10000000")), 64
AT_REST, WHILE_LEARNING = 40, 600
EVENTS_A_SECOND = 100
# A node that embeds a new version takes most.
BYTES_AN_ITEM = 1500
POLL_S, PATIENCE_S = 0.05, 1800.0


def main(console: Console) -> None:
    """Print the table, unless there is too little memory."""
    if available() < ITEMS * BYTES_AN_ITEM:
        console.print(
            f"ten_million is left out: {ITEMS:,} items need {gigabytes(ITEMS * BYTES_AN_ITEM)} of free memory"
        )
        return
    table = Table("step", "time", "processor", "memory at most, without mapped files")
    table.title = f"{ITEMS:,} x {WIDTH}, lomdml of rank {WIDTH}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "items.npy", items(ITEMS, WIDTH))
        build(folder, table)
        learn_and_search(folder, table)
    console.print(table)
    console.print(f"load at the end: {os.getloadavg()[0]:.0f}")


class Watch:
    """Processor time and largest memory of a process, sampled until the block ends."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.processor_s, self.memory = 0.0, 0
        self._child, self._stop = child, threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        first = cpu_seconds(self._child.pid)
        while True:
            status = Path(f"/proc/{self._child.pid}/status").read_text()
            # A process that has ended has no memory.
            if "RssAnon:" in status:
                self.memory = max(self.memory, int(status.partition("RssAnon:")[2].split()[0]) * 1024)
            self.processor_s = cpu_seconds(self._child.pid) - first
            if self._stop.wait(POLL_S):
                return


def build(folder: Path, table: Table) -> None:
    """Build the catalogue from an npy file."""
    began = time.perf_counter()
    child = processes.start(folder, "catalogue", "build", "items", "item=items.npy", "--no-map")
    with Watch(child) as watch:
        # Until it is waited for, an ended process still says what it took.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    took = time.perf_counter() - began
    if child.wait():
        raise RuntimeError((folder / "catalogue.log").read_text())
    table.add_row("catalogue build", f"{took:.1f} s", f"{watch.processor_s:.1f} s", gigabytes(watch.memory))
    size = sum(path.stat().st_size for path in (folder / "items").rglob("*") if path.is_file())
    table.add_row("the catalogue's files", "", "", gigabytes(size))


def learn_and_search(folder: Path, table: Table) -> None:
    """Start a worker and a node, then search at rest, and while versions go live."""
    worker_port, node_port = free_port(), free_port()
    (folder / "omdml.toml").write_text(
        '[log]\npath = "feedback"\nletters = "letters"\n[store]\nurl = "dir:state"\n[catalogues.items]\n'
        f'path = "items"\n[models.shop]\nlearner = "lomdml"\ncoordinates = "features"\nrank = {WIDTH}\n'
        f'[node]\nbind = "127.0.0.1:{node_port}"\n[worker]\nbind = "127.0.0.1:{worker_port}"\n'
    )
    sink, draw = FileSink(folder / "feedback"), np.random.default_rng(0)
    tell(sink, draw, 1)
    with started(folder, "worker", worker_port, table), started(folder, "node", node_port, table) as node:
        times, _ = searches(node_port, draw, AT_REST)
        table.add_row("a search at rest, p50", in_ms(times, 0.5), "", "")
        table.add_row(f"the slowest of {AT_REST}", in_ms(times, 1.0), "", "")
        before = cpu_seconds(node.pid)
        with Watch(node) as watch, learning_goes_on(sink):
            times, versions = searches(node_port, draw, WHILE_LEARNING)
        each = f"{(cpu_seconds(node.pid) - before) / WHILE_LEARNING:.2f} s each"
        table.add_row("a search while versions go live, p50", in_ms(times, 0.5), each, gigabytes(watch.memory))
        table.add_row("the same, p99", in_ms(times, 0.99), "", "")
        table.add_row("versions that answered these searches", f"{versions}", "", "")


@contextmanager
def started(folder: Path, command: str, port: int, table: Table) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker or a node; a row says what its start took, until it is ready."""
    began = time.perf_counter()
    with processes.running(folder, command) as child:
        with Watch(child) as watch:
            wait_until(lambda: ready(port), child, folder / f"{command}.log")
        took = time.perf_counter() - began
        table.add_row(f"start of a {command}", f"{took:.1f} s", f"{watch.processor_s:.1f} s", gigabytes(watch.memory))
        yield child


def wait_until(condition: Callable[[], bool], child: subprocess.Popen[bytes], log: Path) -> None:
    """Return once the condition holds; raise RuntimeError if the process ends before, or it takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if child.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(log.read_text()[-2000:])
        time.sleep(POLL_S)


def ready(port: int) -> bool:
    """Whether a process at this port says that it is ready."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def searches(port: int, draw: np.random.Generator, count: int) -> tuple[list[float], int]:
    """Search from items, one after the other; returns the seconds of each, and the number of versions that answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    times, versions = [], set()
    for item in draw.integers(0, ITEMS, count).tolist():
        began = time.perf_counter()
        connection.request("GET", f"/search?model=shop&id={item}")
        response = connection.getresponse()
        body = response.read()
        times.append(time.perf_counter() - began)
        if response.status != 200:
            raise RuntimeError(f"{response.status} {body!r}")
        versions.add(json.loads(body)["version"])
    connection.close()
    return times, len(versions)


@contextmanager
def learning_goes_on(sink: FileSink) -> Iterator[None]:
    """Send triplets while the block runs."""
    stop, draw = threading.Event(), np.random.default_rng(1)

    def tell_on() -> None:
        while not stop.wait(0.1):
            tell(sink, draw, EVENTS_A_SECOND // 10)

    thread = threading.Thread(target=tell_on)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def tell(sink: FileSink, draw: np.random.Generator, count: int) -> None:
    """Write triplets of random items into the log, durably."""
    for query, relevant, irrelevant in draw.integers(0, ITEMS, (count, 3)).tolist():
        event = Triplet(model="shop", query=str(query), relevant=str(relevant), irrelevant=str(irrelevant))
        sink.send(encode(event), key=event.model)
    sink.flush()


def in_ms(times: list[float], quantile: float) -> str:
    return f"{1e3 * np.quantile(times, quantile):.0f} ms"


def available() -> int:
    """Free memory of this machine, in bytes."""
    return int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]) * 1024


def gigabytes(size: int) -> str:
    """A number of bytes as text."""
    return f"{size / 1e9:.2f} GB"
