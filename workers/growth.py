"""Partitions that were added to the log, until ``omdml topics rehome`` has had its models follow their events.

The store keeps how many the log had when every model was where its events came by, as the mark of a partition that
there is not.
"""

from __future__ import annotations

from typing import Protocol

from streams.protocols import MarkStore, Partition

NOWHERE = -1  # the number of that partition
REHOME = "omdml topics rehome, once all senders know of the new ones (five minutes with Kafka's defaults)"


class Home(Protocol):
    """Where the partitioner sends a model's events by now, or sent them among so many ``partitions``."""

    def __call__(self, name: str, partitions: int | None = None, /) -> Partition:
        """Of one model."""


def settled(store: MarkStore, topic_id: str) -> int | None:
    """How many partitions the log had when every model was where its events came by; None before any worker ran."""
    at = Partition(topic_id, NOWHERE)
    return store.marks([at]).get(at)


def settle(store: MarkStore, topic_id: str, partitions: int, before: int | None = None) -> None:
    """Note that every model is where its events come by, among so many; not over what another has noted meanwhile."""
    store.move_mark(Partition(topic_id, NOWHERE), before, partitions)


def homes(name: str, *, known: int | None, partitions: int, home: Home) -> list[Partition]:
    """Where a model's events went as partitions were added to so many ``known``, oldest first; the last is today's."""
    return [*(home(name, count) for count in range(known or partitions, partitions)), home(name)]
