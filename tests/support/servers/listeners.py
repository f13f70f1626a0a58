"""Listeners of a source: one that records its calls, and one that does nothing."""

from collections.abc import Iterable, Mapping

from omdml.streams.protocols.log import Partition


class Recorder:
    """Starts at the group's committed position, or at ``start``."""

    def __init__(self, start: int | None = None) -> None:
        self.start = start
        self.committed: dict[Partition, int | None] = {}
        self.events: list[tuple[str, tuple[Partition, ...]]] = []

    def assigned(self, committed: Mapping[Partition, int | None]) -> Mapping[Partition, int | None]:
        self.committed.update(committed)
        self.events.append(("assigned", tuple(committed)))
        return committed if self.start is None else dict.fromkeys(committed, self.start)

    def revoked(self, partitions: Iterable[Partition]) -> None:
        self.events.append(("revoked", tuple(partitions)))

    def lost(self, partitions: Iterable[Partition]) -> None:
        self.events.append(("lost", tuple(partitions)))


class Bystander:
    """A member of the group that owns partitions and does nothing with them."""

    def assigned(self, committed: Mapping[Partition, int | None]) -> Mapping[Partition, int | None]:
        return {}

    def revoked(self, partitions: Iterable[Partition]) -> None:
        pass

    lost = revoked
