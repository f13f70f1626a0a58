"""The newest records of a log in files, without reading what lies before them."""

from __future__ import annotations

from pathlib import Path

from omdml.streams.files.log import OFFSET_BITS, Log, reaching, size_of_segment
from omdml.streams.files.reader import BATCH, LogReader, open_log
from omdml.streams.newest import Newest
from omdml.streams.protocols.log import Record


def newest_records(path: str | Path, most_bytes: int) -> Newest:
    """The records in the last ``most_bytes`` of a log; none if there is no such log.

    Raises SourceError if the log cannot be read, GapError if a segment among these bytes is missing.
    """
    if not Path(path).exists():
        return Newest([], whole=True)
    log = open_log(path, quiet_s=0.0)
    begin = _begin(log, most_bytes)
    reader, newest = LogReader(log), list[Record]()
    reader.seek(begin)
    try:
        while records := reader.take(BATCH):
            newest += records
    finally:
        reader.close()
    return Newest(newest, whole=begin <= log.oldest() << OFFSET_BITS)


def _begin(log: Log, most_bytes: int) -> int:
    """The offset at which the last ``most_bytes`` of a log begin."""
    with reaching(log.path):
        oldest, (number, size) = log.oldest(), log.newest()
        while size < most_bytes and number > oldest:
            most_bytes -= size
            number -= 1
            size = size_of_segment(log, number)
    return number << OFFSET_BITS | max(0, size - most_bytes)
