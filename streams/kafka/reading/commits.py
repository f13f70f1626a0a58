"""Committing offsets to a consumer group, and what an answer means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kafka.errors
import structlog
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from omdml.streams.kafka.reading.consumer import ANSWER_LIMIT_S, milliseconds

# With these errors the member is out of its group and must not write any more.
EXPELLED = (
    kafka.errors.CommitFailedError,
    kafka.errors.FencedInstanceIdError,
    kafka.errors.IllegalGenerationError,
    kafka.errors.UnknownMemberIdError,
)

log = structlog.get_logger(__name__)


class Commits:
    """Commits of one topic's reader to its group.

    Attributes
    ----------
    replaced
        Whether an answer said that another process has this member's ``group_instance_id``.
    """

    def __init__(self, topic: str, group: str) -> None:
        self._topic, self._group = topic, group
        self.replaced = False

    def commit(self, consumer: Any, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool | None:
        """True if the group has the offsets, False if this member is out of it, None if the cluster cannot say now."""
        try:
            consumer.commit(dict(offsets), timeout_ms=milliseconds(ANSWER_LIMIT_S))
        except EXPELLED as error:
            # The client's next polls would not report it.
            self.replaced = isinstance(error, kafka.errors.FencedInstanceIdError)
            rebalancing = isinstance(error.args[:1] and error.args[0], kafka.errors.RebalanceInProgressError)
            return self.refused(type(error).__name__, None if rebalancing else False)
        except (kafka.errors.RetriableError, kafka.errors.RebalanceInProgressError) as error:
            return self.refused(type(error).__name__, None)
        return True

    def refused(self, reason: str, answer: bool | None) -> bool | None:
        """Log why a commit did not succeed; returns ``answer``."""
        action = "nothing is lost: checkpoints say where to go on"
        log.warning("kafka_commit_refused", topic=self._topic, group=self._group, reason=reason, action=action)
        return answer
