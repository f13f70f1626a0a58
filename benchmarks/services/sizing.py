"""What to plan with: bytes of one model by learner, dimensions and coordinates, and memory and processor time of a
worker and a node by models and events a second."""

from __future__ import annotations

import copy
import os
import subprocess
import tempfile
import time
import tracemalloc
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.services import processes
from benchmarks.services.new_models import cpu_seconds, wait_until
from deploy.local.ports import free_port
from omdml import DCA, LOMDML
from omdml.blas import one_blas_thread
from omdml.builders import from_labels
from omdml.feedback import Triplet, encode
from omdml.snapshot import metric_to_bytes
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.files.source import FileSink

# Learner, sizes of modalities, rank, and whether these stand for the mapped coordinates of a catalogue.
MODELS = (
    (DCA, (512,), 512, True),
    (DCA, (512,), 128, True),
    (DCA, (512,), 16, True),
    (DCA, (1024,), 512, False),
    (LOMDML, (512,), 50, True),
    (LOMDML, (81, 37, 120, 59, 512, 200, 1000, 200, 1000), 50, False),
    (LOMDML, (64, 32, 16), 16, False),
)
ITEMS, LABELS, TRIPLETS = 5_000, 20, 20_000
# Models under a pattern, and events a second for all of them together.
LOADS = ((1, 0), (1, 100), (1, 500), (200, 100), (200, 500))
DIMS, RANK = {"color": 64, "shape": 32, "text": 16}, 16
SETTLE_S, MEASURED_S = 4.0, 15.0


def main(console: Console) -> None:
    console.print(one_model())
    console.print(whole_processes())


def one_model() -> Table:
    """Measure the bytes and the speed of one model."""
    table = Table("learner", "numbers an item", "rank", "memory", "checkpoint", "snapshot", "events a second")
    table.add_column("gallery, 100,000 items")
    table.title = f"One model after {TRIPLETS:,} triplets, processor time of one core"
    draw = np.random.default_rng(0)
    labels = draw.integers(0, LABELS, ITEMS)
    rows = from_labels(labels, TRIPLETS, seed=0)
    for kind, sizes, rank, mapped in MODELS:
        features = {f"m{number}": made_up(draw, labels, size) for number, size in enumerate(sizes)}
        options = {**kind.on_mapped, "rank": rank} if mapped else {"rank": rank}
        first = kind(dims={name: values.shape[1] for name, values in features.items()}, **options)
        first.start(features)
        tracemalloc.start()
        model = copy.deepcopy(first)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        with one_blas_thread():
            begin = time.process_time()
            model.learn_many(rows, features)
            speed = TRIPLETS / (time.process_time() - begin)
        embedded = model.metric.embed({name: values[:10] for name, values in features.items()})
        gallery = embedded.nbytes / 10 * 100_000
        snapshot = len(metric_to_bytes(model.metric))
        # A checkpoint holds the learner's state, and the metric that the guard compares new versions with.
        parts = (held, len(model.to_bytes()) + snapshot, snapshot)
        table.add_row(
            kind.name, f"{sum(sizes):,}" + (", mapped" if mapped else ""), f"{rank}",
            *(f"{size / 1e6:.2f} MB" for size in parts), f"{speed:,.0f}", f"{gallery / 1e6:,.0f} MB",
        )  # fmt: skip
    return table


def made_up(draw: np.random.Generator, labels: NDArray[Any], size: int) -> NDArray[Any]:
    """(n, size) float32: classes around centres, along directions that vary less and less."""
    falling = 1 / np.sqrt(np.arange(1, size + 1))
    values = (draw.normal(0, 1, (LABELS, size))[labels] + draw.normal(0, 1, (len(labels), size))) * falling
    return values.astype(np.float32)


def whole_processes() -> Table:
    """Memory and processor time of a worker and a node, on a log and a store in folders."""
    table = Table("models", "events a second", "learned a second", "worker: memory", "core", "node: memory", "core")
    table.title = f"lomdml, {', '.join(map(str, DIMS.values()))} -> {RANK}, {ITEMS:,} items, {MEASURED_S:.0f} s each"
    for models, rate in LOADS:
        with tempfile.TemporaryDirectory() as name:
            table.add_row(f"{models:,}", f"{rate:,}", *measured(Path(name), models, rate))
    return table


def measured(folder: Path, models: int, rate: int) -> list[str]:
    """A row: what a worker and a node need while ``rate`` events come in per second."""
    draw = np.random.default_rng(0)
    build_catalogue(folder / "items", {name: draw.normal(0, 1, (ITEMS, size)) for name, size in DIMS.items()})
    node_port, worker_port = free_port(), free_port()
    (folder / "omdml.toml").write_text(
        '[log]\nkind = "file"\npath = "feedback"\nletters = "letters"\n[store]\nurl = "dir:state"\n'
        '[catalogues.items]\npath = "items"\n[models."user-*"]\nlearner = "lomdml"\ncoordinates = "features"\n'
        f'rank = {RANK}\n[node]\nbind = "127.0.0.1:{node_port}"\n[worker]\nbind = "127.0.0.1:{worker_port}"\n'
    )
    sink = FileSink(folder / "feedback")
    # Each model begins, and is loaded by the node, before anything is measured.
    send(sink, draw, range(models))
    with processes.running(folder, "worker") as worker:
        wait_until(lambda: learned(worker_port) >= 0.9 * models)
        with processes.running(folder, "node") as node:
            wait_until(lambda: all(searched(node_port, number) for number in range(models)))
            time.sleep(SETTLE_S)
            return under_load(sink, draw, models, rate, worker, node, worker_port)


def under_load(
    sink: FileSink,
    draw: np.random.Generator,
    models: int,
    rate: int,
    worker: subprocess.Popen[bytes],
    node: subprocess.Popen[bytes],
    port: int,
) -> list[str]:
    """Learned events a second, then memory and share of a core of the worker and of the node."""
    took = [cpu_seconds(process.pid) for process in (worker, node)]
    before, begin, sent = learned(port), time.monotonic(), 0
    while (now := time.monotonic() - begin) < MEASURED_S:
        due = int(rate * now) - sent
        if due:
            send(sink, draw, draw.integers(0, models, due).tolist())
            sent += due
        time.sleep(0.02)
    cells = [f"{(learned(port) - before) / now:,.0f}"]
    for process, already in zip((worker, node), took, strict=True):
        share = (cpu_seconds(process.pid) - already) / now
        cells += [f"{resident(process.pid) / 1e6:,.0f} MB", f"{share:.0%}"]
    return cells


def send(sink: FileSink, draw: np.random.Generator, models: Any) -> None:
    """A triplet of each of these models."""
    for number in models:
        query, relevant, irrelevant = map(str, draw.integers(0, ITEMS, 3).tolist())
        event = Triplet(model=f"user-{number}", query=query, relevant=relevant, irrelevant=irrelevant)
        sink.send(encode(event), key=event.model)
    sink.flush()


def learned(port: int) -> float:
    """How many events the worker has taken; 0 while it starts."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return 0.0
    return sum(float(line.split()[-1]) for line in lines if line.startswith("omdml_worker_events_total{"))


def searched(port: int, number: int) -> bool:
    """Whether the node answers for a model."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/search?model=user-{number}&id=1", timeout=10):
            return True
    except OSError:
        return False


def resident(pid: int) -> int:
    """Resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
