"""Reads the records of a log in files, from any position and across segments."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from omdml.errors import GapError
from omdml.streams.files.lines import decode_lines
from omdml.streams.files.log import OFFSET_BITS, Log, reaching
from omdml.streams.files.rotation import QUIET_S, RotatedLog, identity_of_file
from omdml.streams.files.segments import SegmentedLog, identity_of_folder
from omdml.streams.files.tail import Lines, Tail
from omdml.streams.protocols.log import Partition, Record

# The true length in bytes of a record that was cut because its line is too long.
LENGTH_HEADER = "omdml-length"
FILE_SUFFIXES = {".json", ".jsonl", ".ndjson", ".log"}
BATCH = 1000


def open_log(path: str | Path, quiet_s: float = QUIET_S) -> Log:
    """Open the log at this path: a folder of segments, or a file. If nothing is there, the suffix decides.

    ``quiet_s`` is how many seconds a rotated file must be unchanged before it counts as finished.
    """
    path = Path(path).absolute()
    return RotatedLog(path, quiet_s) if _is_file(path) else SegmentedLog(path)


def _is_file(path: Path) -> bool:
    with reaching(path):
        return path.is_file() or (path.suffix in FILE_SUFFIXES and not path.is_dir())


def has_begun(path: str | Path) -> bool:
    """Whether the log at this path was ever opened, which gives it an identity. Nothing is made by asking.

    Raises SourceError if this user may not look there.
    """
    path = Path(path).absolute()
    identity = identity_of_file(path) if _is_file(path) else identity_of_folder(path)
    with reaching(path):
        return identity.exists()


class LogReader:
    """Reads the records from a position on.

    ``fingerprints`` holds the sha256 of the first line of each known segment, by number. If such a segment begins with
    another line later, the log has a gap.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.partition = Partition(log.topic_id, 0)
        self.fingerprints: dict[int, str] = {}
        self._position: int | None = None
        self._tail: Tail | None = None

    @property
    def position(self) -> int:
        """The offset of the next record to read."""
        if self._position is None:
            return self.log.oldest() << OFFSET_BITS
        return self._position

    @property
    def end(self) -> int:
        """The offset after the last whole line, as far as it is known."""
        number, size = self.log.newest()
        if self._tail is not None and number == self.position >> OFFSET_BITS:
            size = self._tail.end
        return max(number << OFFSET_BITS | size, self.position)

    def seek(self, offset: int | None) -> None:
        """Go on at this offset, or at the next record if none begins there. None means the oldest segment."""
        self.close()
        self._position = offset

    def take(self, most: int) -> list[Record]:
        """Read at most this many of the records that are there; the list may be empty.

        Raises
        ------
        GapError
            The segment at the position is gone, ends before the position, or begins with another line.
        """
        with reaching(self.log.path):
            while tail := self._open():
                number = self.position >> OFFSET_BITS
                successor = self.log.successor(number, tail.descriptor)
                if not tail.fill(ended=successor is not None):
                    # The segment was rotated, truncated or rewritten: the next round opens it again.
                    self.seek(self._position)
                elif lines := tail.take(most):
                    self._position = number << OFFSET_BITS | tail.position
                    self._remember(number, tail)
                    if records := self._decode(number, lines):
                        return records
                elif successor is not None:
                    self.seek(successor << OFFSET_BITS)
                else:
                    break
            return []

    def close(self) -> None:
        """Close the segment that is open, if any."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _open(self) -> Tail | None:
        """The segment at the position; None if it does not exist yet."""
        if self._tail is None:
            position = self.position
            number, byte = position >> OFFSET_BITS, position & ((1 << OFFSET_BITS) - 1)
            descriptor = self.log.open(number)
            if descriptor is None:
                if byte:
                    raise self._gap(number, byte, "that segment is not there")
                return None
            tail = Tail(descriptor, byte)
            try:
                self._verify(tail, number, byte)
            except GapError:
                tail.close()
                raise
            self._tail, self._position = tail, position
        return self._tail

    def _verify(self, tail: Tail, number: int, byte: int) -> None:
        """Raise GapError if the segment is not the one in which the position was taken."""
        if tail.size < byte:
            raise self._gap(number, byte, f"it ends at byte {tail.size}: it was truncated or replaced")
        # At byte 0 nothing was read yet, so any first line is accepted, and expected from now on.
        if not byte:
            self.fingerprints.pop(number, None)
        expected, actual = self.fingerprints.get(number), fingerprint(tail)
        if expected and actual != expected:
            raise self._gap(number, byte, f"its first line has sha256 {actual}, expected {expected}: it was replaced")

    def _gap(self, number: int, byte: int, what: str) -> GapError:
        return GapError(
            f"feedback log {self.log.path}: the position is byte {byte} of segment {number}, but {what}. Restore "
            "the file as it was, or accept the loss of what it held (omdml worker --accept-gap)"
        )

    def _remember(self, number: int, tail: Tail) -> None:
        if number not in self.fingerprints and (digest := fingerprint(tail)):
            self.fingerprints[number] = digest

    def _decode(self, number: int, lines: Lines) -> list[Record]:
        records = decode_lines(lines.lines, self.partition, number << OFFSET_BITS | lines.start)
        if lines.length is None:
            return records
        length = (LENGTH_HEADER, b"%d" % lines.length)
        return [replace(record, headers=(*record.headers, length)) for record in records]


def fingerprint(tail: Tail) -> str | None:
    """Sha256 of a segment's first line; None as long as it is unfinished."""
    return None if tail.first_line is None else sha256(tail.first_line).hexdigest()
