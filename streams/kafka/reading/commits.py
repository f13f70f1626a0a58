"""The offsets that a consumer group has committed: how they are written and read, and what an answer means."""

from __future__ import annotations

import time
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

# Workers that stop together have left within these seconds; how often to ask.
ALL_LEFT_WITHIN_S, ASK_EVERY_S = 3.0, 0.1

log = structlog.get_logger(__name__)


class CommittedOffsets(NamedTuple):
    """What a group has committed of this topic, and of an earlier topic of the same name."""

    here: dict[TopicPartition, OffsetAndMetadata]
    elsewhere: dict[TopicPartition, OffsetAndMetadata]


class Commits:
    """Commits of one topic's reader to its group. Each one says to which topic id its offset belongs.

    Attributes
    ----------
    replaced
        Whether an answer said that another process has this member's ``group_instance_id``.
    unanswered_at
        When a commit was last not answered in time.
    """

    def __init__(self, topic: str, topic_id: str, group: str) -> None:
        self._topic, self._topic_id, self._group = topic, topic_id, group
        self.replaced = False
        self.unanswered_at = float("-inf")

    def commit(self, consumer: Any, offsets: Mapping[TopicPartition, int], epochs: Epochs) -> CommitResult:
        """Commit the offsets; returns ``NOT_OWNED`` if this member is out of its group."""
        try:
            consumer.commit(self.with_metadata(offsets, epochs), timeout_ms=milliseconds(ANSWER_LIMIT_S))
        except EXPELLED as error:
            # The client's next polls would not report it.
            self.replaced = isinstance(error, kafka.errors.FencedInstanceIdError)
            self.log_refusal(type(error).__name__)
            return CommitResult.UNKNOWN if is_because_of_rebalance(error) else CommitResult.NOT_OWNED
        except (kafka.errors.RetriableError, kafka.errors.RebalanceInProgressError) as error:
            if isinstance(error, kafka.errors.KafkaTimeoutError):
                self.unanswered_at = time.monotonic()
            self.log_refusal(type(error).__name__)
            return CommitResult.UNKNOWN
        return CommitResult.RECORDED

    def commit_when_all_left(self, admin: Any, offsets: Mapping[TopicPartition, int], epochs: Epochs) -> None:
        """Commit offsets as nobody's member, which Kafka allows while the group has no member.

        Whoever stays in the group takes the partitions over, and commits these offsets or later ones. So this waits
        only for members that leave at the same time. If another member joins, commits and leaves again between the
        look and the write, this sets the commit back: whoever starts next reads again what checkpoints have. Kafka
        offers no write that fails then: a request that names the group's generation must come from a member.
        """
        until = time.monotonic() + ALL_LEFT_WITHIN_S
        try:
            while True:
                # Asked before the commits are read, because members may commit until they leave.
                is_empty = not admin.describe_groups([self._group])[self._group]["members"]
                committed = admin.list_group_offsets({self._group: list(offsets)})[self._group]
                behind = {tp: offset for tp, offset in offsets.items() if self._is_behind(committed.get(tp), offset)}
                if not behind:
                    return
                if is_empty:
                    answers = admin.alter_group_offsets(self._group, self.with_metadata(behind, epochs))
                    if set(answers.values()) == {kafka.errors.NoError}:
                        return
                if time.monotonic() >= until:
                    self.log_refusal("others are in the group, and commit for themselves")
                    return
                time.sleep(ASK_EVERY_S)
        except kafka.errors.KafkaError as error:
            self.log_refusal(type(error).__name__)

    def _is_behind(self, committed: OffsetAndMetadata | None, offset: int) -> bool:
        return committed is None or (self._is_here(committed) and committed.offset < offset)

    def _is_here(self, committed: OffsetAndMetadata) -> bool:
        """Whether a commit belongs to this topic, not to an earlier one. Other clients commit without metadata."""
        return committed.metadata in ("", self._topic_id)

    def with_metadata(
        self, offsets: Mapping[TopicPartition, int], epochs: Epochs
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit of these offsets holds: the topic's id, and the epoch under which they were read."""
        return {tp: OffsetAndMetadata(offset, self._topic_id, epochs.of(tp, offset)) for tp, offset in offsets.items()}

    def read(self, consumer: Any, wanted: Iterable[TopicPartition]) -> CommittedOffsets:
        """What the group has committed of these partitions."""
        limit = milliseconds(ANSWER_LIMIT_S)
        committed = CommittedOffsets({}, {})
        for tp in wanted:
            if answer := consumer.committed(tp, metadata=True, timeout_ms=limit):
                (committed.here if self._is_here(answer) else committed.elsewhere)[tp] = answer
        return committed

    def log_refusal(self, reason: str) -> None:
        """Log why a commit did not succeed."""
        action = "nothing is lost: checkpoints say where to go on"
        log.warning("kafka_commit_refused", topic=self._topic, group=self._group, reason=reason, action=action)


def is_because_of_rebalance(error: Exception) -> bool:
    """Whether a commit failed only because the group is dividing its partitions: the client wraps that error."""
    return bool(error.args) and isinstance(error.args[0], kafka.errors.RebalanceInProgressError)
