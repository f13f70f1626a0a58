"""The journal of a model's snapshots in a folder: one file for each entry, named by its number, and for each snapshot.

An entry is added by a hard link, which fails if the number is taken: that is the compare-and-set. The entry is first
written into the folder of its owner's epoch. If the model was deleted meanwhile, that folder is gone, and nothing can
be linked.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import msgspec

from omdml.errors import StoreError, shortened
from omdml.streams.bounded_files import DOCUMENT_BYTES, read_regular
from omdml.streams.disk import ASIDE, put, put_if_absent
from omdml.streams.stores.folder.states import read_state
from omdml.streams.stores.journal import PUBLICATIONS, JournalEntry, SnapshotKey

# A snapshot that no entry names for so long has no publisher any more.
NAMELESS_S = 600.0
NAME = re.compile(r"(\d{12})\.json")
# Seconds between two looks. The second one counts if nothing happened for a while.
POLL_S, IDLE_POLL_S = 0.002, 0.01
ACTIVE_S = 5.0
# Seconds between two looks as long as the folders cannot be read.
AWAY_POLL_S = 0.5
# Looks at many folders take about one part in this many of the time.
SHARE = 20
# The kernel's clock for files ticks at least once in this time.
TICK_NS = 20_000_000

# Turns what the operating system refuses into a StoreError.
Reaching = Callable[[], AbstractContextManager[None]]


class DirectoryJournal:
    """The entries and snapshots of one model.

    Parameters
    ----------
    path
        The model's folder.
    """

    def __init__(self, path: Path) -> None:
        self.entries_path = path / "history"
        self._snapshots, self._epochs = path / "snapshots", path / "checkpoints"

    def last(self) -> tuple[int, JournalEntry | None]:
        """The last entry and its number."""
        while True:
            number = self.last_number()
            if not number:
                return 0, None
            if entry := self._read(number):
                return number, entry

    def last_number(self) -> int:
        """The number of the last entry; 0 if there is none."""
        return max(self._numbers(), default=0)

    def newest(self) -> JournalEntry | None:
        """The last entry that added a snapshot."""
        for number in sorted(self._numbers(), reverse=True):
            if (entry := self._read(number)) and entry.what in PUBLICATIONS:
                return entry
        return None

    def entries(self) -> list[tuple[int, JournalEntry]]:
        """All entries that were not dropped, with their numbers, oldest first."""
        read = ((number, self._read(number)) for number in sorted(self._numbers()))
        return [(number, entry) for number, entry in read if entry]

    def append(self, number: int, entry: JournalEntry, epoch: str | None = None) -> bool:
        """Add an entry, unless one came first or the epoch's folder is gone.

        A writer may sleep until the entry that took its number is dropped again. Then its own entry stands amid the
        history, and moves nothing.
        """
        aside = self._epochs / epoch if epoch else self.entries_path
        self.entries_path.mkdir(exist_ok=True)
        try:
            return put_if_absent(self._path(number), msgspec.json.encode(entry), aside)
        except FileNotFoundError:
            return False

    def drop_entries(self, numbers: Iterable[int]) -> None:
        """Drop the entries of these numbers."""
        for number in numbers:
            self._path(number).unlink(missing_ok=True)

    def write(self, key: SnapshotKey, data: bytes) -> None:
        """Keep the bytes of a snapshot."""
        self._snapshots.mkdir(exist_ok=True)
        put(self._snapshots / snapshot_name(key), data)

    def read(self, key: SnapshotKey) -> bytes | None:
        """The bytes of a snapshot; None if they are gone."""
        try:
            return read_state(self._snapshots / snapshot_name(key))
        except FileNotFoundError:
            return None

    def drop_snapshots(self, keys: Iterable[SnapshotKey]) -> None:
        """Drop the bytes of these snapshots, and files that a crash left without an entry or half written."""
        for key in keys:
            (self._snapshots / snapshot_name(key)).unlink(missing_ok=True)
        named_files = {snapshot_name(entry.snapshot) for _, entry in self.entries()}
        for path in [*self._snapshots.iterdir(), *self.entries_path.glob(f"{ASIDE}*")]:
            # Another process may have put its file in place, or dropped it, since the folder was listed.
            with suppress(FileNotFoundError):
                if path.name not in named_files and time.time() - path.stat().st_mtime > NAMELESS_S:
                    path.unlink()

    def keep_only(self, key: SnapshotKey) -> None:
        """Drop the files of every other snapshot, and those that crashes left half written."""
        for path in [*self._snapshots.iterdir(), *self.entries_path.glob(f"{ASIDE}*")]:
            if path.name != snapshot_name(key):
                path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.entries_path / f"{number:012d}.json"

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self.entries_path)
        except FileNotFoundError:
            return []
        return [int(match[1]) for match in map(NAME.fullmatch, names) if match]

    def _read(self, number: int) -> JournalEntry | None:
        """The entry; None if it was dropped meanwhile."""
        path = self._path(number)
        try:
            return msgspec.json.decode(read_regular(path, DOCUMENT_BYTES), type=JournalEntry)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            # ValueError is what a number of 5,000 digits raises.
            raise StoreError(
                f"{path}: damaged ({shortened(str(error))}): remove it, the entry before it counts then"
            ) from error


def snapshot_name(key: SnapshotKey) -> str:
    """The file of a snapshot, by its version and digest."""
    return f"{key[0]}.{key[1]}.safetensors"


class DirectoryWatch:
    """Looks at the folders of entries, every few milliseconds as long as something happens in them.

    A folder's time of change tells whether to list it; one that changed a moment ago is listed anyway, because the
    kernel's clock for files ticks so slowly that two changes may get the same time.
    """

    def __init__(self, journals: Mapping[str, DirectoryJournal], reaching: Reaching) -> None:
        self._journals, self._reaching = journals, reaching
        # The number of the last entry that was seen; None if the folder could not be read.
        self._seen = dict[str, int | None].fromkeys(journals)
        self._changed = dict.fromkeys(journals, 0)
        self._active_until = 0.0
        self._closed = threading.Event()
        with suppress(StoreError), reaching():
            for model, journal in journals.items():
                self._seen[model] = journal.last_number()

    def wait(self, timeout_s: float) -> set[str]:
        """Models that have new entries, or none any more; nothing if the folders cannot be read."""
        deadline = time.monotonic() + timeout_s
        while True:
            began, away, moved = time.monotonic(), True, set[str]()
            with suppress(StoreError), self._reaching():
                # Those that were found before an error count.
                moved.update(model for model in self._journals if self._moved(model))
                away = False
            now = time.monotonic()
            if moved:
                self._active_until = now + ACTIVE_S
            if moved or now >= deadline or self._closed.is_set():
                return moved
            pause = POLL_S if now < self._active_until else IDLE_POLL_S
            pause = AWAY_POLL_S if away else max(pause, SHARE * (now - began))
            self._closed.wait(min(pause, deadline - now))

    def close(self) -> None:
        """End a wait of another thread at once."""
        self._closed.set()

    def _moved(self, model: str) -> bool:
        journal = self._journals[model]
        try:
            changed = os.stat(journal.entries_path).st_mtime_ns
        except FileNotFoundError:
            changed = 0
        if changed == self._changed[model] and time.time_ns() - changed > TICK_NS:
            return False
        before, self._seen[model] = self._seen[model], journal.last_number()
        self._changed[model] = changed
        return self._seen[model] != before
