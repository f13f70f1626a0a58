"""Deliveries out of place: Kafka's books say another position than the one that was reached, before or behind it.

That the same event is delivered again is this; that a client sends it twice makes two events of it, which every load
does here, with two senders that race each other.
"""

from __future__ import annotations

from random import Random

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import CommitFailedError
from kafka.structs import OffsetAndMetadata

from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.topic_extents import extents
from tests.fault.chaos.service import WORKERS, Service
from tests.support.processes import wait_for


def books_rewritten(service: Service, chance: Random) -> None:
    """While no worker is there, each partition is committed anywhere between its beginning and its end."""
    for worker in service.workers:
        assert worker.stop() == 0, worker.said[-2000:]
    options = KafkaOptions(servers=service.servers.kafka.servers)
    wanted = {
        TopicPartition(service.topic, extent.partition.number): OffsetAndMetadata(
            chance.randint(extent.begin, extent.end), extent.partition.topic_id, -1
        )
        for extent in extents(options, service.topic, service.topic)
    }
    books = KafkaConsumer(**options.client(), group_id=service.topic, enable_auto_commit=False)
    books.assign(list(wanted))

    def written() -> bool:
        try:
            books.commit(wanted)
        except CommitFailedError:
            # A worker that left while it joined is a member until its session ends.
            return False
        return True

    wait_for(written, "the group to be empty", 30)
    books.close(autocommit=False)
    for number in range(WORKERS):
        service.start(number)
