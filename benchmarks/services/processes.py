"""omdml's commands as processes of their own, whose output goes to a file."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STOP_S = 30


def start(
    folder: Path, *command: str, name: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command in this folder; what it says is added to ``<name>.log``, by default named after the command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    # An installation is compiled.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with (folder / f"{name or command[0]}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "omdml.workers.cli", *command], cwd=folder, env=environment, stdout=log, stderr=log
        )


@contextlib.contextmanager
def running(folder: Path, *command: str, name: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run a command while the block runs. Then ask it to end, and wait for it."""
    child = start(folder, *command, name=name)
    try:
        yield child
    finally:
        child.terminate()
        child.wait(STOP_S)
