"""A store in a folder: for one machine, or several that share a file system with atomic links and renames.

==================================================  ================================================================
``store-id``                                        a random id, made once
``format``                                          number of this layout (omdml/formats.py)
``secret``                                          which events are held out; only its owner may read it
``replacements``                                    how often a checkpoint was replaced, or a mark moved, from outside
                                                    of workers, and where partitions are read again for that
``owners``                                          locked by every process that owns models
``marks/<topic id>.<partition>``                    an offset, in digits, and how many replacements its owner knew of
``marks/<name>.saved``                              number of the checkpoint of a model that was saved last
``marks/<topic id>.group``                          the group that reads the log
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
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from omdml.errors import StoreError, quoted
from omdml.formats import FOLDER_STORE
from omdml.streams.bounded_files import open_regular, read_regular
from omdml.streams.disk import put, take_lock
from omdml.streams.files.log import identify, read_identity
from omdml.streams.protocols.log import Partition

MAX_NUMBER_BYTES = 100
# Seconds that an owner waits until a backup is in place.
RESTORE_S = 60.0


class DirectoryLayout:
    """What every part of a store in a folder works with: paths, the format, and the lock of those who own models."""

    def __init__(self, path: Path | str) -> None:
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
            raise FileNotFoundError(errno.ENOENT, "it disappeared while omdml ran", str(self.path))
        return self._seen

    def _check_format(self) -> int | None:
        """The number of the layout, None if none is written there yet; refuses the layout of another release.

        A folder without a number was written before layouts had numbers, and has layout 1.
        """
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self.path))
        path = self.path / "format"
        number = read_number(path, "the number of the layout") if path.exists() else None
        if number is not None or (self.path / "store-id").exists():
            FOLDER_STORE.check(1 if number is None else number, f"store {self}", StoreError)
        return number

    def _folder(self, model: str) -> Path:
        return self._models / encoded(model)

    def _mark(self, partition: Partition) -> Path:
        return self._marks / f"{encoded(partition.topic_id)}.{partition.number}"

    def _last(self, model: str) -> Path:
        return self._marks / f"{encoded(model)}.saved"

    def _group(self, topic_id: str) -> Path:
        return self._marks / f"{encoded(topic_id)}.group"

    def _placement(self, topic_id: str) -> Path:
        return self._placements / f"{encoded(topic_id)}.json"

    def lock_owners(self, kind: int, for_s: float = 0.0) -> int | None:
        """A descriptor that holds the lock of all who own models; None if others hold it."""
        descriptor = open_regular(self.path / "owners", os.O_RDONLY | os.O_CREAT)
        if take_lock(descriptor, kind, for_s):
            return descriptor
        os.close(descriptor)
        return None

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
    return read_numbers(path, expected, 1)[0]


def read_numbers(path: Path, expected: str, most: int) -> list[int]:
    """At least one whole number in this file, and at most so many; raises StoreError if it holds anything else."""
    content = read_regular(path, MAX_NUMBER_BYTES).decode(errors="replace")
    words = content.split()
    if not 0 < len(words) <= most or not all(word.isascii() and word.isdigit() for word in words):
        raise StoreError(f"{path} holds {quoted(content)}, expected {expected}")
    return [int(word) for word in words]
