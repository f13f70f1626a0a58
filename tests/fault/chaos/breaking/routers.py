"""Routers that are killed while they copy events of a sender without keys into the feedback topic."""

from __future__ import annotations

from random import Random

from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from tests.fault.chaos.load import Sender
from tests.fault.chaos.service import NODE, PARTITIONS, Service

ROUTERS = 2


def killed(service: Service, chance: Random) -> None:
    """Kill one of two routers at any moment; its supervisor starts it again."""
    if not service.routers:
        begin(service)
    number = chance.randrange(ROUTERS)
    service.routers[number].kill()
    service.routers[number].close()
    service.routers[number] = router(service, number)
    service.wait(lambda: all(router.running for router in service.routers), "routers to run")


def begin(service: Service) -> None:
    """Have one of the senders write to a topic of its own, which two routers copy."""
    kafka, clicks = service.servers.kafka, f"{service.topic}.clicks"
    kafka.create_topic(clicks, PARTITIONS)
    service.sinks.append(KafkaSink(KafkaOptions(servers=kafka.servers), topic=clicks, delivery_s=120))
    service.routers = [router(service, number) for number in range(ROUTERS)]
    service.load.careless = [*service.load.careless, Sender(service.sinks[-1], keyed=False)]


def router(service: Service, number: int):
    """A router, which has a name of its own in the group."""
    name = f"router-{number}"
    text = service.configuration(NODE).read_text().replace(f'member = "{NODE}"', f'member = "{name}"')
    service.configuration(name).write_text(text)
    # Senders may be faster than the first router, and others write to the feedback topic directly.
    options = ("--from", f"{service.topic}.clicks", "--begin", "beginning")
    return service.start_process(name, "omdml.workers.cli", "route", *options)
