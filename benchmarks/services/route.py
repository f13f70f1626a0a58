"""Routed events a second, by one router and by two, beside what one worker learns of them in the same run."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from rich.console import Console
from rich.table import Table

from benchmarks.services.processes import running
from benchmarks.services.service import SHAPES, STAGES, Installation, Shape
from deploy.local import KafkaServer, ValkeyServer

EVENTS, PARTITIONS = 300_000, 4
PORTS = (9467, 9468)
LIMIT_S = 300


def main(console: Console) -> None:
    with tempfile.TemporaryDirectory() as name, KafkaServer() as kafka, ValkeyServer() as valkey:
        installation = Routed(Path(name) / "routed", kafka, valkey, SHAPES["128 -> 64, lomdml"])
        rates = {f"{count} router{'s' * (count > 1)}": installation.route(count) for count in (1, 2)}
        learned = installation.drain(2 * EVENTS)
        rates["one worker, 128 -> 64"] = float(learned[0].replace(",", ""))
    table = Table("", "events/s", "to one worker's", title=f"{EVENTS:,} events without keys, routed, then learned")
    for who, rate in rates.items():
        table.add_row(who, f"{rate:,.0f}", f"{rate / rates['one worker, 128 -> 64']:.2f}")
    console.print(table)
    console.print("the worker's time: " + ", ".join(map(" ".join, zip(STAGES, learned[1:], strict=True))))


class Routed(Installation):
    """An installation whose events come by other topics."""

    def __init__(self, folder: Path, kafka: Any, valkey: Any, shape: Shape) -> None:
        super().__init__(folder, kafka, valkey, shape)
        self.kafka = kafka

    def produce(self, count: int, rate: float | None = None) -> None:
        """Do nothing, because the events are in the topic already."""

    def route(self, routers: int) -> float:
        """The events per second that this number of routers copies from a backlog without keys."""
        origin = f"clicks-{routers}"
        self.kafka.create_topic(origin, PARTITIONS)
        producer = KafkaProducer(bootstrap_servers=self.servers, linger_ms=5, batch_size=256 << 10)
        for number, event in enumerate(itertools.islice(itertools.cycle(self.events(100_000)), EVENTS)):
            producer.send(origin, event.encode(), partition=number % PARTITIONS)
        producer.flush()
        producer.close()
        with contextlib.ExitStack() as stack:
            for port in PORTS[:routers]:
                options = ("--begin", "beginning", "--bind", f"127.0.0.1:{port}")
                stack.enter_context(running(self.folder, "route", "--from", origin, *options))
            deadline, first = time.monotonic() + LIMIT_S, None
            while (done := sum(map(routed, PORTS[:routers]))) < EVENTS:
                first = first or (done and (done, time.perf_counter()))
                if time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "route.log").read_text()[-2000:])
                time.sleep(0.02)
            assert first is not None
            return (done - first[0]) / (time.perf_counter() - first[1])


def routed(port: int) -> int:
    """How many events a router has copied."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return 0
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("omdml_route_events_total{")))
