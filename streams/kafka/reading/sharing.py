"""How the members of a consumer group divide the partitions of a topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor


class SharedOut(CooperativeStickyAssignor):  # type: ignore[misc]  # kafka-python has no types
    """Assigns about the same number of partitions to each member, and moves as few as it can.

    Partitions that are not read yet are assigned to nobody. Otherwise some members could get only those, and idle.

    Parameters
    ----------
    read
        Number of partitions that are read, counted from the first; None for all.
    """

    def __init__(self, read: Callable[[], int | None]) -> None:
        super().__init__()
        self._read = read

    def assign(self, cluster: Any, members: Sequence[Any]) -> Any:
        """Assign partitions to members; Kafka asks the leader of the group."""
        return super().assign(_ReadPartitions(cluster, self._read()), members)


class _ReadPartitions:
    """The cluster as an assignor sees it, with only those partitions of a topic that are read."""

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
