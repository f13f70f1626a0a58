"""The only way to open a file whose path comes from outside: it must be a regular file of bounded size.

A named pipe would wait for a writer, ``/dev/zero`` never ends, and a sparse file claims a terabyte for nothing. All of
them are refused before a byte is read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
}
# The most bytes of a checkpoint or a snapshot.
STATE_BYTES = 2 << 30
# The most bytes of a manifest, a configuration, or a journal's entry.
DOCUMENT_BYTES = 64 << 20
SECRET_BYTES = 64 << 10
# The longest line of CSV: about 700,000 numbers.
LINE_CHARACTERS = 16 << 20


class Unfit(OSError):
    """A file that is not a regular file, or is larger than allowed."""


def open_regular(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file; raises Unfit, or OSError as ``os.open`` does."""
    # Without O_NONBLOCK, opening a pipe would wait for its other end. Regular files ignore the flag.
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise Unfit(errno.EINVAL, f"it is {KINDS.get(kind, 'of another kind')}, expected a regular file", str(path))
    return descriptor


def opened(path: str | Path, mode: str = "rb", **how: Any) -> IO[Any]:
    """Open a regular file, with the further arguments of ``open``."""
    return open(path, mode, **how, opener=open_regular)


def read_regular(path: str | Path, limit: int) -> bytes:
    """All of a regular file; raises Unfit if it has more than ``limit`` bytes, before they are read."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        # A read allocates all its memory at once. So ask for the known size first, and for more if the file grew.
        data: bytes = file.read(size + 1) if size <= limit else b""
        if len(data) > size:
            data += file.read(limit - size)
    if size > limit or len(data) > limit:
        raise Unfit(errno.EFBIG, f"it has {max(size, len(data)):,} bytes, expected at most {limit:,}", str(path))
    return data


def text_lines(path: str | Path, limit: int, **how: Any) -> Iterator[str]:
    """The lines of a regular text file, newlines kept; raises Unfit at one of more than ``limit`` characters."""
    number = 0
    with opened(path, "r", **how) as file:
        while line := file.readline(limit + 1):
            number += 1
            if len(line) > limit:
                raise Unfit(errno.EFBIG, f"line {number} has more than {limit:,} characters", str(path))
            yield line
