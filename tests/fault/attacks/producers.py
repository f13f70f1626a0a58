"""Senders without keys, and with another client's, and whoever kills what stands between them and the workers."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

from deploy.local import KafkaServer
from omdml.streams.partitioners import by_crc32
from tests.fault.attacks.attack import Attack, Measured
from tests.support.servers.routes import PARTITIONS, Route

WAVES, EVENTS, KILLS = 40, 200, 6


def keyless(folder: Path) -> Measured:
    """Events without keys: the client chooses any partition for each."""
    return _killed(folder, None)


def foreign(folder: Path) -> Measured:
    """Events are keyed by their model, and another hash than the configured one chooses their partitions."""
    return _killed(folder, lambda key: by_crc32(key, PARTITIONS))


def _killed(folder: Path, partition_of: Callable[[bytes], int] | None) -> Measured:
    """Send through two routers, of which one is killed again and again."""
    draw, stop = random.Random(2), threading.Event()
    with KafkaServer() as kafka:

        def new_topic(partitions: int) -> str:
            name = f"attacked-{draw.randrange(1 << 30)}"
            kafka.create_topic(name, partitions)
            return name

        with Route(folder, kafka, new_topic, partition_of=partition_of) as route:

            def send() -> None:
                for _ in range(WAVES):
                    if not stop.wait(0.2):
                        route.send(EVENTS, keys=partition_of and str.encode)

            sender = threading.Thread(target=send)
            routers = {name: route.router(name) for name in ("one", "two")}
            sender.start()
            try:
                for _ in range(KILLS):
                    name = draw.choice(sorted(routers))
                    # Kills come at any moment.
                    stop.wait(draw.uniform(0.5, 4.0))
                    routers[name].kill()
                    routers[name] = route.router(name)
                sender.join(120)
                route.wait(timeout_s=120)
                ended = route.stop(*routers.values())
                lost, doubled, wrong = route.faults()
            finally:
                stop.set()
                for router in routers.values():
                    router.close()
            value = f"{route.sent.total():,} sent: {lost} lost, {doubled} doubled, {wrong} wrong; routers ended {ended}"
            return Measured(value, held=(lost, doubled, wrong, *ended) == (0,) * 5)


BOUND = "0 of 8,000 events lost, doubled, or out of place or order, two routers, 6 kills"
ATTACKS = [
    Attack("senders without keys, routers killed", BOUND, keyless),
    Attack("senders with another hash, routers killed", BOUND, foreign),
]
