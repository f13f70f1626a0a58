"""A store in a folder: for one machine, or several that share a file system with atomic links and renames.

==================================================  ================================================================
``store-id``                                        a random id, made once
``secret``                                          which events are held out; only its owner may read it
``marks/<topic id>.<partition>``                    an offset, in digits
``models/<name>/checkpoints/<epoch>/``              streams/stores/directory_checkpoints.py
``models/<name>/history/<number>.json``             streams/stores/directory_journal.py
``models/<name>/snapshots/<version>.<digest>.safetensors``
==================================================  ================================================================

Names of models and topics are percent-encoded.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from omdml.errors import StoreError
from omdml.snapshot import Checkpoint, Snapshot
from streams.files.log import identify
from streams.protocols import Claim, Marks, Partition, Pointer, Position, Watch, Written
from streams.stores.checkpoints import new_secret, read_secret
from streams.stores.directory_checkpoints import CheckpointFolder
from streams.stores.directory_journal import DirectoryJournal, DirectoryWatch
from streams.stores.durable import ASIDE, put, put_if_absent
from streams.stores.journaled import JournaledSnapshots
from streams.stores.retention import RETENTION, RetentionOf


class DirectoryStore(JournaledSnapshots):
    """A CheckpointStore and SnapshotStore; any number of processes and threads may use it.

    Parameters
    ----------
    path
        The folder; made where it is not there.
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
        with self._reaching():
            self._make_folders()

    def __str__(self) -> str:
        return f"dir:{self.path}"

    @property
    def store_id(self) -> str:
        """The id that lies in the folder."""
        return identify(self.path / "store-id")

    def owner(self, model: str) -> str | None:
        """The epoch that owns the model."""
        return self._checkpoints(model).owner()

    def journal(self, model: str) -> DirectoryJournal:
        """The model's journal."""
        return DirectoryJournal(self._folder(model))

    def claim(self, model: str) -> Claim:
        """Become the owner."""
        with self._reaching():
            self._make_folders()
            return self._checkpoints(model).claim()

    def positions(self, models: Sequence[str]) -> dict[str, Position]:
        """Those of the newest checkpoints: their names tell."""
        with self._reaching():
            found = {model: self._checkpoints(model).position() for model in models}
        return {model: position for model, position in found.items() if position}

    def peek(self, model: str) -> Checkpoint | None:
        """The newest valid checkpoint."""
        with self._reaching():
            return self._checkpoints(model).peek()

    def save(self, checkpoint: Checkpoint, epoch: str, back: bool = False) -> Written:
        """Keep this checkpoint and the one before it."""
        with self._reaching():
            if self.owner_of(checkpoint.model) != epoch:
                return Written.FENCED
            return self._checkpoints(checkpoint.model).save(checkpoint, epoch, back)

    def marks(self, partitions: Iterable[Partition]) -> Marks:
        """The offset below which everything is in checkpoints; a copy of the folder is another run."""
        with self._reaching():
            paths = {one: self._mark(one) for one in partitions}
            offsets = {one: read_mark(path) for one, path in paths.items() if path.exists()}
            return Marks(offsets, f"{self.store_id} {(self.path / 'store-id').stat().st_ctime_ns}")

    def move_mark(self, partition: Partition, before: int | None, offset: int) -> bool:
        """Set a mark, if it is as expected: a look and a write, between which only another owner could come."""
        with self._reaching():
            path = self._mark(partition)
            as_expected = (read_mark(path) if path.exists() else None) in (before, offset)
            if as_expected:
                put(path, b"%d\n" % offset)
            return as_expected

    def secret(self) -> bytes:
        """The secret that lies in the folder."""
        path = self.path / "secret"
        with self._reaching():
            with suppress(FileNotFoundError):
                return read_secret(path.read_bytes(), str(path))
            put_if_absent(path, new_secret(), self.path, mode=0o600)
            return read_secret(path.read_bytes(), str(path))

    def models(self) -> list[str]:
        """Names of the models."""
        with self._reaching():
            return sorted(unquote(name) for name in os.listdir(self._models) if not name.startswith(ASIDE))

    def delete(self, model: str) -> None:
        """Forget a model: in one step out of sight, then from the disk."""
        with self._reaching():
            if self._folder(model).exists():
                self._folder(model).rename(self._models / f"{ASIDE}{secrets.token_hex(8)}")
            for path in self._models.glob(f"{ASIDE}*"):
                shutil.rmtree(path, ignore_errors=True)

    def publish(self, snapshot: Snapshot, epoch: str, held: str = "") -> Written:
        """Keep the snapshot, and make it live."""
        with self._reaching():
            return super().publish(snapshot, epoch, held)

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

    def move(self, model: str, version: int | None, pin: bool) -> Pointer:
        """Point at a kept version."""
        with self._reaching():
            return super().move(model, version, pin)

    def watch(self, models: Iterable[str]) -> Watch:
        """A look at the journals every few milliseconds."""
        with self._reaching():
            return DirectoryWatch({model: self.journal(model) for model in models}, self._reaching)

    def _make_folders(self) -> None:
        self._models.mkdir(parents=True, exist_ok=True)
        self._marks.mkdir(exist_ok=True)
        identify(self.path / "store-id")

    def _checkpoints(self, model: str) -> CheckpointFolder:
        return CheckpointFolder(self._folder(model) / "checkpoints", model)

    def _folder(self, model: str) -> Path:
        return self._models / encoded(model)

    def _mark(self, partition: Partition) -> Path:
        return self._marks / f"{encoded(partition.topic_id)}.{partition.number}"

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"store {self}: {error}: check that the folder is there, writable and not full") from error


def encoded(name: str) -> str:
    """A name as one part of a path: percent-encoded, and neither hidden nor ``..``."""
    escaped = quote(name, safe="")
    return f"%2E{escaped[1:]}" if escaped.startswith(".") else escaped


def read_mark(path: Path) -> int:
    """The offset in this file; raises StoreError where it is damaged."""
    content = path.read_text(errors="replace")
    if not content.strip().isascii() or not content.strip().isdigit():
        raise StoreError(f"{path}: {content[:40]!r}, expected an offset: write the one to replay from into it")
    return int(content)
