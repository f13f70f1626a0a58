"""A feedback log in memory, with partitions, groups and rebalances like Kafka's: for tests and benchmarks."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence

from omdml.errors import GapError, SourceError
from omdml.streams.partitioners import by_crc32
from omdml.streams.protocols.log import NOTHING, CommitResult, Listener, Outgoing, Partition, Record


class MemoryLog:
    """Records in lists. Any number of threads may send; each source is used by one.

    Parameters
    ----------
    partitions
        How many there are. A key always goes to the same one; records without a key go to each in turn.
    topic_id
        The log's identity; a new one is made if none is given.
    """

    def __init__(self, partitions: int = 1, topic_id: str | None = None) -> None:
        if partitions < 1:
            raise SourceError(f"a memory log has at least 1 partition, got {partitions}")
        self.topic_id = topic_id or uuid.uuid4().hex
        self.partitions = [Partition(self.topic_id, number) for number in range(partitions)]
        self.changed = threading.Condition()
        self._records: dict[Partition, list[Record]] = {partition: [] for partition in self.partitions}
        self._starts = dict.fromkeys(self.partitions, 0)
        self._groups: dict[str, Group] = {}
        self._turn = 0

    def send(
        self,
        value: bytes,
        key: str | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        timestamp: float | None = None,
    ) -> Record:
        """Append one event; ``timestamp`` (seconds since the epoch) is now if none is given."""
        with self.changed:
            partition = self._next_turn() if key is None else self.home(key)
            record = Record(
                partition,
                self.end(partition),
                value,
                None if key is None else key.encode(),
                time.time() if timestamp is None else timestamp,
                tuple(headers),
            )
            self._records[partition].append(record)
            self.changed.notify_all()
            return record

    def read(self, partition: Partition, offset: int, most: int) -> list[Record]:
        """At most this many records from ``offset`` on; raises GapError if the log does not hold that offset."""
        with self.changed:
            start, end = self.start(partition), self.end(partition)
            if not start <= offset <= end:
                raise GapError(
                    f"memory log {partition}: the position is {offset}, but it holds {start} to {end}: go on at its "
                    "beginning if the loss is accepted (--accept-gap)"
                )
            return self._records[partition][offset - start : offset - start + most]

    def start(self, partition: Partition) -> int:
        """The offset of the oldest record that is kept."""
        return self._starts[partition]

    def end(self, partition: Partition) -> int:
        """The offset after the last record."""
        return self._starts[partition] + len(self._records[partition])

    def trim(self, partition: Partition, offset: int) -> None:
        """Forget the records below ``offset``, as retention does."""
        with self.changed:
            offset = min(max(offset, self.start(partition)), self.end(partition))
            del self._records[partition][: offset - self.start(partition)]
            self._starts[partition] = offset
            self.changed.notify_all()

    def group(self, name: str) -> Group:
        """The members and offsets of a group."""
        with self.changed:
            return self._groups.setdefault(name, Group(self.partitions))

    def expel(self, source: MemorySource) -> None:
        """Give a source's partitions to others, as Kafka does with a member whose session timed out."""
        with self.changed:
            source.group.leave(source)
            self.changed.notify_all()

    def home(self, key: str) -> Partition:
        """The partition that records of this key go to."""
        return self.partitions[by_crc32(key.encode(), len(self.partitions))]

    def add_partitions(self, count: int) -> None:
        """Add this many partitions."""
        with self.changed:
            for number in range(len(self.partitions), len(self.partitions) + count):
                added = Partition(self.topic_id, number)
                self._records[added], self._starts[added] = [], 0
                self.partitions.append(added)
            self.changed.notify_all()

    def _next_turn(self) -> Partition:
        self._turn += 1
        return self.partitions[self._turn % len(self.partitions)]


class Group:
    """Who reads which partitions, and how far. Used under the log's condition."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self.partitions = partitions
        self.committed: dict[Partition, int] = {}
        self.owners: dict[Partition, MemorySource] = {}
        self.members: list[MemorySource] = []

    def share(self, member: MemorySource) -> set[Partition]:
        """What a member should own: every n-th partition that is read, by its place among the n members."""
        if member not in self.members:
            return set()
        return set(self.partitions[: member.read][self.members.index(member) :: len(self.members)])

    def owned(self, member: MemorySource) -> set[Partition]:
        """The partitions that a member owns."""
        return {partition for partition, owner in self.owners.items() if owner is member}

    def free(self, member: MemorySource) -> set[Partition]:
        """The partitions of a member's share that have no owner."""
        return self.share(member) - self.owners.keys()

    def release(self, partitions: Iterable[Partition]) -> None:
        """Make partitions free for other members."""
        for partition in partitions:
            self.owners.pop(partition, None)

    def leave(self, member: MemorySource) -> None:
        """Remove a member, and free its partitions."""
        self.release(self.owned(member))
        if member in self.members:
            self.members.remove(member)


