"""Thousands of models on real Kafka and Valkey: two workers' memory, what the store takes, and one of them killed."""

from __future__ import annotations

import contextlib
import copy
import os
import random
import subprocess
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import redis
from rich.console import Console
from rich.table import Table

from benchmarks.services import processes
from deploy.local import KafkaServer, ValkeyServer
from omdml import DCA, LOMDML
from omdml.builders import from_labels
from omdml.snapshot import metric_to_bytes
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.stores.opening import open_store

MODELS, PARTITIONS, WORKERS = 5_000, 12, 2
DIMS, RANK = {"color": 64, "shape": 32, "text": 16}, 16
ITEMS, LABELS = 2_000, 20
# memory_mb of each worker. Its half of the models would take twice as much.
MEMORY_MB = 100
EVENTS = 10_000
# Seconds between two rows, and until the last one at most.
EVERY_S, PATIENCE_S = 5, 45
TOPIC = "many"
# Coordinates of a catalogue's map, and triplets learned on them.
MAPPED, COUNTS = 512, (0, 10, 1_000)


def main(console: Console) -> None:
    console.print(sizes())
    with tempfile.TemporaryDirectory() as name, KafkaServer() as kafka, ValkeyServer() as valkey:
        kafka.create_topic(TOPIC, partitions=PARTITIONS)
        fleet = Fleet(Path(name), kafka.servers, valkey.url)
        with contextlib.ExitStack() as stack:
            workers = [stack.enter_context(fleet.worker(number)) for number in range(WORKERS)]
            for part in fleet.load(workers):
                console.print(part)
            console.print(fleet.take_over(workers))


