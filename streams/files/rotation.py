"""A log that is one growing file. Another program, such as ``logrotate``, renames it, or copies and truncates it.

``clicks.jsonl`` becomes ``clicks.jsonl.1``, ``clicks.jsonl-20260101`` or ``clicks-20260101.jsonl``. A segment is
recognized by its first line and its inode. The ledger ``clicks.jsonl.id`` records the numbers of the segments: the
log's identity is on its first line, and ``number inode sha256`` of a segment on each of the others.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from omdml.errors import GapError, SourceError
from omdml.streams.bounded_files import open_regular, opened
from omdml.streams.disk import locked
from omdml.streams.files.log import FIRST, identify, reaching
from omdml.streams.files.tail import read_first_line

LEDGER_LINE = re.compile(rb"(\d{1,19}) (\d{1,20}) ([0-9a-f]{64})")
# A writer may go on for a moment in a file that was renamed under it.
QUIET_S = 1.0


class Segment(NamedTuple):
    """A line of the ledger: a segment, with the inode and the hash of the first line of its file."""

    number: int
    inode: int
    sha256: str


class LogFile(NamedTuple):
    """A file of the log as it is now. ``modified`` is in nanoseconds, ``sha256`` that of its first line."""

    path: Path
    inode: int
    modified: int
    size: int
    sha256: str


def identity_of_file(path: Path) -> Path:
    """The path of the file that holds the identity of a log in one growing file."""
    return path.with_name(path.name + ".id")


class RotatedLog:
    """A growing file, and the files that it was renamed to.

    Rotated files that are compressed, or that have no whole line, are ignored.

    Parameters
    ----------
    path
        The growing file.
    quiet_s
        A rotated file counts as finished when it was unchanged for this many seconds.
    """

    def __init__(self, path: Path, quiet_s: float = QUIET_S) -> None:
        self.path, self.identity, self.quiet_s = path, identity_of_file(path), quiet_s
        name, stem, suffix = re.escape(path.name), re.escape(path.stem), re.escape(path.suffix)
        self._rotated = re.compile(rf"{name}[.-]\d[\d.T_-]*|{stem}[.-]\d[\dT_-]*{suffix}")
        # Inode and size of the growing file at the last look.
        self._last_look: tuple[int, int] | None = None
        # Inode, size and time of the rotated file that was read to its end, and since when we have seen these.
        self._still: tuple[tuple[int, int, int], float] = (0, 0, 0), 0.0
        with reaching(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self.topic_id = identify(self.identity)
            self._places = self._survey()

    def oldest(self) -> int:
        """The lowest number whose file exists; the next number if there is no file."""
        self._places = self._survey()
        return min(self._places, default=self._last + 1)

    def newest(self) -> tuple[int, int]:
        """The highest number whose file exists, and the file's size in bytes; ``(FIRST, 0)`` if there is no file."""
        self._places = self._survey()
        number = max(self._places, default=None)
        return (FIRST, 0) if number is None else (number, self._places[number].size)

    def open(self, number: int) -> int | None:
        """A descriptor of the segment, whatever its file is called now; raises GapError if it is gone."""
        while True:
            self._places = self._survey()
            if number == self._last + 1:
                return None
            if number not in self._places:
                raise GapError(
                    f"{self.path}: segment {number} is neither in that file nor in a rotated one beside it: put it "
                    "back (uncompressed, `delaycompress` in logrotate), or accept the loss (omdml worker --accept-gap)"
                )
            try:
                descriptor = open_regular(self._places[number].path)
            except FileNotFoundError:
                # It was renamed since the survey.
                continue
            if os.fstat(descriptor).st_ino == self._places[number].inode:
                return descriptor
            os.close(descriptor)

    def successor(self, number: int, descriptor: int) -> int | None:
        """The next number, as soon as its file has a line and this one was unchanged for ``quiet_s`` seconds."""
        status = os.fstat(descriptor)
        if number == self._last and self._changed(status.st_ino):
            self._places = self._survey()
        return number + 1 if number < self._last and self._is_quiet(status) else None

    def _is_quiet(self, status: os.stat_result) -> bool:
        """Whether a file was unchanged for long enough: by its time or, if the clock was set back, by our own watch."""
        if time.time() - status.st_mtime >= self.quiet_s:
            return True
        file = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._still[0] != file:
            self._still = file, time.monotonic()
        return time.monotonic() - self._still[1] >= self.quiet_s

    def growing(self) -> Path:
        """The file that other programs append to."""
        return self.path

    def next_segment(self) -> None:
        """Do nothing: other programs rotate this file."""

    def thin_out(self, most: int) -> list[str]:
        """Do nothing: other programs delete rotated files."""
        return []

    def beside(self, name: str) -> Path:
        """The path beside the growing file that begins with its name."""
        return self.path.with_name(f"{self.path.name}.{name}")

    def _changed(self, reading: int) -> bool:
        """Whether the growing file is not the inode that is being read, and has changed since the last look."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return False
        inode_and_size = (status.st_ino, status.st_size)
        if status.st_ino == reading or inode_and_size == self._last_look:
            return False
        self._last_look = inode_and_size
        return True

    def _survey(self) -> dict[int, LogFile]:
        """Find the file of each segment. Files that were never seen before get the next numbers, oldest first."""
        with opened(self.identity, "r+b") as ledger, locked(ledger.fileno()):
            segments, files = read_ledger(ledger), self._find()
            places = files_of_segments(segments, files, self.path)
            self._last = segments[-1].number if segments else FIRST - 1
            placed = list(places.values())
            seen = {segment.sha256 for segment in segments}
            # Files are sorted by time: those from this index on are newer than all known ones.
            newer = max((files.index(file) + 1 for file in placed), default=0)
            # A file whose first line was seen before may be a copy of a segment that is about to be truncated. It is
            # new only if it is newer than all known files. A file with another first line is new whatever its time
            # says, because the clock may have been set back.
            new_files = []
            for index, file in enumerate(files):
                if file not in placed and (index >= newer or file.sha256 not in seen):
                    new_files.append(file)
            # Nothing is newer than a known file that still grows, and none may have a higher number. If somebody put an
            # older file there that was never seen, it gets its number after the next rotation.
            if any(file.path == self.path for file in placed):
                new_files = []
            for file in new_files:
                self._last += 1
                places[self._last] = file
                ledger.write(f"{self._last} {file.inode} {file.sha256}\n".encode())
            if new_files:
                ledger.flush()
                os.fsync(ledger.fileno())
            return places

    def _find(self) -> list[LogFile]:
        """Every file of the log that has a first line, oldest first, the growing one last."""
        names = self._names()
        while True:
            rotated = [
                log_file_at(self.path.with_name(name)) for name in sorted(names, reverse=True) if name != self.path.name
            ]
            growing = log_file_at(self.path)
            # Whoever looks while files are renamed misses some of them.
            before, names = names, self._names()
            if names == before:
                by_time = sorted(filter(None, rotated), key=lambda file: file.modified)
                return without_links([*by_time, growing] if growing else by_time)

    def _names(self) -> dict[str, int]:
        """The names of the log's files, with the inode of each."""
        with os.scandir(self.path.parent) as entries:
            return {
                entry.name: entry.inode()
                for entry in entries
                if entry.name == self.path.name or self._rotated.fullmatch(entry.name)
            }


