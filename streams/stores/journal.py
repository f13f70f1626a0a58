"""The journal of a model's snapshots: every publication and every move of the pointer, in order.

Its last entry says which snapshot is live, and appending to it is a compare-and-set on its length: whoever decided by
an older state of the journal decides again. The folder store and stores over a database keep their pointers this way;
``streams/stores/redis/scripts.py`` decides alike on the server, and one suite of tests checks that they agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from omdml.streams.protocols.store import Pointer, Why, Written
from omdml.streams.stores.retention import Retention

PUBLICATIONS = ("published", "held")
# Why a snapshot is withheld although nothing else speaks against it.
PINNED = "pinned"
# Entries of rollbacks, pins and notes: they are told for longer than their snapshots last.
MOVES_KEPT = 200

Number = TypeVar("Number")
# Version and digest of a snapshot.
SnapshotKey = tuple[int, str]


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to the snapshot ``version:digest``, and how the pointer stood after it.

    Parameters
    ----------
    what
        ``published``; ``held`` (kept, but not live); ``rolled back``, ``pinned``, ``unpinned`` or ``moved``; or
        something else that happened while the snapshot was live, such as drift.
    epoch
        The epoch of the worker that published the snapshot.
    at
        Seconds since the epoch of Unix.
    reason
        Why it is held, why the pointer moved, or more about what happened.
    actor
        Who moved the pointer.
    live
        The whole pointer, if the journal is the only place that keeps it.
    """

    what: str
    version: int
    digest: str
    epoch: str
    at: float
    serial: int = 0
    pinned: bool = False
    reason: str = ""
    actor: str = ""
    live: Pointer | None = None

    @property
    def snapshot(self) -> SnapshotKey:
        """The snapshot that the entry is about."""
        return self.version, self.digest

    def pointer(self, store_id: str) -> Pointer:
        """The pointer as this entry set it; with serial 0 if it did not."""
        serial = 0 if self.what == "held" else self.serial
        return Pointer(serial, self.version, self.digest, self.epoch, self.at, self.pinned and serial > 0, store_id)

    def as_history(self) -> dict[str, Any]:
        """The entry as a line of the history that operators see."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "live"}


class Journal(Protocol):
    """The entries of one model, numbered from 1, and the bytes of its snapshots."""

    def last(self) -> tuple[int, JournalEntry | None]:
        """The last entry and its number; ``(0, None)`` if there is none."""

    def newest(self) -> JournalEntry | None:
        """The last entry that added a snapshot."""

    def entries(self) -> list[tuple[int, JournalEntry]]:
        """All entries that were not dropped, with their numbers, oldest first."""

    def append(self, number: int, entry: JournalEntry, epoch: str | None = None) -> bool:
        """Add an entry; False, and nothing is done, if ``number`` was taken, or ``epoch`` is gone, meanwhile."""

    def drop_entries(self, numbers: Iterable[int]) -> None:
        """Drop these entries, but never the last one."""

    def write(self, key: SnapshotKey, data: bytes) -> None:
        """Keep the bytes of a snapshot."""

    def read(self, key: SnapshotKey) -> bytes | None:
        """The bytes of a snapshot; None if they are not kept."""

    def drop_snapshots(self, keys: Iterable[SnapshotKey]) -> None:
        """Drop the bytes of these snapshots."""

    def keep_only(self, key: SnapshotKey) -> None:
        """Drop the bytes of every other snapshot, and what crashes left."""


def publication(
    live: Pointer | None,
    newest: JournalEntry | None,
    key: SnapshotKey,
    *,
    epoch: str,
    at: float,
    withheld: str,
    store_id: str,
) -> JournalEntry | Written:
    """The entry that publishes a snapshot, or why there will be none.

    The versions of one owner only grow, so a lower one of the same epoch comes late. A new owner may begin below what
    is live: its predecessor published ahead of its last checkpoint.
    """
    version, digest = key
    withheld = withheld or (PINNED if live and live.pinned else "")
    if newest and newest.epoch == epoch and version < newest.version:
        return Written.FENCED
    if (live and live.snapshot == key) or (withheld and newest and newest.snapshot == key):
        return Written.ALREADY
    if not withheld:
        live = Pointer(next_serial(live), version, digest, epoch, at, store_id=store_id)
    return entry("held" if withheld else "published", key, epoch, at, live, withheld)


def move(live: Pointer | None, target: JournalEntry, why: Why, *, pin: bool, at: float, store_id: str) -> JournalEntry:
    """The entry that points at the snapshot of ``target``."""
    version, digest = target.snapshot
    what = kind_of_move(live, version, pin)
    pointer = Pointer(next_serial(live), version, digest, target.epoch, at, pin, store_id)
    return entry(what, target.snapshot, target.epoch, at, pointer, why.reason, why.actor)


def note(live: Pointer, what: str, reason: str, at: float) -> JournalEntry:
    """The entry of a remark about the live snapshot."""
    return entry(what, live.snapshot, live.epoch, at, live, reason)


def next_serial(live: Pointer | None) -> int:
    """The serial of the pointer after this one."""
    return live.serial + 1 if live else 1


def entry(
    what: str, key: SnapshotKey, epoch: str, at: float, live: Pointer | None, reason: str = "", actor: str = ""
) -> JournalEntry:
    """An entry, given the pointer after it."""
    serial, pinned = (live.serial, live.pinned) if live else (0, False)
    return JournalEntry(
        what=what,
        version=key[0],
        digest=key[1],
        epoch=epoch,
        at=at,
        serial=serial,
        pinned=pinned,
        reason=reason,
        actor=actor,
        live=live,
    )


def kind_of_move(live: Pointer | None, version: int, pin: bool) -> str:
    """The history's word for a move of the pointer to ``version``."""
    if live and version < live.version:
        return "rolled back"
    if pin:
        return "pinned"
    return "unpinned" if live and live.pinned else "moved"