def sizes() -> Table:
    """What one more model of a pattern takes on mapped coordinates, by learner and by triplets learned."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, LABELS, ITEMS)
    falling = 1 / np.sqrt(np.arange(1, MAPPED + 1))
    coordinates = (draw.normal(0, 1, (LABELS, MAPPED))[labels] + draw.normal(0, 1, (ITEMS, MAPPED))) * falling
    features = {"mapped": coordinates.astype(np.float32)}
    rows = from_labels(labels, COUNTS[-1], seed=0)
    table = Table("learner", *(f"{count:,}: memory, state, snapshot" for count in COUNTS))
    table.title = f"MB of one more model on {MAPPED} mapped coordinates, by triplets learned"
    for kind in (LOMDML, DCA):
        first = kind(dims={"mapped": MAPPED}, **kind.on_mapped)
        first.start(features)
        cells = []
        for count in COUNTS:
            tracemalloc.start()
            model = copy.deepcopy(first)
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            model.learn_many(rows[:count], features)
            parts = (held, len(model.to_bytes()), len(metric_to_bytes(model.metric)))
            cells.append(", ".join(f"{size / 1e6:.2f}" for size in parts))
        table.add_row(kind.name, *cells)
    return table


class Fleet:
    """A catalogue, a pattern of models, workers as processes, and somebody who clicks."""

    def __init__(self, folder: Path, servers: str, url: str) -> None:
        self.folder, self.servers, self.url = folder, servers, url
        draw = np.random.default_rng(0)
        self.labels = draw.integers(0, LABELS, ITEMS)
        centres = {name: draw.normal(0, 0.5, (LABELS, size)) for name, size in DIMS.items()}
        noise = {name: draw.normal(0, 1, (ITEMS, size)) for name, size in DIMS.items()}
        build_catalogue(folder / "items", {name: centres[name][self.labels] + noise[name] for name in DIMS})
        self.sink = KafkaSink(KafkaOptions(servers=servers), topic=TOPIC)
        self.rows, self.chance = from_labels(self.labels, 100_000, seed=0).tolist(), random.Random(0)
        self.popularity = [1 / (1 + number) ** 0.5 for number in range(MODELS)]
        self.store, self.client = open_store(url), redis.Redis.from_url(url)
        self.sent: dict[str, int] = dict.fromkeys((f"user-{number}" for number in range(MODELS)), 0)

    def worker(self, number: int) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        """A worker process, ended with the block."""
        path = self.folder / f"{number}.toml"
        path.write_text(
            f'[log]\nkind = "kafka"\nservers = "{self.servers}"\ntopic = "{TOPIC}"\nmember = "worker-{number}"\n'
            f'[store]\nurl = "{self.url}"\n[catalogues.items]\npath = "items"\n'
            f'[models."user-*"]\nlearner = "lomdml"\nrank = {RANK}\n'
            f"[worker]\nmemory_mb = {MEMORY_MB}\n"
        )
        return processes.running(self.folder, "worker", "--config", str(path), name=str(number))

    def click(self, count: int) -> None:
        """Send ``count`` events of random models. Some models get a hundred times as many events as others."""
        for number in self.chance.choices(range(MODELS), self.popularity, k=count):
            model = f"user-{number}"
            query, relevant, irrelevant = self.chance.choice(self.rows)
            event = f'"model":"{model}","query":"{query}","relevant":"{relevant}","irrelevant":"{irrelevant}"'
            self.sink.send(f'{{"type":"triplet",{event}}}'.encode(), key=model)
            self.sent[model] += 1
        self.sink.flush()

    def marks(self) -> int:
        """Events below the marks of all partitions: those in checkpoints."""
        return sum(int(self.client.get(key) or 0) for key in self.client.scan_iter("omdml:mark:*"))

    def load(self, workers: list[subprocess.Popen[bytes]]) -> tuple[Table, str]:
        """A backlog of clicks on all models, drained by all workers, and the range of what was measured."""
        table = Table(
            "after", "saved events/s", "store MB/s in", "store holds", *(f"worker {n}" for n, _ in enumerate(workers))
        )
        table.title = f"{MODELS:,} models of {', '.join(map(str, DIMS.values()))} -> {RANK}, {PARTITIONS} partitions"
        self.click(MODELS)
        self.await_marks(time.monotonic() + PATIENCE_S)
        self.click(EVENTS)
        begin, before, written = time.monotonic(), self.marks(), self.received()
        rates, megabytes = [], []
        for second in range(EVERY_S, PATIENCE_S + 1, EVERY_S):
            time.sleep(max(0.0, begin + second - time.monotonic()))
            taken, received = self.marks(), self.received()
            rates.append((taken - before) / EVERY_S)
            megabytes.append((received - written) / EVERY_S / 1e6)
            row = [f"{rates[-1]:,.0f}", f"{megabytes[-1]:.1f}"]
            held = f"{self.client.info('memory')['used_memory'] / 1e6:,.0f} MB"
            table.add_row(f"{second} s", *row, held, *(f"{resident(worker):,.0f} MB" for worker in workers))
            before, written = taken, received
            if taken >= sum(self.sent.values()):
                break
        return table, (
            f"saved {min(rates):,.0f} to {max(rates):,.0f} events a second; {min(megabytes):.1f} to "
            f"{max(megabytes):.1f} MB/s to the store; a worker takes {max(map(resident, workers)):,.0f} MB"
        )

    def received(self) -> int:
        """Bytes that the store was sent so far."""
        return int(self.client.info("stats")["total_net_input_bytes"])

    def take_over(self, workers: list[subprocess.Popen[bytes]]) -> Table:
        """Kill the first worker when all is learned; the other one learns what comes then."""
        self.await_marks(time.monotonic() + PATIENCE_S)
        workers[0].kill()
        killed = time.monotonic()
        self.click(1000)
        self.await_marks(killed + PATIENCE_S)
        took = time.monotonic() - killed
        versions = {model: position.next for model, position in self.store.positions(list(self.sent)).items()}
        table = Table("taken over, and all saved, after", "models", "worker 1", title="kill -9 of worker 0")
        table.add_row(f"{took:.1f} s", f"{len(versions):,}", f"{resident(workers[1]):,.0f} MB")
        return table

    def await_marks(self, until: float) -> None:
        """Return when everything that was sent is in checkpoints."""
        while (saved := self.marks()) < sum(self.sent.values()):
            if time.monotonic() > until:
                raise RuntimeError(f"{saved:,} of {sum(self.sent.values()):,} events saved in time: see what is slow")
            time.sleep(0.05)


def resident(process: subprocess.Popen[bytes]) -> float:
    """Megabytes of memory that a process takes."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