def log_file_at(path: Path) -> LogFile | None:
    """The file as it is now; None if it is gone, or if its first line is unfinished."""
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return None
    try:
        status, line = os.fstat(descriptor), read_first_line(descriptor)
    finally:
        os.close(descriptor)
    if line is None:
        return None
    return LogFile(path, status.st_ino, status.st_mtime_ns, status.st_size, hashlib.sha256(line).hexdigest())


def without_links(files: Sequence[LogFile]) -> list[LogFile]:
    """The files without those that a later one has under another name, by a link: their events must not come twice.

    Programs that write a file for each day often keep a link, such as the growing file, to the one of today.
    """
    last = {(file.inode, file.sha256): file for file in files}
    return [file for file in files if last[file.inode, file.sha256] is file]


def files_of_segments(segments: Sequence[Segment], files: Iterable[LogFile], growing: Path) -> dict[int, LogFile]:
    """Find the file of each segment: first by inode and first line, then by the first line alone, for a copy.

    The growing file can only be the last segment or a new one, even if it has the inode and the first line of a segment
    that was deleted.
    """
    places: dict[int, LogFile] = {}
    free = list(files)[::-1]
    for copied in (False, True):
        for segment in reversed(segments):
            alike = (
                file
                for file in free
                if file.sha256 == segment.sha256
                and (copied or file.inode == segment.inode)
                and (file.path != growing or segment == segments[-1])
            )
            if segment.number not in places and (file := next(alike, None)):
                places[segment.number] = file
                free.remove(file)
    return places


def read_ledger(ledger: IO[bytes]) -> list[Segment]:
    """The segments in the ledger, in the order of their numbers. Damaged lines at the end, from a crash, are cut off.

    Raises SourceError if a damaged line is followed by a sound one.
    """
    first, *lines = ledger.read().split(b"\n")[:-1]
    sound = [LEDGER_LINE.fullmatch(line) for line in lines]
    while sound and sound[-1] is None:
        sound.pop()
    ledger.seek(sum(len(line) + 1 for line in (first, *lines[: len(sound)])))
    ledger.truncate()
    if None in sound:
        raise SourceError(
            f"{ledger.name}: line {sound.index(None) + 2} is damaged, and the segments of the log cannot be told apart "
            "without it: restore the file, or remove it to read the log as a new one (omdml worker --accept-gap)"
        )
    return [Segment(int(match[1]), int(match[2]), match[3].decode()) for match in sound if match]
