"""Thousands of new models under a pattern: how fast workers begin them, how soon a worker ends meanwhile, and how many
events become dead letters because of ``max_models``."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.services import processes
from deploy.local import KafkaServer, ValkeyServer
from omdml.feedback import Triplet, encode
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.files.source import FileSink
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.protocols.log import Sink
from omdml.streams.protocols.store import Store
from omdml.streams.stores.opening import open_store

DIMS, ITEMS = {"color": 64, "shape": 32, "text": 16}, 2_000
MODELS = int(os.environ.get("OMDML_NEW_MODELS", "3000"))
PARTITIONS, WORKERS = 4, (1, 2)
PATIENCE_S = 300.0


class Case(NamedTuple):
    """Where models are kept, how they learn, and how many begin."""

    store: str
    learner: str
    rank: int
    models: int

    @property
    def limit(self) -> int:
        """How many more may begin in the end."""
        return self.models // 3


CASES = (
    Case("Valkey", "lomdml", 16, MODELS),
    Case("folder", "lomdml", 16, MODELS),
    Case("Valkey", "dca", 16, MODELS),
    Case("Valkey", "dca", 128, MODELS // 5),
    Case("Valkey", "dca", 512, MODELS // 10),
)


def main(console: Console) -> None:
    table = Table(
        "store", "learner", "models", "begun /s", "saved /s", "CPU a model", "SIGTERM amid it", "limit", "letters"
    )
    table.title = f"New models of {', '.join(map(str, DIMS.values()))} numbers, one event each, one worker"
    with tempfile.TemporaryDirectory() as name:
        for number, case in enumerate(CASES):
            folder = Path(name) / str(number)
            folder.mkdir()
            with ValkeyServer() if case.store == "Valkey" else contextlib.nullcontext() as valkey:
                url = valkey.url if valkey else f"dir:{folder / 'state'}"
                table.add_row(
                    case.store, f"{case.learner}, {case.rank}", f"{case.models:,}", *measured(folder, url, case)
                )
    console.print(table)
    console.print(shared_out())


def shared_out() -> Table:
    """How many models one worker begins, and two that share the partitions of a Kafka topic."""
    table = Table("workers", "models", "begun /s", "processor time of a model, all workers")
    table.title = f"New models of lomdml, rank 16, one event each, from {PARTITIONS} partitions of Kafka, in Valkey"
    for workers in WORKERS:
        with tempfile.TemporaryDirectory() as name, KafkaServer() as kafka, ValkeyServer() as valkey:
            table.add_row(str(workers), f"{MODELS:,}", *begun_by(workers, Path(name), kafka, valkey))
    return table


def begun_by(workers: int, folder: Path, kafka: KafkaServer, valkey: ValkeyServer) -> list[str]:
    """The models that this many workers begin, counted while no worker joins or leaves."""
    build_catalogue(folder / "items", features(), mapped=False)
    kafka.create_topic("new", partitions=PARTITIONS)
    log = f'kind = "kafka"\nservers = "{kafka.servers}"\ntopic = "new"'
    write_configuration(folder, log, valkey.url, "lomdml", 16, 2 * MODELS)
    running = [processes.start(folder, "worker", name=f"worker-{number}") for number in range(workers)]
    logs = [folder / f"worker-{number}.log" for number in range(workers)]
    wait_until(lambda: all("partition_assigned" in log.read_text() for log in logs))
    send(KafkaSink(KafkaOptions(servers=kafka.servers), topic="new"), "user", MODELS)
    store = open_store(valkey.url)
    wait_until(lambda: listed(store) >= MODELS // 10)
    already, began = listed(store), time.monotonic()
    before = sum(cpu_seconds(worker.pid) for worker in running)
    wait_until(lambda: listed(store) >= MODELS)
    begun, seconds = MODELS - already, time.monotonic() - began
    cost = (sum(cpu_seconds(worker.pid) for worker in running) - before) / begun
    for worker in running:
        end(worker)
    return [f"{begun / seconds:,.0f}", f"{cost * 1000:.1f} ms"]


def features() -> dict[str, np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    draw = np.random.default_rng(0)
    return {name: draw.normal(0, 1, (ITEMS, size)) for name, size in DIMS.items()}


def end(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    worker.wait(PATIENCE_S)


def measured(folder: Path, url: str, case: Case) -> list[str]:
    """A row: a worker is stopped while it begins models, another one begins the rest, and a third one has a limit."""
    models = case.models
    build_catalogue(folder / "items", features(), mapped=case.learner == "dca")
    send(FileSink(folder / "feedback"), "user", models)
    store, worker = open_store(url), started(folder, url, case, 10 * models)
    wait_until(lambda: listed(store) >= models // 10)
    asked = time.monotonic()
    end(worker)
    ended = time.monotonic() - asked
    already = listed(store)
    worker = started(folder, url, case, 10 * models)
    wait_until(lambda: listed(store) > already)
    began, cpu = time.monotonic(), cpu_seconds(worker.pid)
    wait_until(lambda: listed(store) >= models)
    begun = (models - already) / (time.monotonic() - began)
    wait_until(lambda: len(store.positions([f"user-{number}" for number in range(models)])) >= models)
    saved = (models - already) / (time.monotonic() - began)
    cost = (cpu_seconds(worker.pid) - cpu) / (models - already)
    end(worker)
    refused = limited(folder, url, case)
    return [f"{begun:,.0f}", f"{saved:,.0f}", f"{cost * 1000:.1f} ms", f"{ended:.1f} s", *refused]


def limited(folder: Path, url: str, case: Case) -> list[str]:
    """What a worker does with many names if it may begin only a few."""
    send(FileSink(folder / "feedback"), "other", case.models)
    letters = folder / "letters"
    worker = started(folder, url, case, case.models + case.limit)
    wait_until(lambda: too_many(letters) >= case.models - case.limit)
    end(worker)
    return [f"{case.limit:,} more", f"{too_many(letters):,} of {case.models:,}"]


def send(sink: Sink, prefix: str, count: int) -> None:
    """Send one event of each of ``count`` models."""
    draw = np.random.default_rng(1)
    for number in range(count):
        query, relevant, irrelevant = map(str, draw.integers(0, ITEMS, 3).tolist())
        event = Triplet(model=f"{prefix}-{number}", query=query, relevant=relevant, irrelevant=irrelevant)
        sink.send(encode(event), key=event.model)
    sink.close()


def started(folder: Path, url: str, case: Case, limit: int) -> subprocess.Popen[bytes]:
    write_configuration(
        folder, 'kind = "file"\npath = "feedback"\nletters = "letters"', url, case.learner, case.rank, limit
    )
    return processes.start(folder, "worker")


def write_configuration(folder: Path, log: str, url: str, learner: str, rank: int, limit: int) -> None:
    (folder / "omdml.toml").write_text(
        f'[log]\n{log}\n[store]\nurl = "{url}"\n[catalogues.items]\npath = "items"\n'
        f'[models."*"]\nlearner = "{learner}"\nrank = {rank}\nmax_models = {limit}\n'
    )


def listed(store: Store) -> int:
    """How many models are in the store."""
    return len(store.models())


def too_many(letters: Path) -> int:
    """How many letters say that there are too many models."""
    return sum(path.read_bytes().count(b'"reason":"too_many_models"') for path in letters.rglob("*") if path.is_file())


def cpu_seconds(pid: int) -> float:
    """Processor time that a process took so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; raise RuntimeError if it does not within ``PATIENCE_S``."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {PATIENCE_S:.0f} s: see worker.log")
        time.sleep(0.1)
