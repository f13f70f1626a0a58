"""Appending whole lines to one file that other processes append to as well."""

from __future__ import annotations

import os
from pathlib import Path

from omdml.streams.bounded_files import open_regular


class Appender:
    """An open file that grows. Its methods are called under the log's lock, and nobody else appends meanwhile."""

    def __init__(self, path: Path) -> None:
        self._descriptor = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._inode = os.fstat(self._descriptor).st_ino
        # The size up to which the file is known to end in a newline.
        self._whole = 0
        self._dirty = False

    def is_at(self, path: Path) -> bool:
        """Whether the file at this path is still the one that is open here."""
        try:
            return os.stat(path).st_ino == self._inode
        except FileNotFoundError:
            return False

    def has_room(self, length: int, limit: int) -> bool:
        """Whether a line of this length fits below the limit; an empty file takes any line."""
        size = os.fstat(self._descriptor).st_size
        return not size or size + length <= limit

    def room(self, limit: int) -> int:
        """How many more bytes fit below the limit."""
        return limit - os.fstat(self._descriptor).st_size

    def append(self, line: bytes) -> None:
        """Write one or more lines. If a killed writer or a full disk left a torn line, it is ended first.

        If this fails, a part of the lines may stay in the file, again as a torn line. It is not cut off: readers may
        have read it already, so a log must never shrink.
        """
        size = os.fstat(self._descriptor).st_size
        if size not in (0, self._whole) and os.pread(self._descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        written = 0
        # A write is incomplete only if the disk is full; the next one then raises the error.
        while written < len(line):
            written += os.write(self._descriptor, line[written:])
        self._whole, self._dirty = size + written, True

    def sync(self) -> None:
        """Wait until what was appended is on the disk."""
        if self._dirty:
            os.fsync(self._descriptor)
            self._dirty = False

    def close(self) -> None:
        """Close the file, without waiting for the disk."""
        os.close(self._descriptor)
