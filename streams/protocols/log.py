"""The contract of logs: records, the source that reads them, the sink that takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec


class Partition(NamedTuple):
    """An ordered part of a log. ``topic_id`` is the log's identity, not its name: a log created again has another."""

    topic_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.number}"


class Record(msgspec.Struct, frozen=True, gc=False):
    """One event as it lies in the log.

    ``offset`` orders the records of a partition; offsets may leave gaps. ``timestamp`` is seconds since the epoch, or
    None if the log knows none. ``headers`` holds (name, bytes) pairs.
    """

    partition: Partition
    offset: int
    value: bytes
    key: bytes | None = None
    timestamp: float | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class CommitResult(Enum):
    """Whether the log recorded the offsets of a commit, and if not, why."""

    RECORDED = "recorded"
    # This member no longer owns a partition, and must not write any more.
    NOT_OWNED = "not owned"
    # The log is out of reach for now, or busy with a rebalance.
    UNKNOWN = "unknown"


NOTHING: Mapping[Partition, int] = {}


class Listener(Protocol):
    """Called by a source, inside ``poll`` or ``close``, with the partitions that it was given or lost."""

    def assigned(self, committed: Mapping[Partition, int | None]) -> Mapping[Partition, int | None]:
        """Take over these partitions (with their committed offsets); answer where to start (None: the beginning).

        A partition that the answer leaves out is not read.
        """

    def revoked(self, partitions: Iterable[Partition]) -> None:
        """Save what can be saved within a third of the session timeout, then give up the partitions."""

    def lost(self, partitions: Iterable[Partition]) -> None:
        """Give up the partitions without saving, because another member may already own them."""


class Source(Protocol):
    """A feedback log that is read in order, from positions the caller keeps. One thread uses it."""

    @property
    def topic_id(self) -> str:
        """The log's identity, not its name: a log that was created again under the same name has another one."""

    @property
    def partitions(self) -> int:
        """How many partitions the log has, as of a second ago."""

    @property
    def partitioner(self) -> str:
        """How senders choose a partition by key: a name in :data:`omdml.streams.partitioners.PARTITIONERS`."""

    def subscribe(self, listener: Listener, read: int | None = None) -> None:
        """Ask for partitions; the listener hears of them inside a later ``poll``.

        The group shares out the first ``read`` partitions of the log, or all of them; the others go to nobody.
        """

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """Records in order within each partition, at most ``max_records``; waits up to ``timeout_s`` for the first.

        Raises
        ------
        GapError
            The log no longer holds the events at the position, or is not the log that the position belongs to.
        SourceError
            The log cannot be used (a folder without access, a compacted topic). A log that is out of reach for a
            while is waited for, in silence but for one log line: ``poll`` then answers an empty list.
        """

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue this partition at its first record at or after ``offset``."""

    def commit(self, offsets: Mapping[Partition, int]) -> CommitResult:
        """Record for the group, in the log, the offset of each partition's first event that is in no checkpoint."""

    def progress(self) -> Mapping[Partition, tuple[int, int]]:
        """The offset of each owned partition's next record, and the log's end, if they are known."""

    @property
    def away(self) -> bool:
        """Whether the log is out of reach, as far as the last ``poll`` could tell."""

    def backlog(self, position: int, end: int) -> int:
        """How much of a partition lies between two of its offsets: in offsets, or in bytes if the log counts bytes."""

    def begin(self, partition: Partition) -> int:
        """The first offset that the log still holds of a partition; raises SourceError."""

    def end(self, partition: Partition) -> int:
        """The offset after the last record of a partition, as of now; raises SourceError."""

    def close(self, uncommitted: Mapping[Partition, int] = NOTHING) -> None:
        """Leave the group at once, so that another member can take over.

        If several members leave together, a rebalance may refuse the commits of one of them, and nobody stays who could
        make them. So ``uncommitted``, what this member saved and could not commit, is committed once the group has no
        member any more. This moves no commit back.
        """


Headers = Sequence[tuple[str, bytes]]
# What is sent of an event: its bytes, its key, and headers if it has any.
Outgoing = tuple[bytes, str | None] | tuple[bytes, str | None, Headers]


class Sink(Protocol):
    """A log that events are sent to: feedback or dead letters."""

    def send(self, value: bytes, key: str | None = None, headers: Headers = ()) -> None:
        """Queue one event. ``key`` (the model's name) keeps a model's events in one partition, in order.

        Raises SourceError if the sink can take no more for now.
        """

    def send_many(self, events: Sequence[Outgoing]) -> None:
        """Queue events in order, each with what :meth:`send` takes.

        After an error it is unknown how many of them were queued.
        """

    def flush(self, timeout_s: float = 30.0) -> None:
        """Return when everything sent is durable and acknowledged; raise SourceError when it could not be."""

    def close(self) -> None:
        """Wait until everything sent is durable, as :meth:`flush` does, then release all resources."""
