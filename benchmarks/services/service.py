"""The whole service on real Kafka and Valkey: backlog, sustained load, freshness; broker included."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks import pace
from benchmarks.learning.speed import NINE
from benchmarks.services.processes import ROOT, running
from deploy.local import KafkaServer, ValkeyServer
from omdml.builders import from_labels
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.protocols.store import Store
from omdml.streams.stores.opening import open_store
from omdml.workers.configuration.config import GuardConfig
from omdml.workers.demo.digits import load_digits
from omdml.workers.node.metrics import STAGES as PASSED

Array = NDArray[Any]
ITEMS, LABELS = 5_000, 50
BACKLOG = 300_000
SUSTAINED_S, SUSTAINED_RATE = 60, 12_000
FRESH_S, FRESH_RATE = 30, 500
# Events that are sent at once, if nothing else is said.
TOGETHER = 10
# As deploy/RUNBOOK.md recommends. The tests' servers write each change to the disk before they answer.
EVERYSEC = ("--appendfsync", "everysec")
# Anything must go live within this time.
LIMIT_S = 300


class ShippedKafka(KafkaServer):
    """A broker with the heap and the garbage collector that Kafka's own scripts choose.

    That of the tests starts sooner, but collects garbage in pauses of 0.1 s, which one click in a hundred would meet.
    """

    heap_mb = 1024
    java_options = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")


class Shape(NamedTuple):
    """Numbers of an item in each modality, and the learner of the model. Without numbers: the demo's 1,797 digits.

    Drawn items vary alike along all their coordinates, which makes refreshes of ``dca`` as slow as they can be. At a
    moderate rate ``together`` events are sent at a time: the fewer, the more requests broker and worker have.
    """

    dims: list[int]
    learner: str
    rank: int
    together: int = TOGETHER


SHAPES = {
    "nine modalities, 3,209 -> 50 each, lomdml": Shape(NINE, "lomdml", 50),
    "128 -> 64, lomdml": Shape([128], "lomdml", 64),
    "nine modalities, 512 mapped, dca": Shape(NINE, "dca", 512),
    "digits, 512 mapped, dca": Shape([], "dca", 512),
    "digits, 128 mapped, dca": Shape([], "dca", 128),
}
# Each click is sent alone, as many senders would send them.
ALONE = {
    f"{name}, each alone": SHAPES[name]._replace(together=1)
    for name in ("digits, 512 mapped, dca", "128 -> 64, lomdml")
}


def main(console: Console) -> None:
    with tempfile.TemporaryDirectory() as name, ShippedKafka() as kafka, ValkeyServer(arguments=EVERYSEC) as valkey:
        folder = Path(name)
        drained = Table("shape", "events", "events/s", *STAGES, title="A backlog drained, and the worker's time")
        for number, (name, shape) in enumerate(SHAPES.items()):
            installation = Installation(folder / str(number), kafka, valkey, shape)
            drained.add_row(name, f"{BACKLOG:,}", *installation.drain(BACKLOG))
        console.print(drained)
        nine = SHAPES["nine modalities, 3,209 -> 50 each, lomdml"]
        console.print(Installation(folder / "sustained", kafka, valkey, nine).sustain())
        title = f"Click-to-live at {FRESH_RATE} events/s: the oldest event of each version"
        fresh = Table("model", "p50", "p99", "machine slow", "p99 at an even pace", title=title)
        waited = Table("model", "versions", *PASSED, title="What clicks waited for on the way to answers, mean")
        for number, (name, shape) in enumerate((SHAPES | ALONE).items()):
            figures, all_versions, slowest = Installation(folder / f"fresh-{number}", kafka, valkey, shape).freshen()
            fresh.add_row(name, *figures)
            waited.add_row(name, "all", *all_versions)
            waited.add_row("", "the slowest fiftieth", *slowest)
        console.print(fresh, waited)


def drawn(dims: list[int]) -> tuple[dict[str, Array], Array]:
    """Items with noise around the centre of their label, which vary alike in all directions."""
    draw = np.random.default_rng(0)
    labels, features = draw.integers(0, LABELS, ITEMS), {}
    for i, d in enumerate(dims):
        centres = draw.normal(0, 0.5, (LABELS, d))
        features[f"m{i}"] = (centres[labels] + draw.normal(0, 1, (ITEMS, d))).astype(np.float32)
    return features, labels


def digits() -> tuple[dict[str, Array], Array]:
    """The descriptors of the demo's digits, and which digit each is."""
    shown = load_digits()
    return dict(shown.features), np.unique(shown.labels, return_inverse=True)[1]


