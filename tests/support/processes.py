"""Real omdml processes, for tests that need them."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from deploy.local.ports import free_port

__all__ = ["ROOT", "Process", "die_with_parent", "free_port", "wait_for"]

# The times in tests are enough for a test that runs alone. Others may run beside it, and a machine of CI may be slow.
# A test waits only until its condition holds, so patience costs time only if a test fails.
PATIENCE, MOST_S = 4.0, 120.0
# A condition that came true is noticed after at most LATE_S; in a short wait, after a twentieth of the time waited.
LATE_S, LATE_SHARE = 0.5, 1 / 20
PR_SET_PDEATHSIG = 1
ROOT = Path(__file__).resolve().parents[2]


def die_with_parent() -> None:
    """Have the kernel end this process with the one that started it (called between fork and exec)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Child(Protocol):
    """The methods of a started process, as :class:`subprocess.Popen` has them."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...
    def send_signal(self, sig: int) -> None: ...


class Process:
    """An ``omdml`` command with its output in a file. It ends with the test run at the latest."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        name: str = "omdml",
        module: str = "omdml.workers.cli",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.output = folder / f"{name}.log"
        self._file = self.output.open("ab")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._child = self._start(folder, module, arguments, environment)

    def _start(self, folder: Path, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Child:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=folder, env=environment, stdout=self._file, stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )  # fmt: skip

    def kill(self) -> None:
        """End it at once, with SIGKILL."""
        self._child.kill()
        self._child.wait()

    @property
    def pid(self) -> int:
        return self._child.pid

    def pause(self) -> None:
        """Pause it with SIGSTOP, as a paused machine does."""
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after :meth:`pause`."""
        self._child.send_signal(signal.SIGCONT)

    @property
    def paused(self) -> bool:
        """Whether it is paused, by :meth:`pause` or by itself."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def stop(self, timeout_s: float = 20.0) -> int:
        """Ask it to end with SIGTERM; returns its exit code."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 20.0) -> int:
        """Wait until it ends by itself; returns its exit code."""
        try:
            return self._child.wait(patient(timeout_s))
        finally:
            self.close()

    def close(self) -> None:
        """End it if it has not ended."""
        if self._child.poll() is None:
            self.kill()
        self._file.close()

    @property
    def running(self) -> bool:
        """Whether the process is still running."""
        return self._child.poll() is None

    @property
    def said(self) -> str:
        """What the process has printed so far."""
        return self.output.read_text(errors="replace")


def patient(timeout_s: float) -> float:
    """How long to wait for something that takes at most this many seconds if nothing else runs."""
    return min(timeout_s * PATIENCE, timeout_s + MOST_S)


def wait_for(
    condition: Callable[[], object], what: str, timeout_s: float = 30.0, process: Process | None = None
) -> None:
    """Wait until ``condition`` holds; if it does not in time, fail with the last lines of the process."""
    timeout_s = patient(timeout_s)
    began, asked = time.monotonic(), time.thread_time()
    while not condition():
        waited_s, ended = time.monotonic() - began, process is not None and not process.running
        late = waited_s >= timeout_s
        if late or ended:
            ending = f"; it said: {process.said[-2000:]}" if process else ""
            raise AssertionError(
                f"{'the process ended before' if ended else f'waited {timeout_s} s for'} {what}{ending}"
            )
        # Asking takes a twentieth of a processor, less in a long wait, or a quarter if the next question would come
        # late otherwise: the rest is for those who are waited for, who spend as much on their answers, and for others.
        spent = time.thread_time() - asked
        time.sleep(max(0.01, 3 * spent, min(max(19 * spent, LATE_SHARE * waited_s), LATE_S)))
        asked = time.thread_time()


def flowing(output: str) -> str:
    """The output of a command as one line, without the frames of its tables."""
    return " ".join(re.sub("[┃│]", " ", output).split())
