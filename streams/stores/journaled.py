"""A SnapshotStore over journals: what the folder store and stores over a database have in common."""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from omdml.errors import CorruptError, StoreError, StoreLost
from omdml.snapshot import Snapshot
from omdml.streams.placement import Assumed, Placement
from omdml.streams.protocols.store import NOBODY, Pointer, Why, Written
from omdml.streams.stores import journal
from omdml.streams.stores.checkpoints import placed_elsewhere, store_lost
from omdml.streams.stores.journal import PUBLICATIONS, Journal, SnapshotKey, destination, superfluous
from omdml.streams.stores.many import one_by_one
from omdml.streams.stores.retention import SPARE, RetentionOf
from omdml.streams.stores.snapshots import bytes_gone, not_kept, read_snapshot

# Attempts to append. Each that fails is one that somebody else won.
ATTEMPTS = 100


def mend(book: Journal, key: SnapshotKey, data: bytes) -> None:
    """Write the bytes of a snapshot that was published before again, if they are damaged or gone."""
    with suppress(CorruptError):
        if book.read(key) == data:
            return
    book.write(key, data)


class JournaledSnapshots(ABC):
    """Publishes, serves and moves by one journal a model.

    Parameters
    ----------
    retention
        Which snapshots stay when new ones come.
    """

    def __init__(self, retention: RetentionOf) -> None:
        self.retention = retention

    @property
    @abstractmethod
    def store_id(self) -> str:
        """The store's random id: another one after it was emptied."""

    @abstractmethod
    def owner(self, model: str) -> str | None:
        """The epoch of the model's owner; None if the model was never claimed."""

    @abstractmethod
    def placement(self, topic_id: str) -> Placement | None:
        """The placement of a log's models; None before a worker recorded it."""

    @abstractmethod
    def journal(self, model: str) -> Journal:
        """The model's journal; empty if nothing was published."""

    @abstractmethod
    def drop_earlier_checkpoints(self, model: str) -> None:
        """Drop all checkpoints of the model but the newest."""

    def publish(self, snapshot: Snapshot, epoch: str, withheld: str = "", assumed: Assumed | None = None) -> Written:
        """Keep the snapshot, and make it live unless the pointer is pinned or a reason to withhold it is given.

        1. Write its bytes. A crash after this leaves a file that no entry names; it goes with the next thinning out.
        2. Append its entry, which makes it live. A crash after this leaves a few snapshots more than need be.
        3. Now and then, drop what need not stay.
        """
        model, (data, digest) = snapshot.model, snapshot.packed()
        book, key = self.journal(model), (snapshot.version, digest)
        for _ in range(ATTEMPTS):
            if self.required_owner(model) != epoch:
                return Written.FENCED
            if assumed and placed_elsewhere(assumed.placement, self.placement(assumed.topic_id)):
                return Written.MOVED
            number, last = book.last()
            live, now = (last.live if last else None), time.time()
            newest = book.newest() if last else None
            entry = journal.publication(
                live, newest, key, epoch=epoch, at=now, withheld=withheld, store_id=self.store_id
            )
            if isinstance(entry, Written):
                if entry is Written.ALREADY:
                    mend(book, key, data)
                return entry
            book.write(key, data)
            if book.append(number + 1, entry, epoch):
                if (number + 1) % SPARE == 0:
                    self._thin_out(model, book)
                return Written.STORED
        raise self._too_busy(model)

    def publish_all(
        self, publications: Sequence[tuple[Snapshot, str, str]], assumed: Assumed | None = None
    ) -> list[Written | CorruptError | StoreLost]:
        """Keep each of these, and make it live."""
        return one_by_one(self.publish, ((*publication, assumed) for publication in publications))

    def current_all(self, models: Sequence[str]) -> list[Pointer | None]:
        """The live pointers of these models; None for a model without one."""
        return [self.current(model) for model in models]

    def current(self, model: str) -> Pointer | None:
        """The live pointer of a model; None if nothing was published."""
        _, last = self.journal(model).last()
        return last.live if last else None

    def load(self, model: str, version: int | None = None) -> tuple[Pointer, Snapshot] | None:
        """The live snapshot, or the kept one of ``version`` with the pointer as its publication set it."""
        book, before = self.journal(model), None
        while True:
            pointer = self.current(model)
            if version is not None and (pointer is None or pointer.version != version):
                target = destination((entry for _, entry in book.entries()), version, pointer)
                pointer = target.pointer(self.store_id) if target else None
            if pointer is None:
                return None
            data = book.read(pointer.snapshot)
            if data is not None:
                return pointer, read_snapshot(model, pointer, data, str(self))
            if pointer == before:
                raise bytes_gone(model, pointer, str(self))
            # It may have been dropped since we looked, so we look again.
            before = pointer

    def history(self, model: str) -> list[dict[str, Any]]:
        """Publications whose snapshots are kept, and moves of the pointer, oldest first."""
        return [entry.as_history() for _, entry in self.journal(model).entries()]

    def note(self, model: str, epoch: str, what: str, reason: str) -> Written:
        """Add a remark about the live snapshot to the history."""
        book = self.journal(model)
        for _ in range(ATTEMPTS):
            if self.required_owner(model) != epoch:
                return Written.FENCED
            number, last = book.last()
            if last is None or last.live is None:
                return Written.ALREADY
            if book.append(number + 1, journal.note(last.live, what, reason, time.time()), epoch):
                return Written.STORED
        raise self._too_busy(model)

    def move(self, model: str, version: int | None, pin: bool, why: Why = NOBODY) -> Pointer:
        """Point at the newest kept snapshot (of ``version``), and pin or unpin."""
        book = self.journal(model)
        for _ in range(ATTEMPTS):
            number, last = book.last()
            entries = [entry for _, entry in book.entries()]
            live = last.live if last else None
            target = destination(entries, version, live)
            if target is None or book.read(target.snapshot) is None:
                versions = [entry.version for entry in entries if entry.what in PUBLICATIONS]
                raise not_kept(model, version, versions, str(self))
            entry = journal.move(live, target, why, pin=pin, at=time.time(), store_id=self.store_id)
            if entry.live and book.append(number + 1, entry):
                return entry.live
        raise self._too_busy(model)

    def drop_earlier(self, snapshot: Snapshot, epoch: str) -> Written:
        """Keep only the newest checkpoint, and this snapshot with its entry."""
        model, key = snapshot.model, (snapshot.version, snapshot.digest)
        live = self.current(model)
        if self.required_owner(model) != epoch or live is None or live.snapshot != key:
            return Written.FENCED
        book = self.journal(model)
        entries = book.entries()
        own_number = max(number for number, entry in entries if entry.what in PUBLICATIONS and entry.snapshot == key)
        book.drop_entries(number for number, _ in entries if number < own_number)
        book.keep_only(key)
        self.drop_earlier_checkpoints(model)
        return Written.STORED

    def required_owner(self, model: str) -> str:
        """The epoch of the model's owner. Raises StoreLost if the store knows no owner."""
        owner = self.owner(model)
        if owner is None:
            raise store_lost(model, str(self))
        return owner

    def _thin_out(self, model: str, book: Journal) -> None:
        _, last = book.last()
        retention = self.retention.of(model)
        snapshots, moves = superfluous(book.entries()[:-1], last.live if last else None, retention)
        book.drop_entries(itertools.chain(moves, *snapshots.values()))
        _, last = book.last()
        # Somebody may have gone back to it in the meantime.
        if last and last.live:
            snapshots.pop(last.live.snapshot, None)
        book.drop_snapshots(snapshots)

    def _too_busy(self, model: str) -> StoreError:
        return StoreError(
            f"model {model!r}: another writer to {self} was faster {ATTEMPTS} times: more than one worker publishes "
            "it. Stop all but one"
        )
