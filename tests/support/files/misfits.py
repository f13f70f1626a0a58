"""Puts something else in the place of a file: a pipe, a device, a link to itself, a folder, a huge file."""

from __future__ import annotations

import os
from pathlib import Path


def pipe(path: Path) -> None:
    """A named pipe that nobody writes to."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def device(path: Path) -> None:
    """A link to a device that never ends."""
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def huge(path: Path) -> None:
    """A sparse file of a terabyte."""
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(1 << 40)
