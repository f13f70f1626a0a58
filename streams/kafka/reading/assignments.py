"""Which partitions the group has assigned to this member, as the client's thread reports them.

kafka-python reports rebalances on its own I/O thread, and only while the polling thread waits inside the client's
``poll`` or ``close``. The two never run at the same time, so nothing here is locked.

New partitions are only noted and paused on the I/O thread. The polling thread then asks the listener where to start,
because there it may take its time (heartbeats go on) and can read the committed offsets. Revoked partitions are
reported on the I/O thread, because the client gives them up as soon as that call returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from kafka import TopicPartition

from omdml.streams.protocols.log import Partition


class Assignments:
    """The partitions of this member. The client's I/O thread calls :meth:`note_assigned` and :meth:`give_up`.

    Attributes
    ----------
    pending
        Partitions that were assigned. The listener has not been asked yet where to start them.
    owned
        Partitions that are being read.
    """

    def __init__(self) -> None:
        self.pending: set[TopicPartition] = set()
        self.owned: dict[TopicPartition, Partition] = {}
        self._listener_error: Exception | None = None

    def note_assigned(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        """Note new partitions and pause them, until the polling thread has asked where to start."""
        for tp in partitions:
            # Without any position the client would raise before we can ask for one.
            consumer.seek(tp, 0)
        consumer.pause(*partitions)
        self.pending |= set(partitions)

    def give_up(self, lost: Iterable[TopicPartition], tell: Callable[[list[Partition]], None]) -> None:
        """Give up partitions, and tell the listener which of them were being read."""
        self.pending -= set(lost)
        given_up = [self.owned.pop(tp) for tp in sorted(lost) if tp in self.owned]
        if given_up:
            try:
                tell(given_up)
            except Exception as error:
                # Inside the client's loop the error would be lost, or would end the loop.
                self._listener_error = error

    def raise_listener_error(self) -> None:
        """Raise, once, what the listener raised on the client's thread."""
        error, self._listener_error = self._listener_error, None
        if error:
            raise error

    def place(self, topic: str, partition: Partition) -> TopicPartition | None:
        """The client's name of a partition that is being read; None if this member does not own it."""
        tp = TopicPartition(topic, partition.number)
        return tp if self.owned.get(tp) == partition else None
