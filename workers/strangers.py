"""Models at home in other partitions, whose events come by this one all the same."""

from __future__ import annotations

from collections.abc import Iterable

from streams.protocols import CheckpointStore, Partition, Position, Record
from workers.intake import Refusal, stray


class Strangers:
    """Those of one partition."""

    def __init__(self, partition: Partition, store: CheckpointStore) -> None:
        self._partition, self._store = partition, store
        self._homes: dict[str, Partition] = {}
        self._learned: dict[str, int] = {}  # up to which offset of this partition, while they were at home in it
        self._due: dict[str, Position] = {}  # where models are that should be here by now

    def __contains__(self, name: str) -> bool:
        return name in self._homes

    def add(self, name: str, home: Partition) -> None:
        """A model lives elsewhere; raises StoreError."""
        kept = self._store.peek(name)
        left = kept.progress.get("left", {}) if kept else {}
        self._homes[name], self._learned[name] = home, left.get(str(self._partition), 0)

    def discard(self, name: str) -> None:
        """It may be at home here."""
        self._homes.pop(name, None)

    def refuse(self, name: str, records: Iterable[Record]) -> list[Refusal]:
        """The refusals of these events of it, without those that it learned before it was moved away."""
        return [stray(one, name, self._homes[name]) for one in records if one.offset >= self._learned[name]]

    def due(self, name: str, at: Position) -> bool:
        """Whether a model whose events the log's partitioner sends here by now was sent elsewhere as it came home.

        Not one whose first event went astray. Raises StoreError.
        """
        if self._due.get(name) != at:
            kept = self._store.peek(name)
            if kept is not None and kept.progress.get("astray") == at.home.number:
                return False
            self._due[name] = at
        return True
