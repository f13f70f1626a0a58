"""The offsets that a consumer group has committed: how they are written and read, and what an answer means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import kafka.errors
import structlog
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from omdml.streams.kafka.reading.consumer import ANSWER_LIMIT_S, milliseconds
from omdml.streams.kafka.reading.epochs import Epochs
from omdml.streams.protocols.log import CommitResult

# With these errors the member is out of its group and must not write any more.
EXPELLED = (
    kafka.errors.CommitFailedError,
    kafka.errors.FencedInstanceIdError,
    kafka.errors.IllegalGenerationError,
    kafka.errors.UnknownMemberIdError,
)

log = structlog.get_logger(__name__)


class Committed(NamedTuple):
    """What a group has committed: offsets of this topic, and of an earlier topic of the same name."""

    here: dict[TopicPartition, OffsetAndMetadata]
    elsewhere: dict[TopicPartition, OffsetAndMetadata]


class Commits:
    """Commits of one topic's reader to its group. Each one says to which topic id its offset belongs.

    Attributes
    ----------
    replaced
        Whether an answer said that another process has this member's ``group_instance_id``.
    """

    def __init__(self, topic: str, topic_id: str, group: str) -> None:
        self._topic, self._topic_id, self._group = topic, topic_id, group
        self.replaced = False

    def commit(self, consumer: Any, offsets: Mapping[TopicPartition, int], epochs: Epochs) -> CommitResult:
        """Commit the offsets. They are ``NOT_OWNED`` if this member is out of its group."""
        try:
            consumer.commit(self.written(offsets, epochs), timeout_ms=milliseconds(ANSWER_LIMIT_S))
        except EXPELLED as error:
            # The client's next polls would not report it.
            self.replaced = isinstance(error, kafka.errors.FencedInstanceIdError)
            self.log_refusal(type(error).__name__)
            return CommitResult.UNKNOWN if is_because_of_rebalance(error) else CommitResult.NOT_OWNED
        except (kafka.errors.RetriableError, kafka.errors.RebalanceInProgressError) as error:
            self.log_refusal(type(error).__name__)
            return CommitResult.UNKNOWN
        return CommitResult.RECORDED

    def written(self, offsets: Mapping[TopicPartition, int], epochs: Epochs) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit of these offsets holds: the topic's id, and the epoch under which they were read."""
        return {tp: OffsetAndMetadata(offset, self._topic_id, epochs.of(tp, offset)) for tp, offset in offsets.items()}

    def read(self, consumer: Any, wanted: Iterable[TopicPartition]) -> Committed:
        """What the group has committed of these partitions."""
        limit = milliseconds(ANSWER_LIMIT_S)
        committed = Committed({}, {})
        for tp in wanted:
            if answer := consumer.committed(tp, metadata=True, timeout_ms=limit):
                # Other clients commit without metadata.
                is_here = answer.metadata in ("", self._topic_id)
                (committed.here if is_here else committed.elsewhere)[tp] = answer
        return committed

    def log_refusal(self, reason: str) -> None:
        """Log why a commit did not succeed."""
        action = "nothing is lost: checkpoints say where to go on"
        log.warning("kafka_commit_refused", topic=self._topic, group=self._group, reason=reason, action=action)


def is_because_of_rebalance(error: Exception) -> bool:
    """Whether a commit failed only because the group is dividing its partitions: the client wraps that error."""
    return bool(error.args) and isinstance(error.args[0], kafka.errors.RebalanceInProgressError)
