"""The errors of a Kafka source that stops because going on would lose events silently."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka import TopicPartition

from omdml.errors import GapError
from omdml.streams.kafka.reading.batches import Unreadable
from omdml.streams.protocols.log import Partition

WORKER = "omdml worker"


class Gaps:
    """Partitions of a source that stopped; each is reported once.

    Attributes
    ----------
    stopped
        The partitions that wait for a seek.
    """

    def __init__(self) -> None:
        self.stopped: set[TopicPartition] = set()
        self._unreported: dict[TopicPartition, Callable[[], GapError]] = {}
        # The offset of the last batch that could not be read.
        self._failed_at: dict[TopicPartition, int | None] = {}

    def add(self, tp: TopicPartition, describe: Callable[[], GapError]) -> None:
        """Note that a partition stopped.

        The reason is worked out when it is reported, which may fail while the cluster is away.
        """
        self.stopped.add(tp)
        self._unreported[tp] = describe

    def is_damaged(self, tp: TopicPartition, position: int | None) -> bool:
        """Whether the batch at this position, which could not be read, counts as damaged: it failed twice.

        The network may have damaged it the first time.
        """
        before, self._failed_at[tp] = self._failed_at.get(tp), position
        return position is not None and position == before

    def raise_next(self) -> None:
        """Raise the next error that was not reported yet, if there is one."""
        if self._unreported:
            tp = min(self._unreported)
            error = self._unreported[tp]()
            del self._unreported[tp]
            raise error

    def accept(self, tp: TopicPartition) -> bool:
        """Accept the gap of a partition; False if there is none, or if it was not reported yet."""
        reported = tp in self.stopped and tp not in self._unreported
        if reported:
            self.stopped.discard(tp)
        return reported

    def forget(self, gone: Iterable[TopicPartition]) -> None:
        """Forget partitions that other members own now."""
        for tp in gone:
            self.stopped.discard(tp)
            self._unreported.pop(tp, None)


def out_of_range(
    topic: str, partition: Partition, position: int | None, available: tuple[int, int], command: str = WORKER
) -> GapError:
    """The error for a position before the log's first offset or past its end; ``command`` reads the topic."""
    cut = position is not None and position > available[1]
    return GapError(
        f"topic {topic!r} partition {partition.number} does not hold offset {position}: it has offsets {available[0]} "
        f"up to {available[1]}. Retention deleted events before they were read, or the log was truncated. If a broker "
        f"that is down has them, start it. Otherwise `{command} --accept-gap` goes on without them",
        partition=partition,
        position=position,
        available=available,
        resume=available[1] if cut else available[0],
        cut=cut,
    )


def cut(
    topic: str,
    partition: Partition,
    position: int | None,
    available: tuple[int, int],
    cut_at: int | None,
    command: str = WORKER,
) -> GapError:
    """The error for a log that was cut below the position and written on, by a leader that lacked records.

    Parameters
    ----------
    cut_at
        Offset at which it was cut, as far as the cluster knows.
    """
    end = available[1]
    if cut_at is not None:
        resume, where = cut_at, f"at offset {cut_at}"
    else:
        resume = end if position is None else min(position, end)
        where = f"somewhere below offset {resume}"
    return GapError(
        f"topic {topic!r} partition {partition.number} was cut {where}: its new leader lacks the newest events, "
        f"and other events took offsets that were read already. `{command} --accept-gap` goes on at {resume}",
        partition=partition,
        position=position,
        available=available,
        resume=resume,
        cut=True,
    )


def unreadable(
    topic: str,
    partition: Partition,
    position: int | None,
    available: tuple[int, int],
    error: Unreadable,
    command: str = WORKER,
) -> GapError:
    """The error for a damaged batch at the position, in the broker's files or on the network."""
    resume = error.next_offset if position is None else min(max(error.next_offset, position + 1), available[1])
    return GapError(
        f"topic {topic!r} partition {partition.number} cannot be read at offset {position}: the batch that holds it is "
        f"damaged ({error.why}). Restore the broker's files from a replica, or go on at {resume} with "
        f"`{command} --accept-gap`",
        partition=partition,
        position=position,
        available=available,
        resume=resume,
    )


def created_again(
    topic: str,
    partition: Partition,
    position: int | None,
    available: tuple[int, int],
    *,
    before: str,
    now: str,
    command: str = WORKER,
) -> GapError:
    """The error for a topic that was deleted and created again: the position belongs to another topic id."""
    old = "" if position is None else f"Offset {position} of partition {partition.number} belongs to the old topic. "
    return GapError(
        f"topic {topic!r} was deleted and created again: its id is {now}, it was {before}. {old}"
        f"Partition {partition.number} of the new one has offsets {available[0]} up to {available[1]}. Restart with "
        f"`{command} --accept-gap` to read the new one from its beginning. If the store lost its content too, run "
        "`omdml topics rewind` and start again",
        partition=partition,
        available=available,
        resume=available[0],
    )
