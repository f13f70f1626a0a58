"""The topic of a Kafka log: how to reach it, create it, grow it, and look at it."""

from __future__ import annotations

import os
import socket
from typing import NoReturn

import msgspec

from omdml.errors import ConfigurationError
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.topic import create_topic, grow_topic, look_up
from omdml.streams.kafka.topic_extents import extents, members
from omdml.streams.topic_extents import Extent, Member
from omdml.workers.configuration.config import Configuration, FileLog, KafkaLog
from omdml.workers.operate.topics import PartitionReport, check_growth, survey
from omdml.workers.wiring.stores import open_stores


def connection(log: KafkaLog) -> KafkaOptions:
    """The part of a Kafka log's configuration that says how to reach the cluster."""
    fields = KafkaOptions.__struct_fields__
    options = KafkaOptions(**{name: value for name, value in msgspec.structs.asdict(log).items() if name in fields})
    if options.client_id != KafkaOptions().client_id:
        return options
    # Brokers and omdml topics status tell clients apart by this.
    return msgspec.structs.replace(options, client_id=f"{options.client_id}-{socket.gethostname()}-{os.getpid()}")


def create_log(log: FileLog | KafkaLog, partitions: int, topic_name: str | None = None) -> tuple[str, bool, int]:
    """Create the topic of a Kafka log, fit for feedback, or another topic beside it, ``topic_name``.

    Returns the topic's name, whether it was created, and how many partitions it has.

    Raises SourceError.
    """
    if isinstance(log, FileLog):
        raise ConfigurationError("log.kind is 'file': a log in files needs no topic, so there is nothing to create")
    name = topic_name or log.topic
    created = create_topic(connection(log), name, partitions=partitions)
    topic = None if created else look_up(connection(log), name)
    return name, created, topic.partitions if topic else partitions


def grow_log(configuration: Configuration, partitions: int) -> tuple[int, int]:
    """Add partitions to the topic of a Kafka log, up to this many.

    Returns on how many partitions models live, and how many there were.
    Raises ConfigurationError, SourceError, StoreError.
    """
    log = configuration.log
    if isinstance(log, FileLog):
        no_topic()
    topic = look_at_topic(log)
    placement = open_stores(configuration).placement(topic[0].partition.topic_id)
    homes = placement.count if placement else len(topic)
    check_growth(homes, len(topic), partitions)
    if partitions > len(topic):
        grow_topic(connection(log), log.topic, partitions)
    return homes, len(topic)


def look_at_topic(log: FileLog | KafkaLog) -> list[Extent]:
    """How far a Kafka log reaches and is read, partition by partition; raises SourceError."""
    return extents(connection(log), log.topic, log.group) if isinstance(log, KafkaLog) else no_topic()


def require_topic(log: FileLog | KafkaLog) -> None:
    """Raise ConfigurationError if this log is not in Kafka."""
    if isinstance(log, FileLog):
        no_topic()


def no_topic() -> NoReturn:
    """Raise ConfigurationError for what only a Kafka log has."""
    raise ConfigurationError(
        "log.kind is 'file': a log in files has no topic. How far it is learned: omdml doctor, and omdml doctor "
        "--audit. To learn it again from its beginning: stop the worker, empty the store, and choose another log.group"
    )


def workers_of(log: FileLog | KafkaLog) -> list[Member]:
    """The workers that read the topic just now, none of a log in files; raises SourceError."""
    return members(connection(log), log.topic, log.group) if isinstance(log, KafkaLog) else []


def survey_topic(configuration: Configuration) -> list[PartitionReport]:
    """Every partition of the topic, beside what the store and the group know of it; raises SourceError, StoreError."""
    log = configuration.log
    return survey(lambda: look_at_topic(log), open_stores(configuration), lambda: workers_of(log))
