"""Models at home in other partitions, whose events come by this one all the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from prometheus_client import Gauge

from omdml.errors import CorruptError
from streams.protocols import Partition, Record, Source, Store
from streams.stores.checkpoints import none_valid
from workers import growth
from workers.intake import Refusal, stray
from workers.interruptions import Moved

log = structlog.get_logger(__name__)


class Strangers:
    """Those of one partition.

    Attributes
    ----------
    waiting
        Offsets of the first event of each that waits here, until its home is this partition.
    """

    def __init__(self, partition: Partition, store: Store, source: Source, count: Gauge) -> None:
        self.waiting: dict[str, int] = {}
        self._partition, self._store, self._source, self._count = partition, store, source, count
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

    def due(self, name: str, known: int | None = None) -> list[Partition]:
        """Where the log's partitioner sent a model's events before partitions were added, and last, sends them now."""
        known = known or growth.settled(self._store, self._partition.topic_id)
        return growth.homes(name, known=known, partitions=self._source.partitions, home=self._source.home)

    def require_first(self, name: str, known: int | None = None) -> None:
        """Raise Moved for a model that is in no checkpoint, if partitions were added: events before may lie elsewhere.

        Raises StoreError.
        """
        first, *later = self.due(name, known)
        if first != self._partition in later:
            raise Moved(name, self._partition, first)

    def require_home(self, name: str, home: Partition, last: int, known: int | None = None) -> None:
        """Raise Moved where the log's partitioner sent a model's events to its ``home``, and then here.

        Not for one whose first event went astray, nor where it learned those up to the ``last`` one before it was moved
        away. Raises StoreError, CorruptError where that cannot be read.
        """
        if home == self._partition:
            return
        due = self.due(name, known)
        if self._partition in (due[due.index(home) + 1 :] if home in due else due):
            progress = self._progress(name, home)
            if progress.get("astray") != home.number and self._learned(progress) <= last:
                raise Moved(name, self._partition, home)

    def wait(self, name: str, offset: int, moved: Moved) -> None:
        """The events of a model wait from there on, until ``omdml topics rehome``; the other models go on."""
        if not self.waiting:
            log.warning("models_wait", reason=str(moved), then="the other models go on")
        if name not in self.waiting:
            self._count.inc()
        self.waiting[name] = min(offset, self.waiting.get(name, offset))

    def go_on(self) -> tuple[str, int] | None:
        """One of those that wait no longer, and where the first of all did: they are met again from there.

        None where all have to wait. Raises StoreError.
        """
        if not self.waiting:
            return None
        kept, known = self._store.positions(list(self.waiting)), growth.settled(self._store, self._partition.topic_id)
        for name, offset in self.waiting.items():
            try:
                if name in kept:
                    self.require_home(name, kept[name].home, offset, known)
                else:
                    self.require_first(name, known)
            except (Moved, CorruptError):
                continue
            return name, min(self.waiting.values())
        return None

    def forget(self) -> None:
        """None waits: all are met again."""
        self._count.dec(len(self.waiting))
        self.waiting.clear()

    def cut(self, offset: int) -> None:
        """What the log holds from there on is new."""
        self.waiting = {name: min(at, offset) for name, at in self.waiting.items()}

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
