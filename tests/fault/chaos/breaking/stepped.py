"""``python -m tests.fault.chaos.breaking.stepped ...`` is omdml with these arguments, on a clock that tests can set.

The clock lies between the process and the C library (clock.c); it is as many seconds ahead as the file ``clock`` in the
working folder says. libfaketime would do the same, but its sleeps fail (EINVAL) once monotonic clocks are left alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from tests.fault.chaos.service import Service

FILE, LIBRARY, SOURCE = "clock", "clock.so", Path(__file__).with_name("clock.c")
HOUR_S = 3600
LIMIT_S = 60


def stepped(service: Service, chance: Random) -> None:
    """The workers' clocks jump an hour forwards, to an hour behind the real time, and to where they were."""
    for worker in service.workers:
        assert LIBRARY in Path(f"/proc/{worker.pid}/maps").read_text(), "the worker has no clock of its own"
    for offset_s in (HOUR_S, -HOUR_S, 0):
        step(service.folder, offset_s)
        assert abs(ahead_s(service.folder) - offset_s) < HOUR_S / 2
        service.all_learn()


def step(folder: Path, offset_s: int) -> None:
    """Set the clocks of processes that run in this folder, seconds ahead of the real one."""
    new = folder / f"{FILE}.{os.getpid()}"
    new.write_text(f"{offset_s}\n")
    new.rename(folder / FILE)


def ahead_s(folder: Path) -> float:
    """How far the clock of a process in this folder is ahead, in seconds."""
    command = [sys.executable, "-c", "import time; print(time.time())"]
    result = subprocess.run(command, env=environment(folder), capture_output=True, check=True, timeout=LIMIT_S)
    return float(result.stdout) - time.time()


def environment(folder: Path) -> dict[str, str]:
    """The environment of a process whose wall clock follows the file in this folder."""
    return {**os.environ, "LD_PRELOAD": str(folder / LIBRARY), "CLOCK_FILE": str(folder / FILE)}


def build(folder: Path) -> None:
    """Compile the library into this folder; needs a C compiler."""
    built = folder / f"{LIBRARY}.{os.getpid()}"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", built, SOURCE, "-ldl"], check=True, timeout=LIMIT_S)
    built.rename(folder / LIBRARY)


if __name__ == "__main__":
    here = Path.cwd()
    if not (here / LIBRARY).exists():
        build(here)
    if not (here / FILE).exists():
        step(here, 0)
    os.execve(sys.executable, [sys.executable, "-m", "omdml.workers.cli", *sys.argv[1:]], environment(here))
