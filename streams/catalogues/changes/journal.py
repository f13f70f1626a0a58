"""The journal of a folder's changes: a line of text for all changes that were made together.

A line is the CRC-32 of what follows in eight hexadecimal digits, a space, JSON, and a line feed. The vectors of what
was put lie in the matrices. A last line that is not whole was never finished: readers wait, and the next writer
overwrites it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from omdml.errors import CatalogueError
from omdml.streams.bounded_files import opened
from omdml.streams.catalogues.changes.change import ChangeEntry
from omdml.streams.disk import sync, take_lock

CHANGES = "changes.log"
CRC_DIGITS = 8


class JournalLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Changes that were made together.

    ``row`` is the number of the first row that they put, ``sha256`` has a digest of the rows of each matrix.
    """

    row: int
    entries: list[ChangeEntry]
    sha256: dict[str, str] = {}

    @property
    def rows(self) -> int:
        """How many rows the changes of this line add."""
        return sum(entry.put for entry in self.entries)


class NewLines(NamedTuple):
    """Lines of a journal, and the byte after each."""

    lines: Sequence[JournalLine]
    ends: Sequence[int]


_decoder = msgspec.json.Decoder(JournalLine)


def append(folder: Path, offset: int, line: JournalLine) -> None:
    """Write a line behind the ``offset`` bytes that are whole, and wait for the disk.

    A crash leaves a line that is not whole, or a whole one that nobody was told of.
    """
    path, content = folder / CHANGES, msgspec.json.encode(line)
    data = b"%08x %b\n" % (zlib.crc32(content), content)
    new = not path.exists()
    with opened(path, "wb" if new else "r+b") as file:
        file.truncate(offset)
        file.seek(offset)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync(folder)


def read(folder: Path, offset: int) -> NewLines:
    """The whole lines behind the first ``offset`` bytes; raises CatalogueError for a damaged one before the last."""
    path = folder / CHANGES
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < offset:
                raise CatalogueError(
                    f"{path} has {size} bytes, expected at least the {offset} that were read before: restore it, or "
                    "restart this process to open the catalogue as it is now"
                )
            file.seek(offset)
            data: bytes = file.read(size - offset)
    except FileNotFoundError:
        if offset:
            raise CatalogueError(
                f"{path} is gone: restore it, or restart this process to open the catalogue as it is now"
            ) from None
        return NewLines([], [])
    except OSError as error:
        raise CatalogueError(f"{path}: {error.strerror}: restore it, or build the catalogue again") from error
    return _parsed(path, data, offset)


def _parsed(path: Path, data: bytes, offset: int) -> NewLines:
    lines, ends, begin = [], [], 0
    while (end := data.find(b"\n", begin) + 1) > 0:
        line = data[begin : end - 1]
        try:
            if line[:CRC_DIGITS] != b"%08x" % zlib.crc32(line[CRC_DIGITS + 1 :]):
                raise ValueError("its checksum does not fit")
            lines.append(_decoder.decode(line[CRC_DIGITS + 1 :]))
        except (msgspec.DecodeError, ValueError) as error:
            if end == len(data):
                break
            raise CatalogueError(
                f"{path}: the record at byte {offset + begin} is damaged ({error}): restore it, or build the catalogue "
                "again"
            ) from error
        ends.append(offset + end)
        begin = end
    return NewLines(lines, ends)


@contextmanager
def locked(folder: Path, for_s: float = 0.0) -> Iterator[None]:
    """Keep other writers out of the folder, after waiting for them up to ``for_s``; a process that dies lets them in.

    Raises CatalogueError if another one holds it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not take_lock(descriptor, for_s=for_s) or not os.path.samestat(os.fstat(descriptor), os.stat(folder)):
            raise CatalogueError(f"{folder}: another process is writing there: try again when that process is done")
        yield
    finally:
        os.close(descriptor)
