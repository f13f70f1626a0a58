"""A store in a folder; streams/stores/folder/layout.py says what lies where."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from omdml.errors import CorruptError, StoreLost
from omdml.snapshot import Checkpoint, Snapshot
from omdml.streams.disk import ASIDE
from omdml.streams.placement import Assumed, Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import NOBODY, Claim, ModelPosition, Pointer, Watch, Why, Written
from omdml.streams.stores.checkpoints import placed_elsewhere
from omdml.streams.stores.folder.checkpoints import CheckpointFolder
from omdml.streams.stores.folder.journal import DirectoryJournal, DirectoryWatch
from omdml.streams.stores.folder.layout import DirectoryLayout
from omdml.streams.stores.folder.marks import DirectoryMarks
from omdml.streams.stores.journaled import JournaledSnapshots
from omdml.streams.stores.many import the_only, together
from omdml.streams.stores.retention import RETENTION, RetentionOf


class DirectoryStore(DirectoryMarks, JournaledSnapshots):
    """A Store (see streams/protocols/store.py); any number of processes and threads may use it.

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
        DirectoryLayout.__init__(self, path)
        JournaledSnapshots.__init__(self, retention)

    def owner(self, model: str) -> str | None:
        """The epoch that owns the model."""
        return self._checkpoints(model).owner()

    def journal(self, model: str) -> DirectoryJournal:
        """The journal of a model's publications and moves."""
        return DirectoryJournal(self._folder(model))

    def claim(self, model: str) -> Claim:
        return the_only(self.claim_all([model]))

    def claim_all(self, models: Sequence[str]) -> list[Claim | CorruptError | StoreLost]:
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
        with self._reaching():
            return self._checkpoints(model).peek()

    def fell_back(self, model: str) -> bool:
        with self._reaching():
            return self._checkpoints(model).fell_back()

    def save(
        self,
        checkpoint: Checkpoint,
        epoch: str,
        back: bool = False,
        placement: Placement | None = None,
        ready: Callable[[], None] | None = None,
    ) -> Written:
        """Keep this checkpoint and the one before it. ``ready`` is called just before it is there.

        A look at the placement and a write: what a process that slept in between wrote is refused by its model's new
        home (workers/learning/partition/claim_checks.py).
        """
        with self._reaching():
            if self.required_owner(checkpoint.model) != epoch:
                return Written.FENCED
            if placement and placed_elsewhere(placement, self.placement(checkpoint.home[0])):
                return Written.MOVED
            return self._checkpoints(checkpoint.model).save(checkpoint, epoch, back, ready)

    def replace(self, checkpoint: Checkpoint, epoch: str, reread: int, placement: Placement | None = None) -> Written:
        """Keep this checkpoint, and have its partition read again.

        Owners begin again before and after it is kept: before it for a crash in between, after it for an owner that
        looks in between. The first time comes when the bytes are on the disk. An owner that began again before that
        could still claim the checkpoint before this one, or pass over the events which that one has.
        """
        home = Partition(*checkpoint.home)

        def read_again() -> None:
            self.read_again(home, reread)

        written = self.save(checkpoint, epoch, True, placement, read_again)
        if written in (Written.STORED, Written.ALREADY):
            read_again()
        return written

    def save_all(
        self, saves: Sequence[tuple[Checkpoint, str]], placement: Placement | None = None
    ) -> list[Written | CorruptError | StoreLost]:
        return together(self.save, ((*save, False, placement) for save in saves))

    def models(self) -> list[str]:
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

    def publish(self, snapshot: Snapshot, epoch: str, withheld: str = "", assumed: Assumed | None = None) -> Written:
        """Keep the snapshot, and make it live."""
        with self._reaching():
            return super().publish(snapshot, epoch, withheld, assumed)

    def publish_all(
        self, publications: Sequence[tuple[Snapshot, str, str]], assumed: Assumed | None = None
    ) -> list[Written | CorruptError | StoreLost]:
        """Keep each of these, and make it live."""
        return together(self.publish, ((*publication, assumed) for publication in publications))

    def current(self, model: str) -> Pointer | None:
        with self._reaching():
            return super().current(model)

    def load(self, model: str, version: int | None = None) -> tuple[Pointer, Snapshot] | None:
        """The live snapshot, or the kept one of ``version``."""
        with self._reaching():
            return super().load(model, version)

    def history(self, model: str) -> list[dict[str, Any]]:
        """Publications and moves of a model, the oldest first."""
        with self._reaching():
            return super().history(model)

    def move(self, model: str, version: int | None, pin: bool, why: Why = NOBODY) -> Pointer:
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
        return DirectoryWatch({model: self.journal(model) for model in models}, self._reaching)

    def _checkpoints(self, model: str) -> CheckpointFolder:
        return CheckpointFolder(self._folder(model) / "checkpoints", model, self._last(model))
