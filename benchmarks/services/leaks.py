"""Whether a worker holds more and more if the same happens to it again and again, by what happens."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.services.counted import LEARNED, MODELS, Stage
from benchmarks.services.processes import STOP_S
from tests.fault.chaos.servers import Servers

# Seconds: longer than a session of these workers.
CUT_S = 3.0
PAGES = ("metrics", "healthz", "readyz", "metrics/models")
ASSIGNED = 'rebalances_total{kind="assigned"}'
TITLE = f"A worker of {MODELS} models before, and after each quarter of the repetitions"


def main(console: Console) -> None:
    table = Table("what", "times", "resident, MB", "Python's blocks, thousands", "files", "threads", title=TITLE)
    for name, (act, times) in CAUSES.items():
        with tempfile.TemporaryDirectory() as folder, Servers() as servers:
            points = held(Stage(Path(folder), servers), act, times // 4)
        table.add_row(name, f"{times:,}", *(" ".join(numbers) for numbers in zip(*points, strict=True)))
    console.print(table)


def held(stage: Stage, act: Callable[[Stage, int], None], quarter: int) -> list[list[str]]:
    """What the worker holds at the beginning, and after each quarter."""
    try:
        # The start and the first repetitions make things that stay. That does not count as growth.
        stage.held()
        act(stage, max(1, quarter // 5))
        points = [stage.held()]
        for _ in range(4):
            act(stage, quarter)
            points.append(stage.held())
        return points
    finally:
        stage.worker.terminate()
        stage.worker.wait(STOP_S)
        stage.sink.close()


def learn(stage: Stage, times: int) -> None:
    """Events come as fast as they are learned."""
    for _ in range(0, times, 10_000):
        stage.after(lambda: stage.click(10_000), LEARNED, 5_000)


def publish(stage: Stage, times: int) -> None:
    """Versions are published while people click."""
    with stage.clicking():
        for _ in range(0, times, 100):
            stage.after(lambda: None, "publications_total", 100)


def rebalance(stage: Stage, times: int) -> None:
    """Another worker comes for a second or so, and goes again."""
    with stage.clicking():
        guest = stage.start("tests.fault.chaos.breaking.rebalances", stage.servers.kafka.servers, stage.store.url)
        try:
            for _ in range(times):
                stage.after(lambda: None, ASSIGNED)
        finally:
            guest.kill()
            guest.wait()


def each(act: Callable[[Stage], object], metric: str) -> Callable[[Stage, int], None]:
    """Act while events come, and wait each time until a metric has risen."""

    def repeated(stage: Stage, times: int) -> None:
        with stage.clicking():
            for _ in range(times):
                stage.after(lambda: act(stage), metric)

    return repeated


def cut(detour: Any) -> None:
    """Let nothing through for a while."""
    detour.cut()
    time.sleep(CUT_S)
    detour.join()


def ask(stage: Stage, times: int) -> None:
    """Requests for each page by turns."""
    for path in itertools.islice(itertools.cycle(PAGES), times):
        stage.page(path)


CAUSES: dict[str, tuple[Callable[[Stage, int], None], int]] = {
    "events learned": (learn, 1_000_000),
    "publications": (publish, 40_000),
    "partitions that another worker gave back": (rebalance, 400),
    "cuts from Kafka": (each(lambda stage: cut(stage.servers.kafka.detour), ASSIGNED), 100),
    "cuts from Valkey": (each(lambda stage: cut(stage.store.detour), LEARNED), 100),
    "Kafka clients replaced": (each(lambda stage: stage.tell("replace"), ASSIGNED), 200),
    "dead letters": (lambda stage, times: stage.click(times, known=False), 200_000),
    "HTTP requests": (ask, 40_000),
}
