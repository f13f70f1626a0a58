"""Running a command as a process of its own, and what it took: processor time, and the most memory it ever had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import ROOT, die_with_parent

PAUSE_S = 0.05
# A command that takes longer has hung.
LIMIT_S = 120.0


class Run(NamedTuple):
    """What a command did. ``code`` is None if its time was up; ``seconds`` are of processor time."""

    code: int | None
    output: str
    seconds: float
    megabytes: float

    @property
    def failed_badly(self) -> bool:
        """Whether it hung, was killed, or ended with a traceback."""
        return self.code is None or self.code < 0 or "Traceback" in self.output


def omdml(folder: Path, *arguments: str, limit_s: float = LIMIT_S, until: str = "", name: str = "run") -> Run:
    """Run an ``omdml`` command in this folder; with ``until`` it gets SIGTERM once its output has this text."""
    begin, log = time.monotonic(), folder / f"{name}.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "omdml.workers.cli", *arguments],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, preexec_fn=die_with_parent,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    asked = killed = False
    most_kb = 0
    while True:
        most_kb = max(most_kb, peak_kb(child.pid))
        ended, status, used = os.wait4(child.pid, os.WNOHANG)
        if ended:
            break
        if until and not asked and until in log.read_text(errors="replace"):
            child.send_signal(signal.SIGTERM)
            asked = True
        if not killed and time.monotonic() - begin > limit_s:
            child.kill()
            killed = True
        # No single call waits for the end, for output and for the time limit, so it looks again and again.
        time.sleep(PAUSE_S)
    child.returncode = os.waitstatus_to_exitcode(status)
    code = None if killed else child.returncode
    return Run(code, log.read_text(errors="replace"), used.ru_utime + used.ru_stime, most_kb / 1000)


def peak_kb(pid: int) -> int:
    """The most memory that a process has taken so far, 0 if it has ended.

    What wait4 says is no less than the memory of the process that started it.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
