"""Under which leaders of its partitions a client has read: by that the cluster tells a log that was cut from itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from omdml.streams.kafka import internals


class Epochs:
    """Leaders' epochs, which kafka-python forgets with every seek and every empty answer.

    An epoch is good for the offsets that were read under it: those of the client's position, which passes what is no
    event. Beside a higher offset it would have the cluster tell of a cut that never was.
    """

    def __init__(self) -> None:
        # An epoch, and the offset up to which records were read under it.
        self._read: dict[TopicPartition, tuple[int, int]] = {}

    def know(self, tp: TopicPartition, committed: OffsetAndMetadata | None) -> None:
        """What an earlier reader committed is all that is known of a partition."""
        self._read[tp] = (committed.leader_epoch, committed.offset) if committed else (-1, 0)

    def forget(self, tp: TopicPartition) -> None:
        """What was read of a partition is not what the log holds by now."""
        self._read.pop(tp, None)

    def note(self, consumer: Any, owned: Iterable[TopicPartition]) -> None:
        """Keep the epochs of a consumer's positions, and give back those that it forgot."""
        for tp in owned:
            position = internals.position(consumer, tp)
            if position is None:
                continue
            offset, epoch = position.offset, position.leader_epoch
            self._read[tp] = max(self._read.get(tp, (-1, 0)), (epoch, offset))
            if epoch < 0:
                internals.put_position(consumer, tp, offset, self.of(tp, offset))

    def of(self, tp: TopicPartition, offset: int) -> int:
        """The epoch under which a partition was read up to this offset; -1 if nobody knows."""
        epoch, end = self._read.get(tp, (-1, 0))
        return epoch if offset <= end else -1

    def seek(self, consumer: Any, tp: TopicPartition, offset: int) -> None:
        """Have a consumer go on there, once the cluster has confirmed what lies below."""
        internals.seek(consumer, tp, offset, self.of(tp, offset))
