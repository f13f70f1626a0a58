"""Networks that are cut: a worker that reaches its log, or its store, no more, while the other one does."""

from __future__ import annotations

import time
from random import Random

from tests.fault.chaos.proxy import Proxy
from tests.fault.chaos.service import ASSIGNED, FAR, Service

CUT_S = 20.0


def log_out_of_reach(service: Service, chance: Random) -> None:
    """A worker and Kafka hear nothing of each other: the other worker takes its partitions, and it comes back."""
    service.assigned[FAR] = service.workers[FAR].said.count(ASSIGNED)
    cut(service.servers.kafka.detour)


def store_out_of_reach(service: Service, chance: Random) -> None:
    """A worker and Valkey hear nothing of each other, while it stays a member of its group."""
    cut(service.servers.valkey.detour)


def cut(detour: Proxy) -> None:
    """Let nothing through for a while."""
    detour.cut()
    # How long the fault lasts: longer than a session, so that other members notice it.
    time.sleep(CUT_S)
    detour.join()
