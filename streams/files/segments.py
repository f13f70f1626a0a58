"""A log that is a folder of numbered segments, written by our own sinks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from omdml.errors import GapError
from omdml.streams.bounded_files import open_regular
from omdml.streams.files.log import FIRST, identify, reaching, read_identity

_NAME = re.compile(r"(\d{8,})\.jsonl")


def identity_of_folder(folder: Path) -> Path:
    """The path of the file that holds the identity of a log in a folder."""
    return folder / "log.id"


class SegmentedLog:
    """Segments ``00000001.jsonl``, ``00000002.jsonl``, ..., of which the last grows. The identity is in ``log.id``."""

    def __init__(self, folder: Path) -> None:
        self.path, self.identity = folder, identity_of_folder(folder)
        with reaching(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.topic_id = identify(self.identity)
            self._growing = max(self._numbers(), default=FIRST)

    def oldest(self) -> int:
        """The lowest number of a segment; ``FIRST`` if there is none."""
        return min(self._numbers(), default=FIRST)

    def newest(self) -> tuple[int, int]:
        """The highest number of a segment, and its size in bytes; ``(FIRST, 0)`` if there is none."""
        number = max(self._numbers(), default=None)
        return (FIRST, 0) if number is None else (number, self._segment(number).stat().st_size)

    def open(self, number: int) -> int | None:
        """A descriptor of the segment; raises GapError if it, or a segment between it and the newest, is missing."""
        while True:
            numbers = self._numbers()
            newest = max(numbers, default=FIRST - 1)
            if number == newest + 1:
                return None
            missing = first_missing(number, numbers)
            if missing is not None:
                raise GapError(
                    f"{self._segment(missing)} is missing, the folder has segments {numbers or 'none'}: "
                    "put it back, or accept the loss (omdml worker --accept-gap)"
                )
            try:
                return open_regular(self._segment(number))
            except FileNotFoundError:
                # It was thinned out since the look.
                continue

    def successor(self, number: int, descriptor: int) -> int | None:
        """The next number as soon as its file exists, because our sinks never append to an older one.

        Raises GapError if another file is in the place of this one: nothing is ever appended to what is open here.
        """
        # A segment is removed only when there is a next one, so the order of the two looks matters.
        is_there = is_file(self._segment(number), descriptor)
        if os.path.exists(self._segment(number + 1)):
            return number + 1
        if not is_there:
            # If the folder or its disk is away, both calls raise OSError, and it may come back. The first call raises
            # it with the same words as other looks, so that it is logged once.
            numbers, _ = self._numbers(), read_identity(self.identity)
            raise GapError(
                f"{self._segment(number)} was deleted or replaced while it was read, the folder has segments "
                f"{numbers or 'none'}: put it back, or accept the loss (omdml worker --accept-gap)"
            )
        return None

    def growing(self) -> Path:
        """The newest segment, which is still appended to."""
        while os.path.exists(self._segment(self._growing + 1)):
            self._growing += 1
        return self._segment(self._growing)

    def next_segment(self) -> Path:
        """The path of the segment after the newest one."""
        return self._segment(self._growing + 1)

    def thin_out(self, most: int) -> list[str]:
        """Delete the oldest segments until the others have at most ``most`` bytes; returns the deleted names."""
        paths = [self._segment(number) for number in self._numbers()]
        sizes = [size_of(path) for path in paths]
        removed = []
        while len(paths) > 1 and sum(sizes) > most:
            # Another process may write to this log, and thin it out, too.
            with suppress(FileNotFoundError):
                paths[0].unlink()
                removed.append(paths[0].name)
            del paths[0], sizes[0]
        return removed

    def beside(self, name: str) -> Path:
        """The path of a file of this name in the folder."""
        return self.path / name

    def _numbers(self) -> list[int]:
        names = map(_NAME.fullmatch, os.listdir(self.path))
        return sorted(int(name[1]) for name in names if name)

    def _segment(self, number: int) -> Path:
        return segment_path(self.path, number)


def first_missing(number: int, numbers: Iterable[int]) -> int | None:
    """The first number from this one on that is missing, up to the highest of ``numbers``, which rise; None if none is.

    It looks only at numbers that exist. A stray ``20261128.jsonl`` would otherwise make it count to twenty million.
    """
    expected = number
    for existing in numbers:
        if existing > expected:
            return expected
        if existing == expected:
            expected += 1
    return number if expected == number else None


def is_file(path: Path, descriptor: int) -> bool:
    """Whether the file at this path is the one that is open."""
    try:
        return os.stat(path).st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def size_of(path: Path) -> int:
    """The bytes of a file; 0 if it is gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@lru_cache(maxsize=256)
def segment_path(folder: Path, number: int) -> Path:
    """The file of a segment. It is cached, because every poll and every send asks for it."""
    return folder / f"{number:08d}.jsonl"
