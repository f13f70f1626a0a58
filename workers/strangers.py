"""Models at home in other partitions, whose events come by this one all the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streams.protocols import Partition, Record, Source, Store
from streams.stores.checkpoints import none_valid
from workers import growth
from workers.intake import Refusal, stray
from workers.interruptions import Moved


class Strangers:
    """Those of one partition."""

    def __init__(self, partition: Partition, store: Store, source: Source) -> None:
        self._partition, self._store, self._source = partition, store, source
        self._names: set[str] = set()
        self._known: dict[str, tuple[Partition, Mapping[str, Any]]] = {}  # homes, and what checkpoints tell

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
        return [stray(one, name, home) for one in records if one.offset >= self._learned(progress)]

    def due(self, name: str) -> list[Partition]:
        """Where the log's partitioner sent a model's events before partitions were added, and last, sends them now."""
        known = growth.settled(self._store, self._partition.topic_id)
        return growth.homes(name, known=known, partitions=self._source.partitions, home=self._source.home)

    def require_first(self, name: str, at: int) -> None:
        """Raise Moved for a model that is in no checkpoint, if partitions were added: events before may lie elsewhere.

        Raises StoreError.
        """
        first, *later = self.due(name)
        if first != self._partition in later:
            raise Moved(name, self._partition, first, at)

    def require_home(self, name: str, home: Partition, at: int, last: int) -> None:
        """Raise Moved where the log's partitioner sent a model's events to its ``home``, and then here.

        Not for one whose first event went astray, nor where it learned those up to the ``last`` one before it was moved
        away. Raises StoreError, CorruptError where that cannot be read.
        """
        if home == self._partition:
            return
        due = self.due(name)
        if self._partition in (due[due.index(home) + 1 :] if home in due else due):
            progress = self._progress(name, home)
            if progress.get("astray") != home.number and self._learned(progress) <= last:
                raise Moved(name, self._partition, home, at)

    def _learned(self, progress: Mapping[str, Any]) -> int:
        """How far a model was taken here before it was moved away."""
        return int(progress.get("left", {}).get(str(self._partition), 0))

    def _progress(self, name: str, home: Partition) -> Mapping[str, Any]:
        """What its checkpoint tells, read once for each of its homes; empty before there is one."""
        if self._known.get(name, (None, {}))[0] != home or not self._known[name][1]:
            kept = self._store.peek(name)
            if kept is None and self._store.positions([name]):
                raise none_valid(name, str(self._store))
            self._known[name] = home, kept.progress if kept else {}
        return self._known[name][1]
