"""Reads whole lines from one file while others append to it."""

from __future__ import annotations

import os
from collections import deque
from typing import NamedTuple

from omdml.feedback import MAX_EVENT_BYTES

CHUNK_BYTES = 1 << 20
# Segments are told apart by at most this many bytes of their first line.
FIRST_LINE_BYTES = 4096
# Longer lines are cut. JSON may need six bytes for one byte of an event.
MAX_LINE_BYTES = 8 * MAX_EVENT_BYTES
# How much of a longer line is delivered: enough that the decoder refuses it as oversize.
CUT_LINE_BYTES = MAX_EVENT_BYTES + 8192


class Lines(NamedTuple):
    """Whole lines without their newlines; ``start`` is the byte offset of the first one.

    If a line was cut, it is the only one in ``lines``, and ``length`` is its true length in bytes; otherwise None.
    """

    start: int
    lines: list[bytes]
    length: int | None = None


class Tail:
    """Reads the lines of an open file that begin at byte ``start`` or later. :meth:`close` closes the descriptor.

    An unfinished last line waits for its rest. Memory is bounded by ``MAX_LINE_BYTES`` and a few chunks.
    """

    def __init__(self, descriptor: int, start: int) -> None:
        self.descriptor = descriptor
        self.first_line = read_first_line(descriptor)
        # Reading begins one byte before the start: so the first newline leads to the beginning of a line, whether the
        # start is one or is inside a line.
        self._skipping = start > 0
        self._read = max(start - 1, 0)
        # The byte offset at which the unfinished line begins.
        self._begin = start
        # What was read of the unfinished line.
        self._rest = b""
        # The beginning of an unfinished line that became too long.
        self._cut: bytes | None = None
        self._ready: deque[Lines] = deque()

    @property
    def position(self) -> int:
        """The byte offset at which the next line to be taken begins."""
        return self._ready[0].start if self._ready else self._begin

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return os.fstat(self.descriptor).st_size

    @property
    def end(self) -> int:
        """The byte offset after the last whole line, as far as it is known."""
        size = self.size
        return self._begin if size == self._read else size

    def take(self, most: int) -> Lines | None:
        """Return at most this many of the lines that were read; None if there are none."""
        if not self._ready:
            return None
        start, lines, length = self._ready.popleft()
        if len(lines) <= most:
            return Lines(start, lines, length)
        taken = lines[:most]
        self._ready.appendleft(Lines(start + most + sum(map(len, taken)), lines[most:]))
        return Lines(start, taken)

    def fill(self, ended: bool) -> bool:
        """Read until lines are ready, or to the end; False if the file shrank or was rewritten in the meantime.

        ``ended`` says that nothing will be appended: then the last line counts as whole without a newline.
        """
        if self.first_line is None:
            self.first_line = read_first_line(self.descriptor)
        if self.first_line is None and not ended:
            return True
        # The writer may have taken back what was read of the unfinished line.
        if self._rest and self.size > self._read:
            self._read, self._rest = self._begin, b""
        while not self._ready:
            chunk = os.pread(self.descriptor, CHUNK_BYTES, self._read)
            if not chunk:
                if ended:
                    self._finish()
                return self.size >= self._read
            if read_first_line(self.descriptor) != self.first_line:
                return False
            self._read += len(chunk)
            self._split(chunk)
        return True

    def close(self) -> None:
        os.close(self.descriptor)

    def _split(self, chunk: bytes) -> None:
        if self._skipping:
            _, newline, chunk = chunk.partition(b"\n")
            if not newline:
                return
            self._skipped(self._read - len(chunk))
        whole, newline, rest = (self._rest + chunk).rpartition(b"\n")
        if newline:
            self._ready.append(Lines(self._begin, whole.split(b"\n")))
            self._begin = self._read - len(rest)
        self._rest = rest
        if len(rest) > MAX_LINE_BYTES:
            self._cut, self._rest, self._skipping = rest[:CUT_LINE_BYTES], b"", True

    def _skipped(self, begin: int, newline: int = 1) -> None:
        """The line that was passed over has ended; the next one begins at byte ``begin``."""
        if self._cut is not None:
            self._ready.append(Lines(self._begin, [self._cut], begin - newline - self._begin))
        self._skipping, self._cut, self._begin = False, None, begin

    def _finish(self) -> None:
        """Treat the unfinished last line as a whole one."""
        if self._skipping:
            self._skipped(self._read, newline=0)
        elif self._rest:
            self._ready.append(Lines(self._begin, [self._rest]))
            self._begin, self._rest = self._read, b""


def read_first_line(descriptor: int) -> bytes | None:
    """The first line of an open file, at most ``FIRST_LINE_BYTES`` of it; None as long as it is unfinished."""
    head = os.pread(descriptor, FIRST_LINE_BYTES, 0)
    line, newline, _ = head.partition(b"\n")
    return line if newline or len(head) == FIRST_LINE_BYTES else None
