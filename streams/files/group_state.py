"""What a group keeps on disk about a log: its committed offset, and the lock that makes one process its reader."""

from __future__ import annotations

import fcntl
import os
from typing import Annotated
from urllib.parse import quote

import msgspec

from omdml.errors import GapError, SourceError
from omdml.formats import COMMIT, NumberedLater
from omdml.streams.bounded_files import open_regular, read_regular
from omdml.streams.disk import put, take_lock
from omdml.streams.files.log import OFFSET_BITS, Log, reaching

COMMIT_BYTES = 64 << 10

# Seconds to try to take the lock: GroupState.reader holds it only for a moment.
LOOK_S = 0.1


class Committed(msgspec.Struct, frozen=True):
    """The content of ``<group>.commit``. ``fingerprint``: sha256 of the first line of the segment at the offset."""

    topic_id: str
    offset: Annotated[int, msgspec.Meta(ge=0)]
    fingerprint: str | None = None
    format: int = COMMIT.number

    @property
    def segment(self) -> int:
        """Number of the segment that the offset lies in."""
        return self.offset >> OFFSET_BITS


class GroupState:
    """What one group keeps beside a log. Take the lock before writing."""

    def __init__(self, log: Log, group: str) -> None:
        self.log, self.group = log, group
        name = quote(group, safe="")
        self.path, self._lock_path = log.beside(f"{name}.commit"), log.beside(f"{name}.lock")
        self._lock: int | None = None

    def lock(self) -> None:
        """Become the group's only reader until this process ends; raises SourceError if there is another reader."""
        with reaching(self._lock_path):
            descriptor = open_regular(self._lock_path, os.O_RDWR | os.O_CREAT)
            if not take_lock(descriptor, fcntl.LOCK_EX, LOOK_S):
                holder = _holder(descriptor)
                os.close(descriptor)
                raise SourceError(
                    f"feedback log {self.log.path}: group {self.group!r} is read by process {holder} already, and a "
                    "file log has only one reader for each group. Stop that process, or choose another group"
                )
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        self._lock = descriptor

    def reader(self) -> str:
        """The number of the process that reads as this group now; empty if none does.

        It takes a shared lock for a moment to find out. That is why :meth:`lock` tries for longer than a moment.
        """
        with reaching(self._lock_path):
            try:
                descriptor = open_regular(self._lock_path, os.O_RDONLY)
            except FileNotFoundError:
                return ""
            try:
                return "" if take_lock(descriptor, fcntl.LOCK_SH) else _holder(descriptor)
            finally:
                os.close(descriptor)

    def unlock(self) -> None:
        """Release the lock, so that another reader can take over."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self) -> Committed | None:
        """What was committed last; None if nothing was committed yet.

        Raises GapError if it belongs to another log, SourceError if the file is damaged.
        """
        with reaching(self.path):
            if not self.path.exists():
                return None
            data = read_regular(self.path, COMMIT_BYTES)
        try:
            COMMIT.check(msgspec.json.decode(data, type=NumberedLater).format, str(self.path), SourceError)
            committed = msgspec.json.decode(data, type=Committed)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise SourceError(
                f"{self.path}: damaged ({error}): remove it; the store also records how far each model has read"
            ) from error
        if committed.topic_id != self.log.topic_id:
            raise GapError(
                f"{self.path}: it was committed in log {committed.topic_id}, but {self.log.path} was made again since "
                f"and is now log {self.log.topic_id}: remove {self.path.name} to read this log from its beginning"
            )
        return committed

    def write(self, committed: Committed) -> None:
        """Replace what was committed; a crash leaves the old or the new file, whole."""
        with reaching(self.path):
            put(self.path, msgspec.json.encode(committed))


def _holder(descriptor: int) -> str:
    """What the holder of a lock wrote into its file: its process number."""
    return os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
