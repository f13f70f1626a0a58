"""Clocks that jump: those of the clients, whose events come from the future, and those of the workers.

``python -m tests.fault.chaos.breaking.clocks ...`` is omdml with these arguments, on a clock that jumps by an hour.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from random import Random

from prometheus_client.parser import text_string_to_metric_families

from tests.fault.chaos.service import MODELS, WORKERS, Service

JUMP_S, EVERY_S = 3600.0, 2.0
AHEAD_S = 86_400.0
COUNTED = "omdml_worker_events_ahead_total"


def jumping(clock):
    """A clock that goes back and forth by :data:`JUMP_S` every :data:`EVERY_S`."""
    return lambda: clock() + JUMP_S * (int(time.monotonic() / EVERY_S) % 3 - 1)


def ahead(service: Service, chance: Random) -> None:
    """Clients date their events a day ahead: workers count these, and treat them as events of now."""
    before = counted(service)
    service.load.ahead_s = AHEAD_S
    service.wait(lambda: counted(service) >= before + 100, "events from the future to be counted")
    service.load.ahead_s = 0.0
    for model in MODELS:
        checkpoint = service.store.peek(model)
        assert checkpoint is None or checkpoint.event_time is None or checkpoint.event_time <= time.time(), checkpoint


def counted(service: Service) -> float:
    """Events from the future, by all workers."""
    return sum(
        sample.value
        for port in service.metrics_ports[:WORKERS]
        for family in text_string_to_metric_families(scraped(port))
        for sample in family.samples
        if sample.name == COUNTED
    )


def scraped(port: int) -> str:
    """Read the metrics of a worker."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


if __name__ == "__main__":
    time.time = jumping(time.time)
    from omdml.workers.cli import main

    main(sys.argv[1:])
