"""Logs in files, read as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from omdml.streams.files.reader import BATCH, LogReader, open_log
from omdml.streams.protocols.log import Record


def read_records(path: str | Path) -> Iterator[Record]:
    """Everything in a log, from its oldest segment to where it ends now; no group, nothing is committed."""
    reader = LogReader(open_log(path, quiet_s=0.0))
    try:
        while records := reader.take(BATCH):
            yield from records
    finally:
        reader.close()
