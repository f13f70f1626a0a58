"""Partitions that are added to the topic under load, and the operator who has models live on them."""

from __future__ import annotations

import time
from random import Random

from kafka import KafkaAdminClient

from tests.fault.chaos.service import LIMIT_S, NODE, PARTITIONS, WORKERS, Service

# Until all senders know of added partitions, which they ask for every ten seconds.
HEARD_S = 15.0


def more_partitions(service: Service, chance: Random) -> None:
    """Twice as many partitions: workers leave the new ones unread until the operator stops them and calls rehome."""
    partitions = PARTITIONS << (service.injected + 1)
    admin = KafkaAdminClient(bootstrap_servers=service.servers.kafka.servers)
    try:
        admin.create_partitions({service.topic: partitions})
    finally:
        admin.close()
    # No sign shows when every sender has asked again which partitions exist.
    time.sleep(HEARD_S)
    service.load.rest()
    oracle = service.oracle()
    assert oracle.unread, "no event came by a partition that was added"
    service.wait(lambda: not oracle.findings(service.checkpoints(), service.letters()), "old partitions to be learned")
    for worker in service.workers:
        assert worker.stop() == 0, worker.said[-2000:]
    rehome = service.start_process(NODE, "omdml.workers.cli", "topics", "rehome")
    assert rehome.wait(LIMIT_S) == 0, rehome.said[-2000:]
    for number in range(WORKERS):
        service.start(number)
    service.load.go_on()
