"""The leader epochs under which a client has read; with these the cluster can tell that a log was cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from omdml.streams.kafka import internals


class Epochs:
    """Leader epochs, which kafka-python forgets with every seek and every empty answer.

    An epoch is valid only for offsets that were read under it. Together with a higher offset it would make the cluster
    report a cut that never happened.
    """

    def __init__(self) -> None:
        # For each partition, an epoch and the offset up to which records were read under it.
        self._read: dict[TopicPartition, tuple[int, int]] = {}

    def begin_with(self, tp: TopicPartition, committed: OffsetAndMetadata | None) -> None:
        """Begin with the epoch that an earlier reader committed."""
        self._read[tp] = (committed.leader_epoch, committed.offset) if committed else (-1, 0)

    def forget(self, tp: TopicPartition) -> None:
        """Forget a partition: the log may no longer hold what was read of it."""
        self._read.pop(tp, None)

    def note(self, consumer: Any, owned: Iterable[TopicPartition]) -> None:
        """Remember the epochs of a consumer's positions, and restore those that it forgot."""
        for tp in owned:
            position = internals.position(consumer, tp)
            if position is None:
                continue
            offset, epoch = position.offset, position.leader_epoch
            self._read[tp] = max(self._read.get(tp, (-1, 0)), (epoch, offset))
            if epoch < 0:
                internals.put_position(consumer, tp, offset, self.of(tp, offset))

    def of(self, tp: TopicPartition, offset: int) -> int:
        """The epoch under which a partition was read up to this offset; -1 if unknown."""
        epoch, end = self._read.get(tp, (-1, 0))
        return epoch if offset <= end else -1

    def seek(self, consumer: Any, tp: TopicPartition, offset: int) -> None:
        """Have a consumer go on at an offset, after the cluster has confirmed the log below it."""
        internals.seek(consumer, tp, offset, self.of(tp, offset))
