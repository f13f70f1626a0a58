"""How long nothing is learned when a worker ends: handed over, killed, or killed and restarted by its supervisor."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.services import processes
from deploy.local import KafkaServer, ValkeyServer
from omdml.builders import from_labels
from omdml.feedback import Triplet, encode
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.stores.opening import open_store

MODEL, RATE, LABELS, ITEMS = "shop", 200, 10, 500
# How often each case is measured.
TURNS = 3
# Seconds of a session: the default, and a short one that brokers allow only if they are configured for it.
SESSION_S, SHORT_S = 6.0, 1.5


class Fleet:
    """A topic, a store, events that keep coming, and workers as processes."""

    def __init__(self, folder: Path, kafka: Any, valkey: Any, name: str, session_s: float) -> None:
        self.folder, self.topic = folder, name
        folder.mkdir()
        kafka.create_topic(name, partitions=1)
        draw = np.random.default_rng(0)
        labels = draw.integers(0, LABELS, ITEMS)
        build_catalogue(folder / "items", {"x": (np.eye(LABELS)[labels] + draw.normal(0, 1, (ITEMS, LABELS)))})
        url = f"{valkey.url}?prefix={name}"
        (folder / "omdml.toml").write_text(
            f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{name}"\ngroup = "{name}"\n'
            f"session_timeout_s = {session_s}\n"
            f'[store]\nurl = "{url}"\n[catalogues.items]\npath = "items"\n[models.{MODEL}]\n'
            'learner = "lomdml"\n[guard]\non = false\n'
        )
        self.store = open_store(url)
        self.sink = KafkaSink(KafkaOptions(servers=kafka.servers), topic=name)
        self.rows = from_labels(labels, 100_000, seed=0).astype(str).tolist()
        self.enough = threading.Event()
        self.sent = 0
        self.load = threading.Thread(target=self._send)
        self.load.start()

    def _send(self) -> None:
        while not self.enough.wait(1 / RATE):
            query, relevant, irrelevant = self.rows[self.sent % len(self.rows)]
            event = Triplet(model=MODEL, query=query, relevant=relevant, irrelevant=irrelevant)
            self.sink.send(encode(event), key=MODEL)
            self.sent += 1

    def worker(self, member: str) -> subprocess.Popen[bytes]:
        """Start a worker that is a static member of the group."""
        return processes.start(self.folder, "worker", name=member, environment={"OMDML_LOG__MEMBER": member})

    def version(self) -> int:
        """The version that is live, or 0 if none ever was."""
        pointer = self.store.current(MODEL)
        return pointer.version if pointer else 0

    def moves(self) -> None:
        """Wait until another version goes live."""
        before, deadline = self.version(), time.monotonic() + 120
        while self.version() <= before:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no version went live for two minutes: see {self.folder}")
            time.sleep(0.01)

    def close(self) -> None:
        """Stop sending, and wait until all that was sent is in the log."""
        self.enough.set()
        self.load.join()
        self.sink.close()


def gap(fleet: Fleet, end: Callable[[], None]) -> float:
    """Seconds from the end of a worker until another version goes live."""
    fleet.moves()
    begin = time.monotonic()
    end()
    # A version that was on its way to the store arrives in this time, and does not count.
    time.sleep(0.05)
    fleet.moves()
    return time.monotonic() - begin


def handed_over(fleet: Fleet, number: int) -> float:
    """End a worker with SIGTERM while another one waits."""
    return ended(fleet, signal.SIGTERM, number)


def killed(fleet: Fleet, number: int) -> float:
    """Kill a worker with SIGKILL while another one waits."""
    return ended(fleet, signal.SIGKILL, number)


def ended(fleet: Fleet, how: signal.Signals, number: int) -> float:
    """End one of two workers with the signal ``how``."""
    first = fleet.worker(f"first-{number}")
    fleet.moves()
    second = fleet.worker(f"second-{number}")
    try:
        # Wait until the other one is a member.
        time.sleep(10)
        owner = first if owns(fleet, f"first-{number}") else second
        return gap(fleet, lambda: owner.send_signal(how))
    finally:
        for worker in (first, second):
            worker.kill()
            worker.wait()
        # Wait until the group has forgotten them.
        time.sleep(8)


def owns(fleet: Fleet, member: str) -> bool:
    """Whether a worker was the last to claim the model."""
    claims = {log.stem: log.read_text().rfind("event=model_claimed") for log in fleet.folder.glob("*.log")}
    times = {name: claimed_at(fleet.folder / f"{name}.log") for name, claim in claims.items() if claim >= 0}
    return max(times, key=lambda name: times[name]) == member


def claimed_at(log: Path) -> str:
    """When a worker last claimed the model."""
    lines = [line for line in log.read_text().splitlines() if "event=model_claimed" in line]
    return lines[-1].partition("timestamp=")[2][:26] if lines else ""


def restarted(fleet: Fleet, number: int) -> float:
    """Kill a worker with SIGKILL, and start the same member again at once."""
    first, again = fleet.worker(f"only-{number}"), []
    fleet.moves()
    # The worker is to learn what comes then, not a backlog.
    time.sleep(5)

    def end() -> None:
        first.kill()
        first.wait()
        again.append(fleet.worker(f"only-{number}"))

    try:
        return gap(fleet, end)
    finally:
        for worker in (first, *again):
            worker.kill()
            worker.wait()
        time.sleep(8)


def main(console: Console) -> None:
    table = Table("how", "seconds without learning", title=f"A worker ends, {RATE} events a second, default settings")
    cases = {
        "SIGTERM, another worker takes over": (handed_over, SESSION_S),
        "kill -9, another worker takes over": (killed, SESSION_S),
        f"the same with log.session_timeout_s = {SHORT_S}": (killed, SHORT_S),
        "kill -9, the same member restarted at once": (restarted, SESSION_S),
    }
    with tempfile.TemporaryDirectory() as name, KafkaServer() as kafka, ValkeyServer() as valkey:
        for number, (how, (case, session_s)) in enumerate(cases.items()):
            fleet = Fleet(Path(name) / str(number), kafka, valkey, f"failover-{number}", session_s)
            try:
                table.add_row(how, ", ".join(f"{case(fleet, turn):.1f}" for turn in range(TURNS)))
            finally:
                fleet.close()
    console.print(table)
