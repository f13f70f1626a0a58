"""The journal of a model's snapshots in rows, and the watch that looks at it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from urllib.parse import quote

import msgspec

from omdml.errors import StoreError
from omdml.streams.stores.journal import PUBLICATIONS, JournalEntry, SnapshotKey, newest_publication
from omdml.streams.stores.transactional.database import Rows
from omdml.streams.stores.transactional.model_row import ModelRow, read_row

# Seconds between two looks of a watch.
POLL_S = 0.01
# The group that has the count of all entries ever appended, and the count at which each model's last one came.
COUNTS = "counts"

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
            count = b"%d" % ((read_row(rows, COUNTS, "all", int) or 0) + 1)
            rows.put(COUNTS, "all", count)
            rows.put(COUNTS, count_of(self._model), count)
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
        """Drop everything."""
        with self._transaction(True) as rows:
            for group in (self._entries, self._snapshots):
                self._drop(group, rows.names(group))
            rows.delete(COUNTS, count_of(self._model))

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


def count_of(model: str) -> str:
    """The name of the row with the count at which a model's last entry came."""
    return f"model/{quote(model, '')}"


class PollingWatch:
    """Looks at one row every few milliseconds, and at the rows of the models once it has changed."""

    def __init__(self, transaction: Transaction, models: Iterable[str]) -> None:
        self._transaction = transaction
        self._names = {model: count_of(model) for model in models}
        self._count, self._seen = self._counts(None)
        self._closed = threading.Event()

    def wait(self, timeout_s: float) -> set[str]:
        """Wait until the histories of some models grew, and return these models."""
        deadline = time.monotonic() + timeout_s
        while not (moved := self._moved()):
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0 or self._closed.wait(min(POLL_S, remaining_s)):
                break
        return moved

    def close(self) -> None:
        """End a wait of another thread at once."""
        self._closed.set()

    def _moved(self) -> set[str]:
        before = self._seen
        self._count, self._seen = self._counts(self._count)
        return {model for model, count in self._seen.items() if count != before[model]}

    def _counts(self, known: bytes | None) -> tuple[bytes | None, Mapping[str, bytes | None]]:
        """The count of all entries, and the count of each model's last one.

        The counts of models are read only if the count of all entries is not ``known``: otherwise none has changed.
        """
        with self._transaction(False) as rows:
            count = rows.get(COUNTS, "all")
            if known is not None and count == known:
                return count, self._seen
            return count, {model: rows.get(COUNTS, name) for model, name in self._names.items()}
