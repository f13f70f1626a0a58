"""Durable files and locks.

A file is whole or not there, whenever the machine stops: it is written aside, synced, and then given its name.

A process that is killed meanwhile leaves its unfinished file. The next process that writes into the folder deletes it:
only unfinished files of living processes are locked. Temporary folders are treated in the same way.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from omdml.streams.bounded_files import opened

# The names of files that are being written begin with this.
ASIDE = "."
# The whole name of such a file, which is locked as long as its process lives. Earlier releases locked none, and their
# names lacked the ending.
UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.unfinished")
# The same for a temporary folder.
SCRATCH = re.compile(r"omdml-[0-9a-f]{16}\.unfinished")
# How many folders a process remembers to have cleaned.
CLEANED = 4096
# Seconds between two tries at a lock.
LOOK_S = 0.01
# The number, size and time of a file.
Stamp = tuple[int, ...]


def put(path: Path, data: bytes, mode: int = 0o666, ready: Callable[[], None] | None = None) -> None:
    """Write a file, over one of this name that was there. ``ready`` is called just before it gets its name."""
    with written_aside(path.parent, data, mode) as temporary:
        if ready:
            ready()
        os.replace(temporary, path)
    sync(path.parent)


def put_if_absent(path: Path, data: bytes, aside: Path, mode: int = 0o666) -> bool:
    """Write a file by way of the folder ``aside``; returns False, and changes nothing, if one of its name is there."""
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
    drop_unfinished(folder)
    temporary, descriptor = _new_aside(folder, mode)
    try:
        write_durably(descriptor, data)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
        os.close(descriptor)


def _new_aside(folder: Path, mode: int) -> tuple[Path, int]:
    """A new empty file with a lock of ours."""
    while True:
        path = folder / f"{ASIDE}{secrets.token_hex(8)}.unfinished"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        except OSError as error:
            # Name the folder, because the file has another name each time: so the same refusal has the same words, and
            # is logged only once.
            raise OSError(error.errno, error.strerror, str(folder)) from error
        # If not, another process came in between, took the file for one that a killed process left, and deleted it.
        if take_lock(descriptor) and os.fstat(descriptor).st_nlink:
            return path, descriptor
        os.close(descriptor)


@functools.lru_cache(maxsize=CLEANED)
def drop_unfinished(folder: Path) -> None:
    """Delete the unfinished files that killed processes have left in a folder.

    Each process does this once for a folder. What others leave there later is deleted by a process that starts later.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        # Whoever then wants to write here gets the same error.
        return
    for name in filter(UNFINISHED.fullmatch, names):
        # It may belong to somebody else, or be gone.
        with contextlib.suppress(OSError), opened(folder / name, "r+b") as file:
            if take_lock(file.fileno()):
                (folder / name).unlink()


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder in the system's place for temporary files, gone in the end.

    What killed processes of this user have left there is deleted first.
    """
    place = Path(tempfile.gettempdir())
    for name in filter(SCRATCH.fullmatch, os.listdir(place)):
        # It may be gone, or no folder.
        with contextlib.suppress(OSError):
            _drop_scratch(place / name)
    folder, descriptor = _new_scratch(place)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _drop_scratch(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Everybody may write into a place for temporary files, and root may delete what is not root's.
        if os.fstat(descriptor).st_uid == os.geteuid() and take_lock(descriptor):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _new_scratch(place: Path) -> tuple[Path, int]:
    """A new empty folder with a lock of ours, which nobody else can read."""
    while True:
        folder = place / f"omdml-{secrets.token_hex(8)}.unfinished"
        folder.mkdir(mode=0o700)
        # Another process may come in between, take the folder for one that a killed process left, and delete it.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if take_lock(descriptor) and folder.exists():
                return folder, descriptor
            os.close(descriptor)


def write_durably(descriptor: int, data: bytes) -> None:
    """Write all of this into a new file, and wait for the disk."""
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stamp(path: str | Path) -> Stamp:
    """Something that changes whenever a file's content does; empty if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


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
