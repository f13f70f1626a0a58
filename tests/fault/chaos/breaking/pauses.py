"""Workers that stand still for a while, as a paused virtual machine: alone, and amid other trouble."""

from __future__ import annotations

import time
from random import Random

from tests.fault.chaos.service import ASSIGNED, FAR, GUEST, WORKERS, Service

# Longer than log.session_timeout_s: the group has given the partitions away.
PAUSE_S = 10.0
LOST = "event=partition_lost"


def others_took_over(service: Service, chance: Random) -> None:
    """A worker stands still; the other one learns all models meanwhile; then it goes on and joins again."""
    number = chance.randrange(WORKERS)
    worker, other = service.workers[number], service.workers[1 - number]
    given, before = other.said.count(ASSIGNED), worker.said.count(LOST)
    worker.pause()
    service.wait(lambda: other.said.count(ASSIGNED) > given, "the other worker to take over")
    service.all_learn()
    comes_back(service, number, before)


def nobody_took_over(service: Service, chance: Random) -> None:
    """The only worker stands still: its partitions are nobody's until it goes on."""
    number = chance.randrange(WORKERS)
    worker, other = service.workers[number], service.workers[1 - number]
    assert other.stop() == 0, other.said[-2000:]
    service.away = {1 - number}
    service.all_learn()
    before = worker.said.count(LOST)
    worker.pause()
    # No other worker is there to notice the end of the session, so this waits for a fixed time.
    time.sleep(PAUSE_S)
    comes_back(service, number, before)
    service.all_learn()
    service.away = set()
    service.start(1 - number)


def amid_a_rebalance(service: Service, chance: Random) -> None:
    """A third worker joins while one stands still, its store is cut off when it goes on, and comes back afterwards.

    All of that lies within the rebalance that the third worker began: it waits for the one that stands still.
    """
    worker, detours = service.workers[FAR], (service.servers.valkey.detour, service.servers.kafka.detour)
    detour = detours[service.injected % 2]
    worker.pause()
    guest = service.start_process(service.name(GUEST), "omdml.workers.cli", "worker")
    before = guest.said.count(ASSIGNED)
    # The fault is to come at any moment of the rebalance.
    time.sleep(chance.uniform(2.0, 4.0))
    detour.cut()
    worker.resume()
    # So is its end.
    time.sleep(chance.uniform(1.0, 3.0))
    detour.join()
    service.wait(lambda: guest.said.count(ASSIGNED) > before, "the third worker to get a partition")
    service.all_learn()
    assert guest.stop() == 0, guest.said[-2000:]


def comes_back(service: Service, number: int, before: int) -> None:
    """Let a worker go on. It must lose what it had when it was paused, and be given partitions again."""
    worker = service.workers[number]
    service.assigned[number] = worker.said.count(ASSIGNED)
    worker.resume()
    service.wait(lambda: worker.said.count(LOST) > before, "the worker to see that it was expelled")
