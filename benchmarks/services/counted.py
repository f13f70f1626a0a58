"""A worker that says what it holds, with real servers and somebody who clicks.

``python -m benchmarks.services.counted worker --config FILE`` is that worker.
"""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.services.new_models import wait_until
from benchmarks.services.processes import ROOT
from benchmarks.services.sizing import resident
from omdml.feedback import Triplet, encode
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.reading.source import KafkaSource
from omdml.streams.kafka.sink import KafkaSink
from tests.fault.chaos.servers import Servers
from tests.support.worlds import ITEMS, catalogue

MODELS, PARTITIONS, PORT = 200, 4, 9467
# Brokers allow such short sessions only if they are configured for it.
SESSION_S = 2.0
# Events a second that come while other things are repeated.
RATE = 300
LEARNED = "events_total"


class Stage:
    """A topic, a store, somebody who clicks, and a worker that reaches both servers by detours."""

    def __init__(self, folder: Path, servers: Servers) -> None:
        self.folder, self.servers, self.store = folder, servers, servers.store("valkey")
        servers.kafka.create_topic("clicks", PARTITIONS)
        catalogue(folder / "items", mapped=True)
        self.sink = KafkaSink(KafkaOptions(servers=servers.kafka.servers), topic="clicks", delivery_s=120)
        self.numbers = itertools.count()
        self.worker = self.start(__name__, servers.far_log, self.store.url_by_detour, f"127.0.0.1:{PORT}")

    def start(self, module: str, servers: str, url: str, bind: str = "") -> subprocess.Popen[str]:
        """Start ``module`` as a worker that reaches its log and its store at these addresses."""
        path = self.folder / f"{module}.toml"
        path.write_text(
            f'[log]\nkind = "kafka"\nservers = "{servers}"\ntopic = "clicks"\nsession_timeout_s = {SESSION_S}\n'
            f'[store]\nurl = "{url}"\n[catalogues.items]\npath = "{self.folder}/items"\n'
            f'[worker]\nbind = "{bind}"\nsave_mb_s = 200.0\n'
            '[models."dca-*"]\nlearner = "dca"\nrank = 3\n[models."lomdml-*"]\nlearner = "lomdml"\nrank = 3\n'
        )
        command = [sys.executable, "-m", module, "worker", "--config", str(path)]
        with path.with_suffix(".log").open("ab") as log:
            pipe = subprocess.PIPE
            return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=log, text=True)

    def click(self, count: int, known: bool = True) -> None:
        """Send events to one model after the other; those about an item that is not known become dead letters."""
        for number in itertools.islice(self.numbers, count):
            model = f"{('dca', 'lomdml')[number % 2]}-{number % MODELS}"
            items = [f"i{number * step % ITEMS}" for step in (7, 11, 13)]
            event = Triplet(model=model, query=items[0], relevant=items[1], irrelevant=items[2] if known else "none")
            self.sink.send(encode(event), key=model)
        self.sink.flush(120.0)

    @contextmanager
    def clicking(self) -> Iterator[None]:
        """Have events come, ``RATE`` a second, while the block runs."""
        enough = threading.Event()

        def click() -> None:
            while not enough.wait(0.1):
                self.click(RATE // 10)

        clicker = threading.Thread(target=click)
        clicker.start()
        try:
            yield
        finally:
            enough.set()
            clicker.join()

    def after(self, act: Callable[[], object], metric: str, rise: float = 1) -> None:
        """Act, and return once a metric has risen by ``rise``."""
        until = self.total(metric) + rise
        act()
        wait_until(lambda: self.total(metric) >= until)

    def page(self, path: str) -> str:
        """What the worker answers at this path of its own HTTP server."""
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def total(self, metric: str) -> float:
        """The sum of a metric of the worker; 0 while it starts."""
        with suppress(OSError):
            lines = self.page("metrics").splitlines()
            return sum(float(line.split()[-1]) for line in lines if line.startswith(f"omdml_worker_{metric}"))
        return 0.0

    def held(self) -> list[str]:
        """What the worker holds once it alone has all partitions, holds all models, and has saved everything."""
        wait_until(lambda: self.total("owned_partitions") == PARTITIONS)
        self.after(lambda: self.click(3 * MODELS), LEARNED, 3 * MODELS)
        wait_until(lambda: not self.total("lag_offsets") and not self.total("oldest_unsaved_timestamp_seconds"))
        self.tell("count")
        assert self.worker.stdout
        blocks, threads = map(int, self.worker.stdout.readline().split())
        files = len(os.listdir(f"/proc/{self.worker.pid}/fd"))
        return [f"{resident(self.worker.pid) / 1e6:.0f}", f"{blocks / 1e3:.0f}", str(files), str(threads)]

    def tell(self, line: str) -> None:
        """Tell the worker what :func:`obey` understands."""
        print(line, file=self.worker.stdin, flush=True)


def obey(replace: threading.Event) -> None:
    """Count what this process holds, or ask for another Kafka client, as each line of the standard input says."""
    from omdml.workers.configuration.process import give_memory_back

    for line in sys.stdin:
        if line == "replace\n":
            replace.set()
        else:
            gc.collect()
            give_memory_back()
            print(sys.getallocatedblocks(), threading.active_count(), flush=True)


def work() -> None:
    """Be the worker of a stage."""
    from omdml.workers.cli import main

    replace, poll = threading.Event(), KafkaSource.poll

    def polled(source: KafkaSource, max_records: int, timeout_s: float) -> Any:
        if replace.is_set():
            replace.clear()
            source._make_client()
        return poll(source, max_records, timeout_s)

    KafkaSource.poll = polled  # type: ignore[method-assign, assignment]
    threading.Thread(target=obey, args=(replace,), daemon=True).start()
    main()


# The worker, in a process of its own.
if __name__ == "__main__":
    work()
