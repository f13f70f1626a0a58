"""Events that become dead letters beside events that are learned: how many of each a worker takes in a second."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from rich.console import Console
from rich.table import Table

from benchmarks.services.processes import running
from benchmarks.services.service import EVERYSEC, SHAPES, Installation, metrics, stages
from deploy.local import KafkaServer, ValkeyServer
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink

EVENTS, DISTINCT = 200_000, 50_000
LIMIT_S = 300
# For each kind of dead letter, a function that spoils a good event so that it becomes one.
KINDS: dict[str, Callable[[str], str]] = {
    "learned": lambda event: event,
    "not JSON": lambda event: event[:-1],
    "an unknown item": lambda event: event.replace('"relevant":"', '"relevant":"no-'),
    "an unknown kind of feedback": lambda event: event.replace('"triplet"', '"quartet"'),
    "an unknown model": lambda event: event.replace('"model":"', '"model":"no-'),
}


def main(console: Console) -> None:
    table = Table("events", "in a second of the worker", "while 100 are learned", "letters")
    table.title = f"A backlog of {EVENTS:,} events of one kind in Kafka, lomdml, 128 -> 64, one worker"
    learned = 0.0
    with tempfile.TemporaryDirectory() as name, KafkaServer() as kafka:
        for number, (kind, spoil) in enumerate(KINDS.items()):
            with ValkeyServer(arguments=EVERYSEC) as valkey:
                installation = Backlog(Path(name) / str(number), kafka, valkey, SHAPES["128 -> 64, lomdml"])
                rate, letters = installation.taken(spoil)
            learned = learned or rate
            table.add_row(kind, f"{rate:,.0f}", f"{100 * rate / learned:.0f}", f"{letters:,}")
    console.print(table)


class Backlog(Installation):
    """An installation with its own store, whose mark says how much was taken."""

    def __init__(self, folder: Path, kafka: Any, valkey: Any, shape: Any) -> None:
        super().__init__(folder, kafka, valkey, shape)
        kafka.create_topic(f"{self.topic}.letters", partitions=1)
        self.client = redis.Redis.from_url(valkey.url)

    def mark(self) -> int:
        """The first offset that is not in checkpoints or letters yet."""
        return sum(int(self.client.get(key) or 0) for key in self.client.scan_iter("omdml:mark:*"))

    def taken(self, spoil: Callable[[str], str]) -> tuple[float, int]:
        """Events in a second of the worker's own time, and how many letters there are in the end."""
        sink = KafkaSink(KafkaOptions(servers=self.servers), topic=self.topic)
        events = [spoil(event).encode() for event in self.events(DISTINCT)]
        for event in itertools.islice(itertools.cycle(events), EVENTS):
            sink.send(event, key=self.model)
        sink.close()
        with running(self.folder, "worker"):
            self.await_mark(EVENTS)
            took = sum(seconds for stage, seconds in stages().items() if stage != "idle")
            letters = sum(
                int(float(line.split()[-1]))
                for line in metrics().splitlines()
                if line.startswith("omdml_worker_dead_letters_total{")
            )
        return EVENTS / took, letters

    def await_mark(self, offset: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        while self.mark() < offset:
            if time.monotonic() > deadline:
                raise RuntimeError((self.folder / "worker.log").read_text()[-2000:])
            time.sleep(0.05)
