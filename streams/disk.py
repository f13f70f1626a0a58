"""Durable files and locks.

A file is whole or not there, whenever the machine stops: it is written aside, synced, and then given its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

# The names of files that are being written begin with this.
ASIDE = "."
# Seconds between two tries at a lock.
LOOK_S = 0.01


def put(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file, over one of this name that was there."""
    with written_aside(path.parent, data, mode) as temporary:
        os.replace(temporary, path)
    sync(path.parent)


def put_if_absent(path: Path, data: bytes, aside: Path, mode: int = 0o666) -> bool:
    """Write a file by way of the folder ``aside``; False, and nothing done, if one of its name is there."""
    with written_aside(aside, data, mode) as temporary:
        try:
            # A link is as atomic as a rename, but never goes over another file.
            os.link(temporary, path)
        except FileExistsError:
            return False
    sync(path.parent)
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


def write_durably(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a whole file, new ones with these rights (less the umask), and wait for the disk."""
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Hold the lock of an open file against every other process (and every other descriptor of it)."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def take_lock(descriptor: int, kind: int = fcntl.LOCK_EX, for_s: float = 0.0) -> bool:
    """Try to take the lock of an open file until the timeout; False if another process holds it."""
    until = time.monotonic() + for_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(LOOK_S)
