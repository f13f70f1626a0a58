"""A store in a folder: for one machine, or several that share a file system with atomic links and renames.

==================================================  ================================================================
``store-id``                                        a random id, made once
``format``                                          number of this layout (omdml/formats.py)
``secret``                                          which events are held out; only its owner may read it
``owners``                                          locked by every process that owns models
``marks/<topic id>.<partition>``                    an offset, in digits
``marks/<name>.saved``                              number of the checkpoint of a model that was saved last
``placements/<topic id>.json``                      streams/placement.py
``models/<name>/checkpoints/<epoch>/``              streams/stores/folder/checkpoints.py
``models/<name>/history/<number>.json``             streams/stores/folder/journal.py
``models/<name>/snapshots/<version>.<digest>.safetensors``
==================================================  ================================================================

Names of models and topics are percent-encoded.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from omdml.errors import CorruptError, StoreError, StoreLost
from omdml.formats import FOLDER_STORE
from omdml.snapshot import Checkpoint, Snapshot
from omdml.streams.bounded_files import DOCUMENT_BYTES, open_regular, read_regular
from omdml.streams.disk import ASIDE, put, put_if_absent, take_lock
from omdml.streams.files.log import identify, read_identity
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import NOBODY, Claim, Marks, ModelPosition, Pointer, Watch, Why, Written
from omdml.streams.stores.checkpoints import new_secret, placed_elsewhere, read_secret
from omdml.streams.stores.folder.checkpoints import CheckpointFolder
from omdml.streams.stores.folder.journal import DirectoryJournal, DirectoryWatch
from omdml.streams.stores.journaled import JournaledSnapshots
from omdml.streams.stores.many import the_only, together
from omdml.streams.stores.retention import RETENTION, RetentionOf

MAX_NUMBER_BYTES = 100
# Seconds that an owner waits until a backup is in place.
RESTORE_S = 60.0


class DirectoryStore(JournaledSnapshots):
    """A CheckpointStore and SnapshotStore; any number of processes and threads may use it.

    Reading never creates anything: a folder that does not exist yet is an empty store.

    Parameters
    ----------
    path
        The folder; made by the first write if it is not there.
    retention
        Which snapshots stay when new ones come.

    Raises
    ------
    StoreError
        From every method: the folder cannot be read or written.
    """

    def __init__(self, path: Path | str, retention: RetentionOf = RETENTION) -> None:
        super().__init__(retention)
        self.path = Path(path)
        self._models, self._marks = self.path / "models", self.path / "marks"
        self._placements = self.path / "placements"
        self._owning, self._owns = threading.Lock(), False
        self._seen = False
        with self._reaching():
            self._check_format()

    def __str__(self) -> str:
        return f"dir:{self.path}"

    @property
    def store_id(self) -> str:
        """The id in the folder; empty if it was not created yet."""
        with suppress(FileNotFoundError):
            return read_identity(self.path / "store-id")
        return ""

    def owner(self, model: str) -> str | None:
        """The epoch that owns the model."""
        return self._checkpoints(model).owner()

    def journal(self, model: str) -> DirectoryJournal:
        """The journal of a model's publications and moves."""
        return DirectoryJournal(self._folder(model))

    def claim(self, model: str) -> Claim:
        """See :class:`omdml.streams.protocols.store.CheckpointStore`."""
        return the_only(self.claim_all([model]))

    def claim_all(self, models: Sequence[str]) -> list[Claim | CorruptError | StoreLost]:
        """See :class:`omdml.streams.protocols.store.CheckpointStore`."""
        with self._reaching():
            self.make()
            self._be_an_owner()
            return together(lambda model: self._checkpoints(model).claim(), ((model,) for model in models))

    def positions(self, models: Sequence[str]) -> dict[str, ModelPosition]:
        """The positions of the newest checkpoints, which their names tell."""
        with self._reaching():
            positions = {model: self._checkpoints(model).position() for model in models}
        return {model: position for model, position in positions.items() if position}

    def peek(self, model: str) -> Checkpoint | None:
        """See :class:`omdml.streams.protocols.store.CheckpointStore`."""
        with self._reaching():
            return self._checkpoints(model).peek()

    def fell_back(self, model: str) -> bool:
        """See :class:`omdml.streams.protocols.store.CheckpointStore`."""
        with self._reaching():
            return self._checkpoints(model).fell_back()

    def save(
        self, checkpoint: Checkpoint, epoch: str, back: bool = False, placement: Placement | None = None
    ) -> Written:
        """Keep this checkpoint and the one before it.

        A look at the placement and a write: what a process that slept in between wrote is refused by its model's new
        home (workers/learning/partition/arrival.py).
        """
        with self._reaching():
            if self.owner_of(checkpoint.model) != epoch:
                return Written.FENCED
            if placement and placed_elsewhere(placement, self.placement(checkpoint.home[0])):
                return Written.MOVED
            return self._checkpoints(checkpoint.model).save(checkpoint, epoch, back)

    def save_all(
        self, saves: Sequence[tuple[Checkpoint, str]], placement: Placement | None = None
    ) -> list[Written | CorruptError | StoreLost]:
        """See :class:`omdml.streams.protocols.store.CheckpointStore`."""
        return together(self.save, ((*save, False, placement) for save in saves))

    def marks(self, partitions: Iterable[Partition]) -> Marks:
        """The offset below which everything is in checkpoints; a copy of the folder is another run."""
        with self._reaching():
            if not self._is_there():
                return Marks({}, "")
            paths = {partition: self._mark(partition) for partition in partitions}
            offsets = {place: read_mark(path) for place, path in paths.items() if path.exists()}
            return Marks(offsets, f"{self.store_id} {(self.path / 'store-id').stat().st_ctime_ns}")

    def move_mark(self, partition: Partition, before: int | None, offset: int) -> bool:
        """Set a mark, if it is as expected: a look and a write, between which only another owner could come."""
        with self._reaching():
            path = self._mark(partition)
            as_expected = (read_mark(path) if path.exists() else None) in (before, offset)
            if as_expected:
                self.make()
                put(path, b"%d\n" % offset)
            return as_expected

    def placement(self, topic_id: str) -> Placement | None:
        """The placement of a log's models; None before the first worker recorded it."""
        with self._reaching():
            path = self._placement(topic_id)
            return Placement.decode(read_regular(path, DOCUMENT_BYTES), str(path)) if path.exists() else None

    def place(self, topic_id: str, before: Placement | None, after: Placement) -> bool:
        """Record a placement, if it is as expected.

        Of several first workers one makes the file. Afterwards a look and a write will do: only operators change it.
        """
        with self._reaching():
            self.make()
            if before is None and put_if_absent(self._placement(topic_id), after.encode(), self._placements):
                return True
            as_expected = self.placement(topic_id) in (before, after)
            if as_expected:
                put(self._placement(topic_id), after.encode())
            return as_expected

    def secret(self) -> bytes:
        """The secret, which is created if it does not exist yet."""
        if secret := self.kept_secret():
            return secret
        path = self.path / "secret"
        with self._reaching():
            self.make()
            put_if_absent(path, new_secret(), self.path, mode=0o600)
            return read_secret(read_regular(path, MAX_NUMBER_BYTES), str(path))

    def kept_secret(self) -> bytes | None:
        """The secret; None if it does not exist yet."""
        path = self.path / "secret"
        with self._reaching(), suppress(FileNotFoundError):
            return read_secret(read_regular(path, MAX_NUMBER_BYTES), str(path))
        return None

    def models(self) -> list[str]:
        """See :class:`omdml.streams.protocols.store.CheckpointStore`."""
        with self._reaching():
            names = os.listdir(self._models) if self._is_there() else []
            return sorted(unquote(name) for name in names if not name.startswith(ASIDE))

    def delete(self, model: str) -> None:
        """Delete a model. One rename hides it, then its files are deleted."""
        with self._reaching():
            self._last(model).unlink(missing_ok=True)
            if self._folder(model).exists():
                self._folder(model).rename(self._models / f"{ASIDE}{secrets.token_hex(8)}")
            for path in self._models.glob(f"{ASIDE}*"):
                shutil.rmtree(path, ignore_errors=True)

    def publish(self, snapshot: Snapshot, epoch: str, held: str = "") -> Written:
        """Keep the snapshot, and make it live."""
        with self._reaching():
            return super().publish(snapshot, epoch, held)

    def publish_all(
        self, publications: Sequence[tuple[Snapshot, str, str]]
    ) -> list[Written | CorruptError | StoreLost]:
        """Keep each of these, and make it live."""
        return together(self.publish, publications)

    def current(self, model: str) -> Pointer | None:
        """The live pointer."""
        with self._reaching():
            return super().current(model)

    def load(self, model: str, version: int | None = None) -> tuple[Pointer, Snapshot] | None:
        """The live snapshot, or the kept one of ``version``."""
        with self._reaching():
            return super().load(model, version)

    def history(self, model: str) -> list[dict[str, Any]]:
        """Publications and moves."""
        with self._reaching():
            return super().history(model)

    def move(self, model: str, version: int | None, pin: bool, why: Why = NOBODY) -> Pointer:
        """Point at a kept version."""
        with self._reaching():
            return super().move(model, version, pin, why)

    def note(self, model: str, epoch: str, what: str, reason: str) -> Written:
        """Add a remark about the live snapshot to the history."""
        with self._reaching():
            return super().note(model, epoch, what, reason)

    def drop_earlier(self, snapshot: Snapshot, epoch: str) -> Written:
        """Keep only the newest checkpoint, and this snapshot with its entry."""
        with self._reaching():
            return super().drop_earlier(snapshot, epoch)

    def drop_earlier_checkpoints(self, model: str) -> None:
        """Drop all checkpoints but the newest."""
        self._checkpoints(model).drop_earlier()

    def watch(self, models: Iterable[str]) -> Watch:
        """A look at the journals every few milliseconds."""
        with self._reaching():
            return DirectoryWatch({model: self.journal(model) for model in models}, self._reaching)

    def lock_owners(self, kind: int, for_s: float = 0.0) -> int | None:
        """A descriptor that holds the lock of all who own models; None if others hold it."""
        descriptor = open_regular(self.path / "owners", os.O_RDONLY | os.O_CREAT)
        if take_lock(descriptor, kind, for_s):
            return descriptor
        os.close(descriptor)
        return None

    def make(self) -> None:
        """Make the folders, if they are not there, with the number of this layout and an id."""
        if self._check_format() != FOLDER_STORE.number:
            self.path.mkdir(parents=True, exist_ok=True)
            put(self.path / "format", b"%d\n" % FOLDER_STORE.number)
        self._models.mkdir(parents=True, exist_ok=True)
        self._marks.mkdir(exist_ok=True)
        self._placements.mkdir(exist_ok=True)
        identify(self.path / "store-id")
        self._seen = True

    def _is_there(self) -> bool:
        """Whether the store exists. Raises FileNotFoundError if it existed before and is gone."""
        if (self.path / "store-id").exists():
            self._seen = True
        elif self._seen:
            raise FileNotFoundError(errno.ENOENT, "it was there, and is gone", str(self.path))
        return self._seen

    def _check_format(self) -> int | None:
        """The number of the layout, None if none is written there yet; refuses the layout of another release.

        A folder without a number is of before there were any, which is 1.
        """
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self.path))
        path = self.path / "format"
        number = read_number(path, "the number of the layout") if path.exists() else None
        if number is not None or (self.path / "store-id").exists():
            FOLDER_STORE.check(1 if number is None else number, f"store {self}", StoreError)
        return number

    def _checkpoints(self, model: str) -> CheckpointFolder:
        return CheckpointFolder(self._folder(model) / "checkpoints", model, self._last(model))

    def _folder(self, model: str) -> Path:
        return self._models / encoded(model)

    def _mark(self, partition: Partition) -> Path:
        return self._marks / f"{encoded(partition.topic_id)}.{partition.number}"

    def _last(self, model: str) -> Path:
        return self._marks / f"{encoded(model)}.saved"

    def _placement(self, topic_id: str) -> Path:
        return self._placements / f"{encoded(topic_id)}.json"

    def _be_an_owner(self) -> None:
        """Share the lock of owners for as long as this store is used, so that no backup is put in its place."""
        with self._owning:
            if not self._owns:
                lock = self.lock_owners(fcntl.LOCK_SH, RESTORE_S)
                if lock is None:
                    raise StoreError(f"store {self}: a backup is being put in its place: try again when that is done")
                weakref.finalize(self, os.close, lock)
                self._owns = True

    def _reaching(self) -> AbstractContextManager[None]:
        return reaching(self)


@contextmanager
def reaching(store: object) -> Iterator[None]:
    """Turn what the operating system refuses into a StoreError that names the store."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"store {store}: {error}: check that the folder is there, writable and not full") from error


def encoded(name: str) -> str:
    """A name as one part of a path: percent-encoded, and neither hidden nor ``..``."""
    escaped = quote(name, safe="")
    return f"%2E{escaped[1:]}" if escaped.startswith(".") else escaped


def read_number(path: Path, expected: str) -> int:
    """The whole number in this file; raises StoreError if it holds none."""
    content = read_regular(path, MAX_NUMBER_BYTES).decode(errors="replace")
    if not content.strip().isascii() or not content.strip().isdigit():
        raise StoreError(f"{path}: {content[:40]!r}, expected {expected}")
    return int(content)


def read_mark(path: Path) -> int:
    """The offset in this file; raises StoreError if it is damaged."""
    return read_number(path, "an offset: write the one to replay from into it")
