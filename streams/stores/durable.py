"""Files that are whole or not there, whenever the machine stops: written aside, synced, then given their name."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from streams.files.log import sync_folder, write_durably

ASIDE = "."  # names of files that are being written begin with it


def put(path: Path, data: bytes) -> None:
    """Write a file, over one of this name that was there."""
    with written_aside(path.parent, data) as temporary:
        os.replace(temporary, path)
    sync_folder(path.parent)


def put_if_absent(path: Path, data: bytes, aside: Path, mode: int = 0o666) -> bool:
    """Write a file by way of the folder ``aside``; False, and nothing done, if one of its name is there."""
    with written_aside(aside, data, mode) as temporary:
        try:
            os.link(temporary, path)  # as atomic as a rename, but never over another file
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


@contextlib.contextmanager
def written_aside(folder: Path, data: bytes, mode: int = 0o666) -> Iterator[Path]:
    """A temporary file with this content and these rights; gone in the end, unless it was renamed."""
    temporary = folder / f"{ASIDE}{secrets.token_hex(8)}"
    try:
        write_durably(temporary, data, mode)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
