"""How far a topic reaches, and how far a group has read it, looked at from outside the group."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import kafka.errors
from kafka import TopicPartition

from omdml.streams.kafka.options import KafkaOptions, translated
from omdml.streams.kafka.reading.consumer import ANSWER_LIMIT_S, leave, milliseconds, offset_ranges, open_consumer
from omdml.streams.kafka.topic import administering, require
from omdml.streams.protocols.log import Partition
from omdml.streams.topic_extents import Extent, Member

# The session of a consumer that never joins, seconds.
SESSION_S = 10.0


def extents(options: KafkaOptions, topic: str, group: str) -> list[Extent]:
    """The extents of a topic fit for feedback, by partition number; raises SourceError as a worker would."""
    with administering(options, f"looking at topic {topic!r}") as admin:
        description = require(admin, options, topic)
    consumer = open_consumer(options, group, None, SESSION_S)
    places = [TopicPartition(topic, number) for number in range(description.partitions)]
    try:
        with translated(options, f"looking at topic {topic!r}"):
            begins, ends = offset_ranges(consumer, places)
            committed = [consumer.committed(tp, timeout_ms=milliseconds(ANSWER_LIMIT_S)) for tp in places]
    finally:
        leave(consumer, group)
    return [
        Extent(Partition(description.id, tp.partition), begins[tp], ends[tp], offset)
        for tp, offset in zip(places, committed, strict=True)
    ]


def members(options: KafkaOptions, topic: str, group: str) -> list[Member]:
    """Who reads a topic with a group just now; raises SourceError."""
    described = []
    with (
        administering(options, f"looking at group {group!r}") as admin,
        suppress(kafka.errors.GroupIdNotFoundError),
    ):
        described = admin.describe_groups([group])[group]["members"]
    return [
        Member(
            member["group_instance_id"] or member["client_id"],
            member["client_host"].lstrip("/"),
            _owned(member, topic),
        )
        for member in described
    ]


def _owned(member: Mapping[str, Any], topic: str) -> list[int]:
    """Numbers of the partitions that a member was given; none in the midst of a rebalance."""
    assigned = member["member_assignment"]["assigned_partitions"] if member["member_assignment"] else []
    return [number for assignment in assigned if assignment["topic"] == topic for number in assignment["partitions"]]
