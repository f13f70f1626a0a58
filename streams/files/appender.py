"""Appending whole lines to one file that other processes append to as well."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from omdml.streams.bounded_files import open_regular

# It leaves the size of the file as it is, which os.posix_fallocate does not.
KEEP_SIZE = 1
# Answers of file systems, and of kernels, that reserve no room.
UNKNOWN = {errno.EOPNOTSUPP, errno.ENOSYS}
# Python has no function for fallocate. Systems other than Linux do not have it either.
_fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)


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
        """Write one or more lines, all or none of them. If a killed writer left a torn line, it is ended first.

        Room on the disk is reserved before anything is written. What was written cannot be cut off again, because
        readers may have read it already, so a log must never shrink. On a file system that reserves no room, a full
        disk may leave a part of the lines.
        """
        size = os.fstat(self._descriptor).st_size
        if size not in (0, self._whole) and os.pread(self._descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        reserve(self._descriptor, size, len(line))
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


def reserve(descriptor: int, offset: int, length: int) -> None:
    """Have room on the disk for these bytes of a file; raises OSError if there is none."""
    if _fallocate is None:
        return
    while _fallocate(descriptor, KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(length)) == -1:
        number = ctypes.get_errno()
        if number in UNKNOWN:
            return
        # A call that a signal interrupted must be made again.
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
