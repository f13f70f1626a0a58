"""Models at home in other partitions, whose events come by this one all the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streams.protocols import CheckpointStore, Partition, Record
from streams.stores.checkpoints import none_valid
from workers.intake import Refusal, stray


class Strangers:
    """Those of one partition."""

    def __init__(self, partition: Partition, store: CheckpointStore) -> None:
        self._partition, self._store = partition, store
        self._names: set[str] = set()
        self._known: dict[str, tuple[Partition, Mapping[str, Any]]] = {}  # homes, and how models came by them

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str, home: Partition) -> None:
        """A model lives elsewhere; raises StoreError."""
        self._progress(name, home)
        self._names.add(name)

    def discard(self, name: str) -> None:
        """It may be at home here."""
        self._names.discard(name)

    def refuse(self, name: str, records: Iterable[Record]) -> list[Refusal]:
        """The refusals of these events of it, without those that it learned before it was moved away."""
        home, progress = self._known[name]
        learned = progress.get("left", {}).get(str(self._partition), 0)
        return [stray(one, name, home) for one in records if one.offset >= learned]

    def due(self, name: str, home: Partition) -> bool:
        """Whether a model whose events the log's partitioner sends here by now was sent elsewhere as it came home.

        Not one whose first event went astray. Raises StoreError, CorruptError where that cannot be read.
        """
        return bool(self._progress(name, home).get("astray") != home.number)

    def _progress(self, name: str, home: Partition) -> Mapping[str, Any]:
        """What its checkpoint tells, read once for each of its homes."""
        if self._known.get(name, (None,))[0] != home:
            kept = self._store.peek(name)
            if kept is None and self._store.positions([name]):
                raise none_valid(name, str(self._store))
            self._known[name] = home, kept.progress if kept else {}
        return self._known[name][1]
