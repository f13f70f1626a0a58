"""All faults, and a trial of one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.fault.chaos.breaking import (
    brokers,
    clocks,
    deliveries,
    disks,
    growing,
    kills,
    networks,
    pauses,
    rebalances,
    restarts,
    routers,
    stepped,
    stores,
)
from tests.fault.chaos.servers import Servers
from tests.fault.chaos.service import Service
from tests.fault.chaos.verdict import Verdict, judge

# For all injections of one fault.
LIMIT_S = 900.0


class Fault(NamedTuple):
    """Something that breaks.

    Parameters
    ----------
    title
        As the table calls it.
    inject
        Breaks it once, and mends what operators and supervisors mend.
    times
        How often in the long run.
    store
        What the models are kept in: a server by its name, a folder, or a small disk.
    entry
        The module that workers run.
    forgets
        Whether the store forgets, so that versions go back.
    cluster
        Whether the log is a cluster of three brokers.
    """

    title: str
    inject: Callable[[Service, Random], None]
    times: int
    store: str = "valkey"
    entry: str = "omdml.workers.cli"
    forgets: bool = False
    cluster: bool = False


FAULTS = {
    "kill": Fault("kill -9 of a worker at random, restarted", kills.any_moment, 100),
    "steps": Fault("kill -9 right after each step of the protocol", kills.every_step, 27),
    "broker": Fault("Kafka restarted", restarts.broker, 10),
    "leaders": Fault("Three brokers: every leader moved", brokers.leaders_moved, 10, cluster=True),
    "leader-killed": Fault("Three brokers: a leader killed", brokers.leader_killed, 5, cluster=True),
    "broker-frozen": Fault("Three brokers: a leader paused for 60 s", brokers.one_frozen, 3, cluster=True),
    "cluster-frozen": Fault("Three brokers: all paused for 60 s", brokers.all_frozen, 3, cluster=True),
    "insync-1": Fault("min.insync.replicas 1, two of three killed", brokers.one_copy_is_enough, 3, cluster=True),
    "insync-2": Fault("min.insync.replicas 2, two of three killed", brokers.two_copies_are_needed, 3, cluster=True),
    "store": Fault("Valkey restarted, its memory kept", restarts.store, 10),
    "store-lost": Fault("Valkey restarted empty, topics rewind", restarts.store_lost, 3, "forgetful", forgets=True),
    "takeover": Fault(
        "Valkey's replica takes over, lacking writes", stores.replica_takes_over, 5, "replicated", forgets=True
    ),
    "aof-no": Fault("Valkey killed, appendonly no, save 1 1", stores.killed, 5, "saving", forgets=True),
    "aof-everysec": Fault("Valkey killed, appendfsync everysec", stores.killed, 5),
    "aof-always": Fault("Valkey killed, appendfsync always", stores.killed, 5, "always"),
    "power-cut": Fault("Valkey's machine killed, the newest writes gone", stores.machine_killed, 5, forgets=True),
    "cut-log": Fault("20 s between a worker and Kafka cut", networks.log_out_of_reach, 3),
    "cut-store": Fault("20 s between a worker and Valkey cut", networks.store_out_of_reach, 3),
    "storm": Fault("25 s of a third worker that joins and leaves", rebalances.storm, 3),
    "paused": Fault("Worker paused, the other one takes over", pauses.others_took_over, 5),
    "paused-alone": Fault("Worker paused for 10 s, the only one", pauses.nobody_took_over, 5),
    "paused-cut": Fault("Worker paused and cut off amid a rebalance", pauses.amid_a_rebalance, 6),
    "books": Fault("Kafka's commits moved back, or ahead", deliveries.books_rewritten, 10),
    "grow": Fault("Partitions doubled, topics rehome", growing.more_partitions, 2),
    "routers": Fault("kill -9 of one of two routers at random, restarted", routers.killed, 10),
    "clocks": Fault(
        "Events from tomorrow, workers' clocks jump", clocks.ahead, 10, entry="tests.fault.chaos.breaking.clocks"
    ),
    "clock-steps": Fault(
        "Workers' clocks set by an hour", stepped.stepped, 5, entry="tests.fault.chaos.breaking.stepped"
    ),
    "disk-full": Fault("Disk of the store full for 3 s", disks.full, 10, "small disk"),
    "torn": Fault("Checkpoint half written, kill -9", disks.torn, 10, "folder"),
}


def one_after_the_other(names: Sequence[str]) -> Fault:
    """These faults, each once all is learned again, to one service: what the first of them needs."""

    def inject(service: Service, chance: Random) -> None:
        for name in names:
            FAULTS[name].inject(service, chance)
            service.learns()

    return FAULTS[names[0]]._replace(inject=inject)


class Trial(NamedTuple):
    """How often a fault was injected, and how the service took it."""

    times: int
    verdict: Verdict
    learning_s: float
    serving_s: float


def trial(
    fault: Fault, times: int, seed: int, servers: Servers, folder: Path, tell: Callable[[], None] = lambda: None
) -> Trial:
    """Inject a fault this often, or until time is up, into a service of its own, each time once every model learns;
    ``tell`` is called after each.

    Raises AssertionError if that is not what it was to be, in the end or in between.
    """
    chance, until = Random(f"{fault.title} {seed}"), time.monotonic() + LIMIT_S
    with stored(fault.store, servers, folder) as urls, Service(folder, servers, *urls, fault.entry) as service:
        service.store_server = getattr(servers, fault.store, None)
        while service.injected < times and time.monotonic() < until:
            # Faults come at any moment, not only right after something was learned.
            time.sleep(chance.uniform(0, 1))
            fault.inject(service, chance)
            service.learns()
            service.injected += 1
            tell()
        service.learning.end()
        verdict = judge(service)
        service.serving.end()
        if not fault.forgets:
            assert not (back := service.learning.back + service.serving.back), back
        return Trial(service.injected, verdict, service.learning.longest_s, service.serving.longest_s)


@contextmanager
def stored(store: str, servers: Servers, folder: Path) -> Iterator[tuple[str, str]]:
    """The address of the store for models, and its address by the detour."""
    if store == "small disk":
        with disks.small_disk(folder) as disk:
            yield f"dir:{disk}/state", f"dir:{disk}/state"
    elif store == "folder":
        yield f"dir:{folder}/state", f"dir:{folder}/state"
    else:
        server = servers.store(store)
        yield server.url, server.url_by_detour
