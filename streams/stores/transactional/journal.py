"""The journal of a model's snapshots in rows, and the watch that looks at it."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from urllib.parse import quote

import msgspec

from omdml.errors import StoreError
from omdml.streams.stores.journal import PUBLICATIONS, JournalEntry, SnapshotKey, newest_publication
from omdml.streams.stores.transactional.database import Rows
from omdml.streams.stores.transactional.model_row import ModelRow, read_row

# Seconds between two looks of a watch. The second one counts as long as the database is out of reach.
POLL_S, AWAY_POLL_S = 0.01, 0.5
# The group with the count of all changes of journals: entries that were appended, and journals that were dropped.
COUNTS = "counts"
# The group that says which models the last changes were of, and how many changes it keeps. The name of a row is the
# number of its change, modulo that.
CHANGES, CHANGES_KEPT = "changes", 1000

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(JournalEntry).decode
# Begins a transaction, which writes or not; or joins the one that this thread is in.
Transaction = Callable[[bool], AbstractContextManager[Rows]]


class RowJournal:
    """The journal of one model; see :class:`omdml.streams.stores.journal.Journal`."""

    def __init__(self, transaction: Transaction, model: str) -> None:
        self._transaction, self._model = transaction, model
        self._entries, self._snapshots = f"journal/{quote(model, '')}", f"snapshots/{quote(model, '')}"

    def last(self) -> tuple[int, JournalEntry | None]:
        """The last entry and its number."""
        with self._transaction(False) as rows:
            row = ModelRow.read(rows, self._model)
            return (row.entries, self._entry(rows, row.entries)) if row and row.entries else (0, None)

    def newest(self) -> JournalEntry | None:
        """The last entry that added a snapshot."""
        with self._transaction(False):
            _, last = self.last()
            # Most often the last entry of all is one.
            if last is None or last.what in PUBLICATIONS:
                return last
            return newest_publication(entry for _, entry in self.entries())

    def entries(self) -> list[tuple[int, JournalEntry]]:
        """All entries that were not dropped, with their numbers."""
        with self._transaction(False) as rows:
            return [(number, self._entry(rows, number)) for number in self._numbers(rows)]

    def append(self, number: int, entry: JournalEntry, epoch: str | None = None) -> bool:
        """Add an entry, and count it for the watches."""
        with self._transaction(True) as rows:
            row = ModelRow.read(rows, self._model)
            if row is None or number != row.entries + 1 or epoch not in (None, row.owner):
                return False
            row.entries = number
            row.write(rows, self._model)
            rows.put(self._entries, str(number), encode(entry))
            self._count_change(rows)
            return True

    def drop_entries(self, numbers: Iterable[int]) -> None:
        """Drop the entries of these numbers."""
        self._drop(self._entries, map(str, numbers))

    def write(self, key: SnapshotKey, data: bytes) -> None:
        """Keep the bytes of a snapshot."""
        with self._transaction(True) as rows:
            rows.put(self._snapshots, name_of(key), data)

    def read(self, key: SnapshotKey) -> bytes | None:
        """The bytes of a snapshot; None if they are gone."""
        with self._transaction(False) as rows:
            return rows.get(self._snapshots, name_of(key))

    def drop_snapshots(self, keys: Iterable[SnapshotKey]) -> None:
        """Drop the bytes of these snapshots."""
        self._drop(self._snapshots, map(name_of, keys))

    def keep_only(self, key: SnapshotKey) -> None:
        """Drop the bytes of every other snapshot."""
        with self._transaction(True) as rows:
            self._drop(self._snapshots, set(rows.names(self._snapshots)) - {name_of(key)})

    def drop(self) -> None:
        """Drop everything, and count that for the watches if there was an entry."""
        with self._transaction(True) as rows:
            if rows.names(self._entries):
                self._count_change(rows)
            for group in (self._entries, self._snapshots):
                self._drop(group, rows.names(group))

    def _count_change(self, rows: Rows) -> None:
        count = count_of_changes(rows) + 1
        rows.put(COUNTS, "all", b"%d" % count)
        rows.put(CHANGES, name_of_change(count), hash_of(self._model))

    def _drop(self, group: str, names: Iterable[str]) -> None:
        with self._transaction(True) as rows:
            for name in names:
                rows.delete(group, name)

    def _numbers(self, rows: Rows) -> list[int]:
        return sorted(map(int, rows.names(self._entries)))

    def _entry(self, rows: Rows, number: int) -> JournalEntry:
        entry = read_row(rows, self._entries, str(number), decode)
        if entry is None:
            raise StoreError(f"row {number} of group {self._entries} is gone: restore the store from a backup")
        return entry


def name_of(key: SnapshotKey) -> str:
    """The name of a snapshot's row."""
    return f"{key[0]}-{key[1]}"


def count_of_changes(rows: Rows) -> int:
    """How many changes of journals there have been."""
    return read_row(rows, COUNTS, "all", int) or 0


def name_of_change(number: int) -> str:
    """The name of the row with the model of a change."""
    return str(number % CHANGES_KEPT)


def hash_of(model: str) -> bytes:
    """What stands for a model in the rows of changes, which still lie there when it is deleted."""
    return hashlib.sha256(model.encode()).hexdigest()[:16].encode()


class PollingWatch:
    """Looks at one row every few milliseconds, and once it has changed, at one more for each change."""

    def __init__(self, transaction: Transaction, models: Iterable[str]) -> None:
        self._transaction, self._models = transaction, {hash_of(model): model for model in models}
        self._closed = threading.Event()
        # The number of the last change that was seen; None if the database was out of reach.
        self._seen: int | None = None
        with suppress(StoreError), transaction(False) as rows:
            self._seen = count_of_changes(rows)

    def wait(self, timeout_s: float) -> set[str]:
        """Wait until the histories of some models changed, and return these models; nothing if it is out of reach."""
        deadline = time.monotonic() + timeout_s
        while True:
            moved, pause_s = set[str](), AWAY_POLL_S
            with suppress(StoreError):
                moved, pause_s = self._moved(), POLL_S
            remaining_s = deadline - time.monotonic()
            if moved or remaining_s <= 0 or self._closed.wait(min(pause_s, remaining_s)):
                return moved

    def close(self) -> None:
        """End a wait of another thread at once."""
        self._closed.set()

    def _moved(self) -> set[str]:
        with self._transaction(False) as rows:
            count, seen = count_of_changes(rows), self._seen
            if count == seen:
                return set()
            changed: list[bytes | None] = [None]
            if seen is not None and 0 < count - seen <= CHANGES_KEPT:
                changed = [rows.get(CHANGES, name_of_change(number)) for number in range(seen + 1, count + 1)]
        self._seen = count
        # If it cannot be told which models changed, each of them may have.
        moved = self._models if None in changed else self._models.keys() & set(changed)
        return {self._models[name] for name in moved}
