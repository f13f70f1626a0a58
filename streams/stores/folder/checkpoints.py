"""The checkpoints of one model in a folder: one folder for each owner, and in it one file for each checkpoint.

The names say everything that orders them, ``<epoch>/<number>.<next>.<partition>.<sha256>.<topic id>.checkpoint``: the
highest epoch owns the model, its highest number is the newest checkpoint. Nothing is ever written over, so a process
that wakes up late leaves at most a file that comes before the others.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from omdml.errors import CorruptError
from omdml.snapshot import Checkpoint
from omdml.streams.bounded_files import opened, read_regular
from omdml.streams.disk import put, sync
from omdml.streams.protocols.store import Claim, ModelPosition, Written
from omdml.streams.stores.checkpoints import Saved, next_epoch, none_left, none_valid, read_checkpoint
from omdml.streams.stores.folder.states import read_state

EPOCH = re.compile(r"\d{10}-[0-9a-f]{16}")
NAME = re.compile(r"(\d{12})\.(\d+)\.(\d+)\.([0-9a-f]{64})\.(.+)\.(checkpoint|damaged)")
KEPT = 2
# This file is there once a checkpoint was saved.
EVER_SAVED = "saved"
MAX_NUMBER_BYTES = 100


class CheckpointFile(NamedTuple):
    """A checkpoint by its name; these sort from the oldest to the newest."""

    epoch: str
    number: int
    saved: Saved
    damaged: bool
    path: Path


class CheckpointFolder:
    """The owners of a model, and their checkpoints.

    Parameters
    ----------
    last
        The file with the number of the checkpoint that was saved last. It lies outside the model's folder, so that
        checkpoints put back by hand do not bring their own. It is never ahead of what was saved, and may be behind.
    """

    def __init__(self, path: Path, model: str, last: Path) -> None:
        self.path, self.model, self._last = path, model, last

    def owner(self) -> str | None:
        """The epoch of the model's owner; None if the model was never claimed."""
        return max(self._epochs(), default=None)

    def position(self) -> ModelPosition | None:
        """The position of the newest checkpoint that is not known to be damaged; None if there is none."""
        files = self._files()
        newest = ([file for file in files if not file.damaged] or files)[-1:]
        return newest[0].saved.position if newest else None

    def peek(self) -> Checkpoint | None:
        """The newest checkpoint that can be read."""
        for file in reversed(self._files()):
            # It may have been dropped since we looked, because a newer one took its place.
            with suppress(FileNotFoundError):
                data = b"" if file.damaged else read_state(file.path)
                if checkpoint := read_checkpoint(self.model, data, str(file.path), quiet=True):
                    return checkpoint
        return None

    def fell_back(self) -> bool:
        """Whether the newest checkpoint is damaged, one was saved after it, or none is left of those saved."""
        files = self._files()
        if not files:
            return (self.path / EVER_SAVED).exists()
        return files[-1].damaged or self._lacks_newest(files)

    def claim(self) -> Claim:
        """Become the owner, and read the newest checkpoint that can be read."""
        epoch = self._become_owner()
        while True:
            try:
                return self._resume(epoch)
            except FileNotFoundError:
                # The owner before us was just saving, and dropped what we were about to read.
                continue
            except CorruptError as error:
                error.epoch = epoch
                raise

    def save(
        self, checkpoint: Checkpoint, epoch: str, back: bool = False, ready: Callable[[], None] | None = None
    ) -> Written:
        """Add a checkpoint of this epoch, which owns the model. ``ready`` is called just before it is there.

        1. Write it, under a name of its own. A crash within leaves a temporary file, which is deleted with its epoch.
        2. Note that one was saved. After a crash before this, nobody would notice if the only checkpoint were removed.
        3. Look whether the epoch still owns the model: a later owner may have claimed the checkpoint before this one.
        4. Note its number, without waiting for the disk. After a crash before this, an older number stays: a removed or
           replaced checkpoint may go unnoticed.
        5. Drop all but the two newest. A crash within leaves one file too many.
        """
        data = checkpoint.to_bytes()
        saved = Saved.of(checkpoint, data)
        files = self._files()
        sound = [file for file in files if not file.damaged]
        outcome = saved.replaces(sound[-1].saved if sound else None, back)
        if outcome is Written.STORED:
            number = files[-1].number + 1 if files else 1
            try:
                put(self.path / epoch / file_name(number, saved), data, ready=ready)
                if not (self.path / EVER_SAVED).exists():
                    (self.path / EVER_SAVED).touch()
                    sync(self.path)
            except FileNotFoundError:
                # A later owner, or whoever deleted the model, has removed the folder of this epoch.
                return Written.FENCED
            if self.owner() != epoch:
                return Written.FENCED
            self._note_last(number)
            if sound:
                self._drop_old()
        return outcome

    def drop_earlier(self) -> None:
        """Drop all but the newest sound checkpoint, and the folders of earlier owners.

        1. Drop the others of its epoch, then give it number 1: alone with a higher number, it looks as if a newer one
           was removed. A crash in between may leave it so until this is called again.
        2. Drop the folders of earlier owners. A crash leaves some of them.
        """
        files = self._files()
        newest = next((file for file in reversed(files) if not file.damaged), None)
        if newest is None:
            return
        for file in files:
            if file.epoch == newest.epoch and file != newest:
                file.path.unlink(missing_ok=True)
        self._note_last(1)
        newest.path.replace(newest.path.with_name(file_name(1, newest.saved)))
        self._drop_epochs_before(newest.epoch)

    def _become_owner(self) -> str:
        self.path.mkdir(parents=True, exist_ok=True)
        while True:
            epoch = next_epoch(self.owner())
            (self.path / epoch).mkdir()
            sync(self.path)
            # If not, another process came first with the same counter and a higher nonce.
            if self.owner() == epoch:
                return epoch

    def _resume(self, epoch: str) -> Claim:
        files = self._files()
        fell_back = self._lacks_newest(files)
        for file in reversed(files):
            if not file.damaged:
                checkpoint = read_checkpoint(self.model, read_state(file.path), str(file.path))
                if checkpoint:
                    return Claim(epoch, checkpoint, fell_back)
                # The new name says that it is damaged, to the next claim and to people.
                file.path.replace(file.path.with_suffix(".damaged"))
            fell_back = True
        if files:
            raise none_valid(self.model, str(self.path))
        if (self.path / EVER_SAVED).exists():
            raise none_left(self.model, str(self.path))
        return Claim(epoch, None)

    def _lacks_newest(self, files: list[CheckpointFile]) -> bool:
        """Whether an older checkpoint was put in the place of the newest, or one of two was removed.

        It may have been the newer one.
        """
        return bool(files) and (files[-1].number < self._read_last() or len(files) == 1 < files[0].number)

    def _note_last(self, number: int) -> None:
        with opened(self._last, "wb", buffering=0) as file:
            file.write(b"%d\n" % number)

    def _read_last(self) -> int:
        """The number of the checkpoint that was saved last, as far as is known; 0 if it is not."""
        try:
            content = read_regular(self._last, MAX_NUMBER_BYTES).strip()
        except FileNotFoundError:
            return 0
        # A crash of the machine may leave it empty.
        return int(content) if content.isdigit() else 0

    def _drop_old(self) -> None:
        files = self._files()
        for oldest in [file for file in files if not file.damaged][-KEPT:-1]:
            for file in files[: files.index(oldest)]:
                file.path.unlink(missing_ok=True)
            self._drop_epochs_before(oldest.epoch)

    def _drop_epochs_before(self, first: str) -> None:
        for epoch in self._epochs():
            if epoch < first:
                shutil.rmtree(self.path / epoch, ignore_errors=True)

    def _epochs(self) -> list[str]:
        try:
            return sorted(filter(EPOCH.fullmatch, os.listdir(self.path)))
        except FileNotFoundError:
            return []

    def _files(self) -> list[CheckpointFile]:
        """The model's checkpoint files, the oldest first."""
        files = []
        for epoch in self._epochs():
            for path in (self.path / epoch).glob("[0-9]*"):
                if match := NAME.fullmatch(path.name):
                    number, offset, partition, digest, topic, kind = match.groups()
                    saved = Saved((unquote(topic), int(partition)), int(offset), digest)
                    files.append(CheckpointFile(epoch, int(number), saved, kind == "damaged", path))
        return sorted(files)


def file_name(number: int, saved: Saved) -> str:
    """The name of the checkpoint with this number in its epoch."""
    (topic, partition), offset, digest = saved
    return f"{number:012d}.{offset}.{partition}.{digest}.{quote(topic, safe='')}.checkpoint"
