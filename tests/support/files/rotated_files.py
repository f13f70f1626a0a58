"""A log that is one rotated file: what tests write into it, how they rotate it, and what they read."""

from __future__ import annotations

import os
from pathlib import Path

from omdml.streams.files.source import FileSource
from omdml.streams.protocols.log import CommitResult


def write(path: Path, *numbers: int) -> None:
    """Append events. The file's time of change is long ago, and later for higher numbers."""
    with path.open("ab") as file:
        file.write(b"".join(b'{"n":%d}\n' % number for number in numbers))
    os.utime(path, (1e9 + numbers[-1],) * 2)


def numbers(source: FileSource) -> list[int]:
    results = []
    while records := source.poll(3, 0):
        results += [int(record.value[5:-1]) for record in records]
    return results


def commit_here(source: FileSource) -> None:
    ((partition, (position, _)),) = source.progress().items()
    assert source.commit({partition: position}) is CommitResult.RECORDED
    source.close()


def rotate(path: Path) -> None:
    """Rotate as logrotate does: .1 becomes .2, the file becomes .1."""
    for number in (2, 1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.rename(path.with_name(f"{path.name}.{number + 1}"))
    path.rename(path.with_name(path.name + ".1"))
