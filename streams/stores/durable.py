"""Files that are whole or not there, whenever the machine stops: written aside, synced, then given their name."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import structlog

from streams.files.log import sync_folder, write_durably
from streams.files.regular import STATE_BYTES, Unfit, opened, read_regular

log = structlog.get_logger(__name__)
ASIDE = "."  # names of files that are being written begin with it


def put(path: Path, data: bytes) -> None:
    """Write a file, over one of this name that was there."""
    with written_aside(path.parent, data) as temporary:
        os.replace(temporary, path)
    sync_folder(path.parent)


def put_if_absent(path: Path, data: bytes, aside: Path) -> bool:
    """Write a file by way of the folder ``aside``; False, and nothing done, where one of its name is there."""
    with written_aside(aside, data) as temporary:
        try:
            os.link(temporary, path)  # as atomic as a rename, but never over another file
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def read_state(path: Path) -> bytes:
    """A checkpoint or a snapshot; empty, which is damaged, and an error in the log, if that cannot be one.

    Its first bytes say how long its header is: of a file that cannot be safetensors no more is read.
    """
    try:
        with opened(path) as file:
            begin, size = file.read(9), os.fstat(file.fileno()).st_size
        header = int.from_bytes(begin[:8], "little")
        return read_regular(path, STATE_BYTES) if begin[8:] == b"{" and header <= size - 8 else begin
    except Unfit as error:
        log.error("state_file_unfit", file=str(path), reason=error.strerror, action="treated as damaged")
        return b""


@contextlib.contextmanager
def written_aside(folder: Path, data: bytes) -> Iterator[Path]:
    """A temporary file with this content; gone in the end, unless it was renamed."""
    temporary = folder / f"{ASIDE}{secrets.token_hex(8)}"
    try:
        write_durably(temporary, data)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