STAGES = ("fetch", "decode", "look-up", "learn", "judge", "publish", "save")


class Installation:
    """A topic, a catalogue, a model; worker and node as processes."""

    def __init__(self, folder: Path, kafka: Any, valkey: Any, shape: Shape) -> None:
        folder.mkdir()
        self.folder, self.servers, self.url = folder, kafka.servers, valkey.url
        self.together = shape.together
        self.topic = self.model = f"bench-{folder.name}"
        kafka.create_topic(self.topic, partitions=1)
        features, self.labels = drawn(shape.dims) if shape.dims else digits()
        build_catalogue(folder / "items", features, mapped=shape.learner == "dca")
        (folder / "omdml.toml").write_text(
            f'[log]\nkind = "kafka"\nservers = "{self.servers}"\ntopic = "{self.topic}"\ngroup = "{self.topic}"\n'
            f'[store]\nurl = "{self.url}"\n[catalogues.items]\npath = "items"\n'
            f'[models.{self.model}]\nlearner = "{shape.learner}"\nrank = {shape.rank}\n'
            '[worker]\nbind = "127.0.0.1:9465"\n[node]\nbind = "127.0.0.1:9466"\n'
        )

    def produce(self, count: int, rate: float | None = None) -> None:
        """Send ``count`` events, as fast as possible or at a rate."""
        sink = KafkaSink(KafkaOptions(servers=self.servers), topic=self.topic)
        pool = [event.encode() for event in self.events(min(count, 200_000))]
        # A collection of everything that this process has imported takes 90 ms, in which no event would be sent.
        gc.collect()
        gc.freeze()
        begin = time.monotonic()
        for i in range(count):
            sink.send(pool[i % len(pool)], key=self.model)
            if rate and i % self.together == 0:
                ahead = begin + i / rate - time.monotonic()
                if ahead > 0:
                    time.sleep(ahead)
        sink.close()

    def events(self, count: int) -> Iterator[str]:
        """Random triplets by label, as JSON."""
        for q, r, s in from_labels(self.labels, count, seed=0).tolist():
            yield f'{{"type":"triplet","model":"{self.model}","query":"{q}","relevant":"{r}","irrelevant":"{s}"}}'

    def version(self, store: Store) -> int:
        """The live version, -1 before there is one."""
        pointer = store.current(self.model)
        return -1 if pointer is None else pointer.version

    def await_events(self, store: Store, count: int, worker: subprocess.Popen[bytes]) -> int:
        """Wait until ``count`` events are learned, all but a fiftieth that is held out; returns the live version."""
        held_out, deadline = count / GuardConfig().hold_out, time.monotonic() + LIMIT_S
        while (version := self.version(store)) < count - held_out - 6 * math.sqrt(held_out):
            if worker.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "worker.log").read_text()[-2000:])
            time.sleep(0.005)
        return version

    def await_node(self) -> None:
        """Wait until the node answers: a start takes a core for seconds, in which a new model refreshes most often."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), urllib.request.urlopen("http://127.0.0.1:9466/models") as answer:
                if json.load(answer)["models"]:
                    return
            time.sleep(0.05)
        raise RuntimeError((self.folder / "node.log").read_text()[-2000:])

    def drain(self, count: int) -> list[str]:
        """Events a second from the first to the last of a backlog, and the stages' shares of the time."""
        self.produce(count)
        store = open_store(self.url)
        with running(self.folder, "worker") as worker:
            first, begin = self.await_events(store, 1, worker), time.perf_counter()
            last = self.await_events(store, count, worker)
            took = time.perf_counter() - begin
            spent = stages()
        return [f"{(last - first) / took:,.0f}", *(f"{spent.get(stage, 0) / count * 1e6:.1f} us" for stage in STAGES)]

    def sustain(self) -> Table:
        """A producer and the worker side by side for a minute."""
        store = open_store(self.url)
        table = Table("after", "learned", "behind by", "worker's memory")
        table.title = f"{SUSTAINED_RATE:,} events/s offered for {SUSTAINED_S} s"
        produce = f"{SUSTAINED_RATE * SUSTAINED_S}"
        with running(self.folder, "worker") as worker:
            self.await_events(store, 0, worker)
            begin = time.monotonic()
            arguments = [str(self.folder), self.servers, produce, str(SUSTAINED_RATE)]
            script = [sys.executable, "-m", "benchmarks.services.service", *arguments]
            producer = subprocess.Popen(script, cwd=ROOT)
            for second in range(10, SUSTAINED_S + 1, 10):
                time.sleep(max(0.0, begin + second - time.monotonic()))
                learned = self.version(store)
                memory = int(Path(f"/proc/{worker.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20
                rate = f"{learned:,} ({learned / second:,.0f}/s)"
                table.add_row(f"{second} s", rate, f"{lag():,.0f}", f"{memory} MB")
            producer.wait()
        return table

    def freshen(self) -> tuple[list[str], list[str], list[str]]:
        """Click to live at a moderate rate: p50 and p99, then the stages of all versions, and of the slowest ones.

        After p99 comes the share of the time in which the machine was slow, and p99 of the versions that met no slow
        moment. A node keeps a thousand steps at most, and of the older ones only some, so a few versions are left out.
        """
        store = open_store(self.url)
        with running(self.folder, "worker") as worker, running(self.folder, "node"):
            self.await_events(store, 0, worker)
            self.await_node()
            with pace.watched() as machine:
                self.produce(FRESH_RATE * FRESH_S, FRESH_RATE)
                self.await_events(store, FRESH_RATE * FRESH_S, worker)
            with urllib.request.urlopen("http://127.0.0.1:9466/models") as answer:
                fresh = json.load(answer)["models"][0]["freshness"]
            with urllib.request.urlopen(f"http://127.0.0.1:9466/models/{self.model}/steps") as answer:
                steps = [step for step in json.load(answer)["steps"] if step["stages"]]
        passed = sorted((step["stages"] for step in steps), key=lambda stages: sum(stages.values()))
        slowest = passed[-math.ceil(len(passed) / 50) :]
        live_at, age_s = np.array([(step["at"], sum(step["stages"].values())) for step in steps]).T
        even = age_s[machine.is_even(live_at - age_s, live_at)]
        even_p99_s = np.percentile(even, 99) if len(even) else math.nan
        p50, p99, even_p99 = (f"{seconds * 1e3:.0f} ms" for seconds in (fresh["p50_s"], fresh["p99_s"], even_p99_s))
        return [p50, p99, f"{machine.slow_share:.1%}", even_p99], mean_of_each(passed), mean_of_each(slowest)


def mean_of_each(passed: list[dict[str, float]]) -> list[str]:
    """The mean time of each stage of versions on their way to answers."""
    return [f"{1e3 * sum(stages[name] for stages in passed) / len(passed):.1f} ms" for name in PASSED]


def stages() -> dict[str, float]:
    """Seconds the worker spent in each stage."""
    spent = {}
    for line in metrics().splitlines():
        if line.startswith("omdml_worker_stage_seconds_total{"):
            spent[line.split('"')[1]] = float(line.split()[-1])
    return spent


def lag() -> float:
    """How many events are not saved yet, by the worker's metrics."""
    return sum(
        float(line.split()[-1]) for line in metrics().splitlines() if line.startswith("omdml_worker_lag_offsets{")
    )


def metrics() -> str:
    """Read the worker's page of metrics."""
    with urllib.request.urlopen("http://127.0.0.1:9465/metrics") as answer:
        return str(answer.read().decode())


# The producer of `sustain`, in a process of its own.
if __name__ == "__main__":
    folder, servers, count, rate = sys.argv[1:]
    producer = Installation.__new__(Installation)
    producer.folder, producer.servers = Path(folder), servers
    producer.topic = producer.model = f"bench-{producer.folder.name}"
    producer.together = TOGETHER
    producer.labels = np.random.default_rng(0).integers(0, LABELS, ITEMS)
    producer.produce(int(count), float(rate))
