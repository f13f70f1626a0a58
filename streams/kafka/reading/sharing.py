"""How the members of a group share out a topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor


class SharedOut(CooperativeStickyAssignor):  # type: ignore[misc]  # kafka-python has no types
    """Gives each member about as many partitions as any other, and leaves them where they are as long as it can.

    Partitions that nobody reads go to nobody. If they counted, some members could have only those, and idle.

    Parameters
    ----------
    read
        How many partitions are read, from the first on; None: all.
    """

    def __init__(self, read: Callable[[], int | None]) -> None:
        super().__init__()
        self._read = read

    def assign(self, cluster: Any, members: Sequence[Any]) -> Any:
        """Share out; the leader of the group is asked."""
        return super().assign(_Read(cluster, self._read()), members)


class _Read:
    """The part of a cluster that is read."""

    def __init__(self, cluster: Any, count: int | None) -> None:
        self._whole = cluster
        self._count = count

    def topics(self) -> Any:
        return self._whole.topics()

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        partitions = self._whole.partitions_for_topic(topic)
        if partitions is None or self._count is None:
            return partitions
        return {number for number in partitions if number < self._count}
