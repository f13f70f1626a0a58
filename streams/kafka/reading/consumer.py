"""The kafka-python consumer as a source needs it: its settings, the conversion of records, how it leaves its group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import kafka.errors
import structlog
from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.admin import MemberToRemove

from omdml.streams.kafka import internals
from omdml.streams.kafka.options import KafkaOptions, connecting
from omdml.streams.kafka.reading.sharing import SharedOut
from omdml.streams.protocols.log import Partition, Record

ANSWER_LIMIT_S = 3.0
# Most unread bytes that may lie in memory.
FETCH_BYTES = 16 << 20
FETCH_PARTITION_BYTES = 1 << 20
# A new client would fail with these errors, too.
REFUSALS = (
    kafka.errors.AuthorizationError,
    kafka.errors.InvalidSessionTimeoutError,
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedCodecError,
)
PartitionsCallback = Callable[[Collection[TopicPartition]], None]
Offsets = dict[TopicPartition, int]

NOT_LEFT = "its partitions go to others after log.session_timeout_s"

log = structlog.get_logger(__name__)


def open_consumer(
    options: KafkaOptions,
    group: str,
    group_instance_id: str | None,
    session_timeout_s: float,
    read: Callable[[], int | None] = lambda: None,
) -> Any:
    """A consumer that never commits, resets or skips by itself; raises SourceError when the cluster is out of reach.

    ``read`` returns the number of partitions that the group divides among its members; None for all.
    """
    assignor = SharedOut(read)
    with connecting(options):
        consumer = internals.make_client(
            KafkaConsumer,
            **options.client(),
            group_id=group,
            group_instance_id=group_instance_id,
            session_timeout_ms=int(session_timeout_s * 1000),
            # A tenth of the session, because rebalances advance by heartbeats.
            heartbeat_interval_ms=int(session_timeout_s * 100),
            partition_assignment_strategy=[assignor],
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            # If this were longer, a fetch that leaves out a buffered partition would delay its new records.
            fetch_max_wait_ms=10,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=FETCH_PARTITION_BYTES,
            metrics_enabled=False,
        )
    internals.wait_in_polls(consumer)
    internals.wait_once(consumer)
    assignor.share_again = partial(internals.share_again, consumer)
    return consumer


def milliseconds(seconds: float) -> int:
    """Seconds as whole milliseconds, which kafka-python expects."""
    return int(seconds * 1000)


class Rebalance:
    """The listener that kafka-python calls on its own thread when partitions are assigned, revoked or lost."""

    def __init__(self, given: PartitionsCallback, revoked: PartitionsCallback, lost: PartitionsCallback) -> None:
        self.on_partitions_assigned = given
        self.on_partitions_revoked = revoked
        self.on_partitions_lost = lost


# An untyped class cannot be inherited from under strict checking.
ConsumerRebalanceListener.register(Rebalance)


def offset_ranges(consumer: Any, places: Iterable[TopicPartition]) -> tuple[Offsets, Offsets]:
    """For each partition the first offset that the log still holds, and the offset after its last record."""
    partitions, limit = list(places), milliseconds(ANSWER_LIMIT_S)
    return consumer.beginning_offsets(partitions, timeout_ms=limit), consumer.end_offsets(partitions, timeout_ms=limit)


def offset_range(consumer: Any, tp: TopicPartition) -> tuple[int, int]:
    """The first offset that the log still holds of a partition, and the offset after its last record."""
    begins, ends = offset_ranges(consumer, [tp])
    return begins[tp], ends[tp]


def position_of(consumer: Any, tp: TopicPartition, limit_s: float) -> int | None:
    """The offset that is read next; None if it cannot be found in time."""
    # After a change of leader the client asks the broker, which may be away.
    with suppress(kafka.errors.KafkaError):
        position: int | None = consumer.position(tp, timeout_ms=milliseconds(limit_s))
        return position
    return None


def as_records(partition: Partition, batch: Iterable[Any]) -> list[Record]:
    """Convert the consumer's answer to our records. This is the hot path of a backlog."""
    return [
        Record(
            partition,
            message.offset,
            message.value or b"",
            message.key,
            message.timestamp / 1000 if message.timestamp >= 0 else None,
            tuple((name, value or b"") for name, value in message.headers) if message.headers else (),
        )
        for message in batch
    ]


def leave(consumer: Any, group: str) -> None:
    """Close the consumer. A dynamic member leaves its group by that, at once if the cluster can be reached."""
    try:
        consumer.close(autocommit=False, timeout_ms=milliseconds(ANSWER_LIMIT_S))
    except Exception as error:
        # The consumer may be closed because it is broken.
        log.warning("kafka_leave_failed", group=group, reason=type(error).__name__, action=NOT_LEFT)


def remove_static_member(admin: Any, group: str, group_instance_id: str, member_id: str) -> None:
    """Remove a static member at once, so that the others need not wait for the session timeout.

    The member id makes sure that a successor of the same name stays in the group.
    """
    member = MemberToRemove(member_id=member_id, group_instance_id=group_instance_id)
    try:
        admin.remove_group_members(group, [member])
    except kafka.errors.KafkaError as error:
        log.warning("kafka_leave_failed", group=group, reason=type(error).__name__, action=NOT_LEFT)
