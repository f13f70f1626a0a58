"""Child processes that never outlive this one, and ports for them."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from omdml.errors import OmdmlError

PR_SET_PDEATHSIG = 1
LAST_LINES = 15
# Seconds from SIGTERM to SIGKILL.
STOP_S = 5.0
# Below the ports that Linux gives to clients: a client on such a port could connect to itself.
PORTS = range(20_000, 32_000)
# Loaded here, because nothing may be loaded between fork and exec.
_LIBC = ctypes.CDLL(None, use_errno=True)


class ProcessError(OmdmlError):
    """Raised if a process of the demo ended, or did not become ready."""

    reason = "process"


class Child:
    """A process with its output in a file.

    It runs in a session of its own, so that Ctrl-C in a terminal reaches only this process. If this process ends in any
    way, the kernel kills the child. The kernel watches the *thread* that started it: start children from the main
    thread.

    Parameters
    ----------
    folder
        The folder in which ``<name>.log`` is written.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        parent = os.getpid()

        def end_with_parent() -> None:
            _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            # The parent may have ended between fork and prctl.
            if os.getppid() != parent:
                os._exit(1)

        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    def check(self, wait_s: float = 0.0) -> None:
        """Raise ProcessError, with the last lines of the log, if the process has ended or ends within ``wait_s``."""
        with suppress(subprocess.TimeoutExpired):
            raise self.error(f"ended with exit code {self._process.wait(wait_s)}")

    def error(self, what: str) -> ProcessError:
        """Make an error about this process. Its notes are the end of the process's log, line by line."""
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        error = ProcessError(f"{self.name} {what}; {'its last lines:' if lines else 'it wrote nothing'}")
        for line in lines:
            error.add_note(f"  {line}")
        return error

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL if the process has not ended after ``STOP_S`` seconds."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    """A free port of 127.0.0.1; raises ProcessError if 200 tries find none."""
    for port in random.SystemRandom().sample(PORTS, 200):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise ProcessError(f"200 ports tried between {PORTS.start} and {PORTS.stop} are all in use: end some servers")
