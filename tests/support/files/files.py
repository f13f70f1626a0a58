"""Logs in files: what tests write into their segments, and read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from omdml.streams.files.reader import BATCH, LogReader, open_log
from omdml.streams.files.source import FileSource
from omdml.streams.protocols.log import Record

EVENT = b'{"type":"triplet","model":"shop","query":"a","relevant":"b","irrelevant":"c"}'
SEGMENT = "00000001.jsonl"

Follow = Callable[..., FileSource]


def read_records(path: str | Path) -> Iterator[Record]:
    """All records of a log, from its oldest segment to its end. It uses no group and commits nothing."""
    reader = LogReader(open_log(path, quiet_s=0.0))
    try:
        while records := reader.take(BATCH):
            yield from records
    finally:
        reader.close()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def drain(source: FileSource) -> list[Record]:
    records: list[Record] = []
    while part := source.poll(1000, 0):
        records += part
    return records


def values(source: FileSource) -> list[bytes]:
    return [record.value for record in drain(source)]
