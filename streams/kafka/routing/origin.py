"""A topic of any partitioning as a router reads it: the group's offsets move with the router's transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kafka.errors
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from omdml.streams.kafka import internals
from omdml.streams.kafka.options import KafkaOptions, translated
from omdml.streams.kafka.reading.consumer import ANSWER_LIMIT_S, milliseconds, offset_range
from omdml.streams.kafka.reading.source import KafkaSource
from omdml.streams.kafka.routing.beginning import forgotten, is_known
from omdml.streams.protocols.log import Partition


class RoutedSource(KafkaSource):
    """A member of a consumer group whose offsets are committed by transactions, not by itself."""

    def __init__(self, options: KafkaOptions, *, topic: str, **more: Any) -> None:
        super().__init__(options, topic=topic, **more)
        self.command = f"omdml route --from {topic}"

    @property
    def member(self) -> Any:
        """Who this member is in its group: the cluster refuses a transaction of one that is out of it.

        Raises SourceError if it already knows that it is out: from a member without a name, the cluster would refuse
        nothing.
        """
        member = self._consumer.group_metadata()
        with translated(self.options, "committing offsets in a transaction"):
            if member.generation_id < 0 or not member.member_id:
                raise kafka.errors.CommitFailedError(f"this member is out of group {self.group!r}")
        return member

    def offsets_to_commit(self, offsets: Mapping[Partition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets of these partitions that a transaction commits to the group, as :meth:`commit` would."""
        places = {TopicPartition(self.topic, partition.number): offset for partition, offset in offsets.items()}
        return self._commits.with_metadata(places, self._epochs)

    def go_back(self) -> None:
        """Continue at the group's offsets, in every partition that did not stop at a gap. Raises SourceError.

        A transaction that is not over yet is waited for, up to ``ANSWER_LIMIT_S``. Raises SourceRefused if the topic is
        gone, like a poll.
        """
        self._ask_cluster()
        internals.forget_offset_answers(self._consumer)
        for tp, partition in list(self._owned.items()):
            if tp in self._gaps.stopped:
                continue
            with translated(self.options, f"looking up the offsets of group {self.group!r}"):
                committed = self._consumer.committed(tp, timeout_ms=milliseconds(ANSWER_LIMIT_S))
                if committed is None:
                    self.require_known()
                start = offset_range(self._consumer, tp)[0] if committed is None else committed
            self.seek(partition, start)

    def require_known(self) -> None:
        """Raise SourceRefused if the group has no offset in any partition: it may have routed all of them before.

        A partition without an offset was added to the topic, if others have one (streams/kafka/routing/beginning.py).
        """
        with translated(self.options, f"looking up the offsets of group {self.group!r}"):
            partitions = [TopicPartition(self.topic, n) for n in range(self.partitions)]
            if not is_known(self._watch.admin, self.group, partitions):
                raise forgotten(self.options, self.topic, self.group)

    def _take_over(self) -> None:
        internals.forget_offset_answers(self._consumer)
        super()._take_over()