class MemorySource:
    """A member of a group that reads a :class:`MemoryLog`; partitions move between members as they poll."""

    partitioner = "crc32"

    def __init__(self, log: MemoryLog, group: str = "omdml") -> None:
        self.log = log
        self.topic_id = log.topic_id
        self.group = log.group(group)
        # How many partitions the group reads; None: all.
        self.read: int | None = None
        self._listener: Listener | None = None
        self._positions: dict[Partition, int] = {}
        # Partitions that this member owns, but that its listener did not want to read yet.
        self._unread: set[Partition] = set()
        self._turn = 0

    def subscribe(self, listener: Listener, read: int | None = None) -> None:
        """Join the group with the next poll."""
        self._listener, self.read = listener, read

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """Records in order within each partition; partitions take turns."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._rebalance()
            records = self._take(max_records)
            if records or max_records < 1:
                return records
            with self.log.changed:
                if not self.log.changed.wait_for(self._has_news, deadline - time.monotonic()):
                    return []

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue reading a partition at this offset."""
        if partition not in self._positions:
            raise SourceError(f"cannot seek in partition {partition}: this source owns {sorted(self._positions)}")
        self._positions[partition] = offset

    def commit(self, offsets: Mapping[Partition, int]) -> CommitResult:
        """Keep the offsets, if this source owns all of these partitions."""
        with self.log.changed:
            if not offsets.keys() <= self.group.owned(self):
                return CommitResult.NOT_OWNED
            self.group.committed.update(offsets)
            return CommitResult.RECORDED

    @property
    def partitions(self) -> int:
        """How many partitions the log has."""
        return len(self.log.partitions)

    def progress(self) -> Mapping[Partition, tuple[int, int]]:
        """Position and end of each owned partition."""
        return {partition: (position, self.log.end(partition)) for partition, position in self._positions.items()}

    @property
    def away(self) -> bool:
        """Always False: memory cannot be out of reach."""
        return False

    def backlog(self, position: int, end: int) -> int:
        """How many offsets lie between a position and an end."""
        return end - position

    def begin(self, partition: Partition) -> int:
        """The offset of the oldest record that is kept."""
        return self.log.start(partition)

    def end(self, partition: Partition) -> int:
        """The offset after the last record."""
        return self.log.end(partition)

    def close(self, uncommitted: Mapping[Partition, int] = NOTHING) -> None:
        """Give up all partitions, and leave the group; its last member commits what could not be committed."""
        try:
            if self._listener is not None and self._positions:
                self._listener.revoked(list(self._positions))
        finally:
            self._listener = None
            self._positions.clear()
            self._unread.clear()
            self.log.expel(self)
        with self.log.changed:
            if not self.group.members:
                for partition, offset in uncommitted.items():
                    self.group.committed[partition] = max(offset, self.group.committed.get(partition, offset))

    def _rebalance(self) -> None:
        if self._listener is None:
            raise SourceError("memory log: polled before subscribe(listener), or after close()")
        # A partition changes hands in two steps, as in Kafka: its owner gives it up when it polls, after it has saved
        # what it learned. Only then can another member take it.
        with self.log.changed:
            if self not in self.group.members:
                self.group.members.append(self)
                self.log.changed.notify_all()
            self._unread &= self.group.owned(self) & self.group.share(self)
            self.group.release(self.group.owned(self) - self.group.share(self) - self._positions.keys())
            lost = self._positions.keys() - self.group.owned(self)
            surplus = self._positions.keys() - lost - self.group.share(self)
        if lost:
            self._forget(lost)
            self._listener.lost(sorted(lost))
        if surplus:
            # As with Kafka, a listener that is told of a revoked partition can no longer seek there.
            self._forget(surplus)
            self._listener.revoked(sorted(surplus))
            with self.log.changed:
                self.group.release(surplus)
                self.log.changed.notify_all()
        self._own(self._listener)

    def _own(self, listener: Listener) -> None:
        with self.log.changed:
            self.group.owners.update(dict.fromkeys(self.group.free(self), self))
            added = sorted(self.group.owned(self) - self._positions.keys() - self._unread)
            committed = {partition: self.group.committed.get(partition) for partition in added}
        if added:
            answer = listener.assigned(committed)
            self._unread |= set(added) - answer.keys()
            for partition in answer:
                start = answer[partition]
                self._positions[partition] = self.log.start(partition) if start is None else start

    def _forget(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            del self._positions[partition]

    def _take(self, most: int) -> list[Record]:
        order = sorted(self._positions)
        self._turn += 1
        records: list[Record] = []
        for index in range(len(order)):
            partition = order[(self._turn + index) % len(order)]
            part = self.log.read(partition, self._positions[partition], most - len(records))
            self._positions[partition] += len(part)
            records += part
        return records

    def _has_news(self) -> bool:
        """Whether another round of poll would do anything; asked under the log's condition."""
        held, share = self._positions.keys() | self._unread, self.group.share(self)
        if held != self.group.owned(self) or not held <= share or self.group.free(self):
            return True
        return any(self.log.end(partition) != position for partition, position in self._positions.items())


class MemorySink:
    """Sends into a :class:`MemoryLog`; what was sent is there at once."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log

    def send(self, value: bytes, key: str | None = None, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        self.log.send(value, key, headers)

    def send_many(self, events: Sequence[Outgoing]) -> None:
        for event in events:
            self.send(*event)

    def flush(self, timeout_s: float = 30.0) -> None:
        """Do nothing: events are in the log as soon as they are sent."""

    def close(self) -> None:
        """Do nothing: a sink in memory holds no resources."""