def newest_publication(entries: Iterable[JournalEntry], version: int | None = None) -> JournalEntry | None:
    """The last of these entries, in order, that added a snapshot (of ``version``)."""
    newest = None
    for candidate in entries:
        if candidate.what in PUBLICATIONS and version in (None, candidate.version):
            newest = candidate
    return newest


def destination(entries: Iterable[JournalEntry], version: int | None, live: Pointer | None) -> JournalEntry | None:
    """The publication that ``version`` stands for; None stands for the newest one that nothing but a pin held back.

    Several snapshots may have one version. If the guard takes a version back, the reference goes live again, as a
    snapshot with the number of the version that was taken back. Such a number stands for the live snapshot if it has
    this number, otherwise for the newest one that was allowed, and for a withheld one only if there is no other.
    """
    entries = list(entries)
    if live and live.version == version:
        target = newest_publication((entry for entry in entries if entry.digest == live.digest), version)
        if target:
            return target
    allowed = newest_publication((entry for entry in entries if entry.reason in ("", PINNED)), version)
    return allowed or (None if version is None else newest_publication(entries, version))


def superfluous(
    entries: Sequence[tuple[Number, JournalEntry]], live: Pointer | None, retention: Retention
) -> tuple[dict[SnapshotKey, list[Number]], list[Number]]:
    """What need not stay: snapshots, each with the numbers of its publications; and the numbers of moves.

    The live snapshot always stays.
    """
    published: dict[SnapshotKey, float] = {}
    for _, entry in entries:
        if entry.what in PUBLICATIONS:
            # What is published again comes last.
            published.pop(entry.snapshot, None)
            published[entry.snapshot] = entry.at
    gone: dict[SnapshotKey, list[Number]] = {key: [] for key in retention.superfluous(published)}
    if live:
        gone.pop(live.snapshot, None)
    moves = []
    for number, entry in entries:
        if entry.what not in PUBLICATIONS:
            moves.append(number)
        elif entry.snapshot in gone:
            gone[entry.snapshot].append(number)
    return gone, moves[:-MOVES_KEPT]
