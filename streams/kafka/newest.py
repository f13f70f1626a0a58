"""Records of a topic, the newest or those at given offsets, read without joining a group, in bounded time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kafka import TopicPartition

from omdml.streams.kafka import internals
from omdml.streams.kafka.options import KafkaOptions, translated
from omdml.streams.kafka.reading.batches import Unreadable
from omdml.streams.kafka.reading.consumer import (
    ANSWER_LIMIT_S,
    as_records,
    leave,
    milliseconds,
    offset_ranges,
    open_consumer,
)
from omdml.streams.kafka.topic import look_up
from omdml.streams.kafka.topic_extents import SESSION_S
from omdml.streams.newest import Newest
from omdml.streams.protocols.log import Partition, Record

# Seconds that a poll may take. After each poll comes a look at how far the partitions are read.
SLICE_S = 0.2


def newest_records(options: KafkaOptions, topic: str, group: str, most: int, within_s: float) -> Newest:
    """At most ``most`` of the newest records of every partition; none if there is no such topic.

    What could not be read ``within_s`` is left out. Nothing is committed, and ``group`` notices nothing. Raises
    SourceError.
    """
    description = look_up(options, topic)
    if description is None:
        return Newest([], whole=True)
    places = {
        TopicPartition(topic, number): Partition(description.id, number) for number in range(description.partitions)
    }
    consumer = open_consumer(options, group, None, SESSION_S)
    try:
        with translated(options, f"reading the newest events of topic {topic!r}"):
            return _read(consumer, places, most, time.monotonic() + within_s)
    finally:
        leave(consumer, group)


def _read(consumer: Any, places: Mapping[TopicPartition, Partition], most: int, until: float) -> Newest:
    """Read each partition from ``most`` before its end up to its end."""
    consumer.assign(list(places))
    begins, ends = offset_ranges(consumer, places)
    starts = {tp: max(begins[tp], ends[tp] - most) for tp in places}
    for tp, start in starts.items():
        consumer.seek(tp, start)
    unread = {tp for tp in places if starts[tp] < ends[tp]}
    records: list[Record] = []
    while unread and time.monotonic() < until:
        try:
            batches = consumer.poll(timeout_ms=milliseconds(SLICE_S))
        except Unreadable as damaged:
            consumer.seek(internals.drop_batch(consumer), damaged.next_offset)
            continue
        for tp, batch in batches.items():
            records += as_records(places[tp], batch)
        unread -= {tp for tp in unread if consumer.position(tp, timeout_ms=milliseconds(ANSWER_LIMIT_S)) >= ends[tp]}
    return Newest(records, whole=not unread and starts == begins)


def first_records(
    options: KafkaOptions, topic: str, group: str, offsets: Mapping[Partition, int], within_s: float
) -> dict[Partition, Record]:
    """The first record at or after an offset in each of these partitions that has one.

    What could not be read ``within_s`` is left out. Nothing is committed, and ``group`` notices nothing. Raises
    SourceError.
    """
    places = {TopicPartition(topic, partition.number): partition for partition in offsets}
    records: dict[Partition, Record] = {}
    if not places:
        return records
    consumer, until = open_consumer(options, group, None, SESSION_S), time.monotonic() + within_s
    try:
        with translated(options, f"reading topic {topic!r}"):
            consumer.assign(list(places))
            for tp, partition in places.items():
                consumer.seek(tp, offsets[partition])
            while len(records) < len(places) and time.monotonic() < until:
                try:
                    batches = consumer.poll(timeout_ms=milliseconds(SLICE_S), max_records=1)
                except Unreadable:
                    # The worker reports the damage when it gets there.
                    consumer.pause(internals.drop_batch(consumer))
                    continue
                for tp, batch in batches.items():
                    records[places[tp]] = as_records(places[tp], batch)[0]
                    consumer.pause(tp)
    finally:
        leave(consumer, group)
    return records
