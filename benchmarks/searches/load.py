"""A node under a public load generator (wrk): searches and feedback, on a log in files and on Kafka."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.learning.speed import NINE
from benchmarks.searches.requests import HOST, PORT, await_ready, publish
from benchmarks.services import processes
from deploy.local import KafkaServer, ServiceError
from deploy.local.fetching.fetch import Program, wrk
from omdml.streams.catalogues.building.build import build_catalogue

CONNECTIONS = (1, 16, 64)
WARM_UP_S, MEASURE_S = 1, 5
URL = f"http://{HOST}:{PORT}"
# What wrk says at its end.
REPORT = """
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format('\\n{"requests":%d,"seconds":%f,"p50":%f,"p99":%f,"errors":%d}\\n', summary.requests,
    summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""
NOTHING = "request = function() return wrk.format('GET', '/healthz') end"
SEARCH = """
local n = 0
request = function()
  n = n + 7919
  return wrk.format('GET', '/search?k=10&id=' .. n % {items})
end
"""
FEEDBACK = """
local n = 0
request = function()
  n = n + 1
  local body = string.format('{{"type":"triplet","model":"shop","query":"%d","relevant":"%d","irrelevant":"%d"}}',
    n * 3 % {items}, (n * 5 + 1) % {items}, (n * 7 + 2) % {items})
  return wrk.format('POST', '/feedback', {{['Content-Type'] = 'application/json'}}, body)
end
"""


class Shape(NamedTuple):
    """Items, numbers in each of their modalities, and numbers that each modality is embedded in."""

    items: int
    dims: list[int]
    rank: int


SHAPES = {
    "5,000 x 450 (nine modalities)": Shape(5_000, NINE, 50),
    "100,000 x 128": Shape(100_000, [128], 128),
}


class Measured(NamedTuple):
    """Requests per second, and milliseconds of an answer."""

    rate: float
    p50: float
    p99: float


def main(console: Console) -> None:
    """Print the table, or what is missing."""
    try:
        generator = wrk()
    except ServiceError as error:
        console.print(f"load: {error}", markup=False)
        return
    table = Table("log", "items", "requests", "connections", "requests/s", "of an empty answer", "p50", "p99")
    table.title = f"A node under wrk, one thread of it, kept-alive connections, {MEASURE_S} s each, nobody learning"
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        logs = {"files": '[log]\npath = "feedback"\n', "Kafka": None}
        for number, (log, configured) in enumerate(logs.items()):
            if configured is None:
                kafka = stack.enter_context(KafkaServer())
                kafka.create_topic("feedback", partitions=1)
                configured = f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\n'
            for name, shape in SHAPES.items():
                place = folder / f"{number}-{shape.items}"
                with node(place, shape, configured):
                    for what, (measured, empty) in measure(generator, place, shape.items):
                        table.add_row(
                            log, name, *what, f"{measured.rate:,.0f}", f"{measured.rate / empty.rate:.0%}",
                            f"{measured.p50:.2f} ms", f"{measured.p99:.2f} ms",
                        )  # fmt: skip
    console.print(table)


def measure(
    generator: Program, folder: Path, items: int
) -> Iterator[tuple[tuple[str, str], tuple[Measured, Measured]]]:
    """Measure searches and feedback with each number of connections, and just before each an answer without content."""
    for connections in CONNECTIONS:
        for what, script in {"GET /search": SEARCH, "POST /feedback": FEEDBACK}.items():
            empty = run(generator, folder, NOTHING, connections)
            yield (what, f"{connections}"), (run(generator, folder, script.format(items=items), connections), empty)


def run(generator: Program, folder: Path, script: str, connections: int) -> Measured:
    """What wrk measures; a request that fails ends the benchmark."""
    path = folder / "requests.lua"
    path.write_text(script + REPORT)
    libraries = ":".join([*map(str, generator.libraries), os.environ.get("LD_LIBRARY_PATH", "")])
    figures = {}
    for seconds in (WARM_UP_S, MEASURE_S):
        limits = ("-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s")
        command = [str(generator.path), *limits, "-s", str(path), URL]
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        figures = json.loads(done.stdout.splitlines()[-1])
        if figures["errors"]:
            raise RuntimeError(done.stdout)
    return Measured(figures["requests"] / figures["seconds"], figures["p50"], figures["p99"])


@contextlib.contextmanager
def node(folder: Path, shape: Shape, log: str) -> Iterator[None]:
    """A node as a process of its own, with a version live."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    features = {f"m{i}": draw.normal(0, 1, (shape.items, d)).astype(np.float32) for i, d in enumerate(shape.dims)}
    build_catalogue(folder / "items", features, mapped=False)
    (folder / "omdml.toml").write_text(
        f'{log}[store]\nurl = "dir:state"\n[catalogues.items]\npath = "items"\n'
        f'[models.shop]\nlearner = "lomdml"\nrank = {shape.rank}\n[node]\nbind = "{HOST}:{PORT}"\n'
    )
    publish(folder, shape.rank)
    with processes.running(folder, "node") as child:
        await_ready(child, folder / "node.log")
        yield
