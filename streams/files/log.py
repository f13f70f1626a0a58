"""What every log in files has: segments with ascending numbers, and an identity.

A position in the log is ``segment number << 40 | byte offset``. The identity is in a file of its own. The first process
that opens the log makes it, and it is never replaced: so a lock on this file is the lock of the log.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from omdml.errors import SourceError, quoted
from omdml.streams.bounded_files import opened
from omdml.streams.disk import put_if_absent

OFFSET_BITS = 40
IDENTITY_BYTES = 33
# The number of a log's first segment.
FIRST = 1


class Log(Protocol):
    """The segments of a log: their paths and their order."""

    path: Path
    identity: Path
    topic_id: str

    def oldest(self) -> int:
        """Number of the oldest segment; if there is none, the number that the first one will have."""

    def newest(self) -> tuple[int, int]:
        """Number and size in bytes of the newest segment that holds a line; ``(FIRST, 0)`` if there is none."""

    def open(self, number: int) -> int | None:
        """A file descriptor that reads this segment; None if the segment does not exist yet.

        Raises GapError if this segment, or a later one, existed once and is gone.
        """

    def successor(self, number: int, descriptor: int) -> int | None:
        """The number of the segment after this open one; None as long as this one may still grow.

        Raises GapError if this one is gone.
        """

    def growing(self) -> Path:
        """The file to append to; it may not exist yet."""

    def next_segment(self) -> Path | None:
        """The file to go on with when the growing one is full; None if another program rotates the log."""

    def thin_out(self, most: int) -> list[str]:
        """Remove the oldest segments until the others have at most ``most`` bytes; returns the names of removed files.

        The growing one is never removed. If another program rotates the log, nothing is.
        """

    def beside(self, name: str) -> Path:
        """The path of a file about the log, such as the state of a group."""


def size_of_segment(log: Log, number: int) -> int:
    """The bytes of a segment; 0 if it does not exist yet. Raises GapError if it is gone."""
    descriptor = log.open(number)
    if descriptor is None:
        return 0
    try:
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def identify(path: Path) -> str:
    """The identity in this file: a uuid on its first line. It is made now if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return read_identity(path)
    put_if_absent(path, f"{uuid.uuid4().hex}\n".encode(), path.parent)
    return read_identity(path)


def read_identity(path: Path) -> str:
    """The identity in a file; raises FileNotFoundError, and SourceError if it is damaged."""
    with opened(path) as file:
        data: bytes = file.readline(IDENTITY_BYTES).removesuffix(b"\n")
    if not re.fullmatch(b"[0-9a-f]{32}", data):
        raise SourceError(f"{path}: holds {quoted(data)}, expected 32 hexadecimal digits: restore it from a backup")
    return data.decode()


@contextlib.contextmanager
def reaching(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into a SourceError that names the log."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"feedback log {path}: {error}: check that it is there, writable and not full") from error
