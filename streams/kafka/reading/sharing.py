"""How the members of a consumer group divide the partitions of a topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

# What the leader tells all members if it leaves partitions to nobody, because their owners must give them up first.
UNFINISHED = b"unfinished"


class SharedOut(CooperativeStickyAssignor):  # type: ignore[misc]  # kafka-python has no types
    """Assigns about the same number of partitions to each member, and moves as few as it can.

    Partitions that are not read yet are assigned to nobody. Otherwise some members could get only those, and idle.

    A partition moves in two rounds: its owner gives it up after the first, and asks for the second. If that owner is a
    static member, is killed in between, and is back before its session ends, Kafka gives it what it had kept, and
    starts no round. The partition would belong to nobody. So the assignment says if a second round must follow, and a
    process that joins asks for it.

    Parameters
    ----------
    read
        Number of partitions that are read, counted from the first; None for all.

    Attributes
    ----------
    share_again
        Asks the group for another round. Whoever makes the consumer sets it.
    """

    share_again: Callable[[], None]

    def __init__(self, read: Callable[[], int | None]) -> None:
        super().__init__()
        self._read = read

    def assign(self, cluster: Any, members: Sequence[Any]) -> Any:
        """Assign partitions to members; Kafka asks the leader of the group."""
        partitions = _ReadPartitions(cluster, self._read())
        assignments = super().assign(partitions, members)
        shared = {tp for assignment in assignments.values() for tp in assignment.partitions()}
        topics = {topic for member in members for topic in member.metadata.topics}
        if len(shared) < sum(len(partitions.partitions_for_topic(topic) or ()) for topic in topics):
            for assignment in assignments.values():
                assignment.user_data = UNFINISHED
        return assignments

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Take note of what was assigned to this member. kafka-python calls this after each round."""
        has_just_joined = self.member_assignment is None
        super().on_assignment(assignment, generation)
        if has_just_joined and assignment.user_data == UNFINISHED:
            self.share_again()


class _ReadPartitions:
    """The cluster as an assignor sees it, with only those partitions of a topic that are read."""

    def __init__(self, cluster: Any, count: int | None) -> None:
        self._cluster = cluster
        self._count = count

    def topics(self) -> Any:
        return self._cluster.topics()

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        partitions = self._cluster.partitions_for_topic(topic)
        if partitions is None or self._count is None:
            return partitions
        return {number for number in partitions if number < self._count}
