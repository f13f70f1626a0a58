"""What happens to a cluster of three brokers with three copies of everything."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection
from random import Random

import pytest

from omdml.errors import SourceError
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from tests.fault.chaos.service import PARTITIONS, Service

ALL = {1, 2, 3}
GIVE_UP_S = 5.0
# Longer than the sessions of workers, and than those of brokers with their controller.
FROZEN_S = 60.0
_probes = itertools.count()


def leaders_moved(service: Service, chance: Random) -> None:
    """Every partition gets another leader, with events on their way."""
    for partition in range(PARTITIONS):
        service.servers.kafka.move_leader(service.topic, partition)


def leader_killed(service: Service, chance: Random) -> None:
    """The leader of a partition is killed; learning goes on without it, and it comes back."""
    cluster = service.servers.kafka
    broker = cluster.leader(service.topic, chance.randrange(PARTITIONS))
    cluster.kill(broker)
    service.all_learn()
    back(service, broker)


def one_frozen(service: Service, chance: Random) -> None:
    """The leader of a partition stands still for a minute; the others lead meanwhile."""
    frozen(service, [service.servers.kafka.leader(service.topic, chance.randrange(PARTITIONS))])


def all_frozen(service: Service, chance: Random) -> None:
    """All brokers stand still for a minute, as machines of one host that is paused."""
    frozen(service, ALL)


def frozen(service: Service, brokers: Collection[int]) -> None:
    """Pause brokers, and let them go on one right after the other."""
    nodes = [service.servers.kafka.brokers[broker] for broker in brokers]
    for node in nodes:
        node.pause()
    time.sleep(FROZEN_S)
    for node in nodes:
        node.resume()
    service.all_learn()
    everywhere_in_sync(service, ALL)


def one_copy_is_enough(service: Service, chance: Random) -> None:
    """With min.insync.replicas 1, clicks are taken and learned while two of three brokers are down."""
    cluster = service.servers.kafka
    cluster.configure(service.topic, {"min.insync.replicas": "1"})
    down = chance.sample(sorted(ALL), 2)
    for broker in down:
        cluster.kill(broker)
        everywhere_in_sync(service, ALL - set(down[: down.index(broker) + 1]))
        service.all_learn()
    back(service, *down)


def two_copies_are_needed(service: Service, chance: Random) -> None:
    """With min.insync.replicas 2, one broker may be down. With two down senders are refused, and workers wait."""
    cluster = service.servers.kafka
    cluster.configure(service.topic, {"min.insync.replicas": "2"})
    down = chance.sample(sorted(ALL), 2)
    cluster.kill(down[0])
    everywhere_in_sync(service, ALL - {down[0]})
    service.all_learn()
    probe = f"probe-{next(_probes)}"
    with cluster.admin() as admin:
        wanted = {"num_partitions": 1, "replication_factor": 2, "configs": {"min.insync.replicas": "2"}}
        admin.create_topics({probe: wanted}, wait_for_metadata=True)
    sink = KafkaSink(KafkaOptions(servers=cluster.servers), topic=probe, delivery_s=GIVE_UP_S)
    cluster.kill(down[1])
    sink.send(b"{}", key="shop")
    with pytest.raises(SourceError, match=f"1 event for topic '{probe}' .* could not be written"):
        sink.flush(6 * GIVE_UP_S)
    sink.close()
    assert all(worker.running for worker in service.workers)
    back(service, *down)


def everywhere_in_sync(service: Service, brokers: set[int]) -> None:
    """Return when exactly these brokers' copies of every partition have everything."""
    for partition in range(PARTITIONS):
        service.servers.kafka.wait_in_sync(service.topic, partition, brokers)


def back(service: Service, *brokers: int) -> None:
    """Start brokers again, and let them catch up."""
    service.servers.kafka.restart(*brokers)
    everywhere_in_sync(service, ALL)
