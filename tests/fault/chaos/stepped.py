"""``python -m tests.fault.chaos.stepped ...`` is omdml with these arguments, on a wall clock that tests can set.

The clock is libfaketime's, between the process and the C library; monotonic clocks stay as they are, as with a real
machine whose clock is set. The offset is what the file ``clock`` in the working folder says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from deploy.local import fetch
from tests.fault.chaos.service import Service

FILE = "clock"
HOUR_S = 3600
LIBRARY = "libfaketime"


def stepped(service: Service, chance: Random) -> None:
    """The workers' clocks jump an hour forwards, an hour back behind the start, and to where they were."""
    for worker in service.workers:
        assert LIBRARY in Path(f"/proc/{worker.pid}/maps").read_text(), "the worker has no clock of its own"
    for offset_s in (HOUR_S, -HOUR_S, 0):
        step(service.folder, offset_s)
        service.wait(lambda offset_s=offset_s: abs(ahead_s(service.folder) - offset_s) < HOUR_S / 2, "the step")
        # The library looks at its file once a second.
        time.sleep(2.0)
        service.all_learn()


def step(folder: Path, offset_s: int) -> None:
    """Set the clocks of processes that run in this folder, seconds ahead of the real one."""
    new = folder / f"{FILE}.new"
    new.write_text(f"{offset_s:+d}\n")
    new.rename(folder / FILE)


def ahead_s(folder: Path) -> float:
    """How far a new process in this folder believes to be ahead."""
    command = [sys.executable, "-c", "import time; print(time.time())"]
    said = subprocess.run(command, env=environment(folder), cwd=folder, capture_output=True, check=True, timeout=60)
    return float(said.stdout) - time.time()


def environment(folder: Path) -> dict[str, str]:
    """That of a process whose wall clock is as the folder's file says."""
    return {
        **os.environ,
        "LD_PRELOAD": str(fetch.faketime()),
        "FAKETIME_TIMESTAMP_FILE": str(folder / FILE),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


if __name__ == "__main__":
    here = Path.cwd()
    if not (here / FILE).exists():
        step(here, 0)
    os.execve(sys.executable, [sys.executable, "-m", "workers.cli", *sys.argv[1:]], environment(here))
