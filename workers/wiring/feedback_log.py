"""The feedback log that is configured, in files or in Kafka: to read, to write, to look at."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

from omdml.errors import ConfigurationError
from omdml.streams.files.group_state import GroupState
from omdml.streams.files.log import OFFSET_BITS, reaching
from omdml.streams.files.reader import open_log
from omdml.streams.files.source import FileSink, FileSource
from omdml.streams.files.ungrouped import UngroupedFileSource
from omdml.streams.kafka.newest import first_records
from omdml.streams.kafka.newest import newest_records as newest_in_topic
from omdml.streams.kafka.reading.source import KafkaSource
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.kafka.topic import look_up
from omdml.streams.kafka.topic_extents import extents
from omdml.streams.newest import EVENTS, Newest
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition, Record, Sink, Source
from omdml.streams.protocols.store import Store
from omdml.streams.topic_extents import Extent
from omdml.workers.configuration.config import FileLog, KafkaLog
from omdml.workers.operate.topics import PartitionReport, other_group
from omdml.workers.wiring.kafka_topic import connection, workers_of

# Seconds that a look at a log may take.
LOOK_S = 5.0


def open_source(log: FileLog | KafkaLog) -> Source:
    """The feedback log, to read; raises SourceError."""
    if isinstance(log, FileLog):
        return FileSource(log.path, group=log.group)
    return KafkaSource(
        connection(log),
        topic=log.topic,
        group=log.group,
        group_instance_id=log.member,
        session_timeout_s=log.session_timeout_s,
        partitioner=log.partitioner,
    )


def log_names(log: FileLog | KafkaLog) -> dict[str, str | None]:
    """The names of a log, its group and this member, for the log lines of a process."""
    if isinstance(log, FileLog):
        return {"path": log.path}
    return {"topic": log.topic, "group": log.group, "member": log.member}


def open_ungrouped(log: FileLog | KafkaLog) -> Source:
    """The feedback log, to read beside its group without being seen by it; raises SourceError."""
    if isinstance(log, FileLog):
        return UngroupedFileSource(log.path)
    source = KafkaSource(
        connection(log), topic=log.topic, group=f"{log.group}.replay.{uuid.uuid4().hex}", partitioner=log.partitioner
    )
    source.command = "omdml replay"
    return source


def open_sink(log: FileLog | KafkaLog) -> Sink:
    """The feedback log, to write; raises SourceError."""
    if isinstance(log, FileLog):
        return FileSink(log.path)
    return KafkaSink(connection(log), topic=log.topic, partitioner=log.partitioner)


def partitioner_of(log: FileLog | KafkaLog) -> str:
    """How the senders of a log choose a partition by key."""
    return log.partitioner if isinstance(log, KafkaLog) else FileSource.partitioner


def placement_of(log: FileLog | KafkaLog, store: Store) -> tuple[str, Placement]:
    """A log's id and where its models live, or will when the first worker comes; raises SourceError, StoreError."""
    source = open_ungrouped(log)
    try:
        placement = store.placement(source.topic_id)
        return source.topic_id, placement or Placement.first(source.partitioner, source.partitions)
    finally:
        source.close()


def log_extents(log: FileLog | KafkaLog) -> list[Extent]:
    """How far each partition of the feedback log reaches; raises SourceError."""
    if isinstance(log, KafkaLog):
        return extents(connection(log), log.topic, log.group)
    files = open_log(log.path)
    with reaching(files.path):
        begin, (number, size) = files.oldest() << OFFSET_BITS, files.newest()
    return [Extent(Partition(files.topic_id, 0), begin, number << OFFSET_BITS | size, None)]


def newest_events(log: KafkaLog) -> Newest:
    """The newest events of each partition of the topic, in bounded time; raises SourceError."""
    return newest_in_topic(connection(log), log.topic, log.group, EVENTS, LOOK_S)


def waiting_since(log: KafkaLog, lines: Iterable[PartitionReport]) -> dict[int, float]:
    """The time of the first event that waits in each partition, by its number, in seconds since the epoch.

    A partition is left out if none waits, or if its time cannot be told in bounded time. Raises SourceError.
    """
    starts = {line.extent.partition: line.extent.end - line.lag for line in lines if line.lag > 0}
    records = first_records(connection(log), log.topic, log.group, starts, LOOK_S)
    return {partition.number: record.timestamp for partition, record in records.items() if record.timestamp is not None}


def read_log(log: FileLog | KafkaLog, placement: Placement, accept_gap: bool) -> Iterator[list[Record]]:
    """The whole feedback log as workers learn it, beside its group; raises SourceError."""
    from omdml.workers.operate.replay import read_as_placed

    return read_as_placed(lambda: open_ungrouped(log), placement, accept_gap)


def require_stopped(log: FileLog | KafkaLog, store: Store) -> None:
    """Raise ConfigurationError if a worker reads the log just now, or if that cannot be known.

    Workers are looked for in the configured group, so it must be the one that they recorded in the store.
    """
    topic_id = _identity(log)
    if topic_id and (refusal := other_group(store, topic_id, log.group)):
        raise ConfigurationError(refusal)
    if isinstance(log, FileLog):
        if reader := GroupState(open_log(log.path), log.group).reader():
            raise ConfigurationError(f"process {reader} learns from {log.path}: stop the worker first")
    elif workers := workers_of(log):
        members = ", ".join(map(str, workers))
        raise ConfigurationError(
            f"group {log.group!r} has members ({members}): stop the workers first; the broker counts one that was "
            f"killed until its session ends, after {log.session_timeout_s:g} s"
        )


def _identity(log: FileLog | KafkaLog) -> str:
    """The id under which the store keeps marks and placements of this log; empty if its topic does not exist."""
    if isinstance(log, FileLog):
        return open_log(log.path).topic_id
    topic = look_up(connection(log), log.topic)
    return topic.id if topic else ""
