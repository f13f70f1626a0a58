"""Reads whole logs in files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from omdml.streams.files.reader import BATCH, LogReader, open_log
from omdml.streams.protocols.log import Record


def read_records(path: str | Path) -> Iterator[Record]:
    """All records of a log, from its oldest segment to its end. It uses no group and commits nothing."""
    reader = LogReader(open_log(path, quiet_s=0.0))
    try:
        while records := reader.take(BATCH):
            yield from records
    finally:
        reader.close()
