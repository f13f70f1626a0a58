"""Starts processes that end with this one, however it ends."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PR_SET_PDEATHSIG = 1
# Loaded here, because nothing may be loaded between fork and exec.
_LIBC = ctypes.CDLL(None, use_errno=True)
# The kernel watches the *thread* that started a process. So one thread starts all of them, and lives until this process
# ends.
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="deploy-local-spawn")


def spawn(command: Sequence[str | Path], *, cwd: Path, log: Path, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start `command` in a session of its own, so that Ctrl-C does not reach it. Its output is appended to `log`.

    The kernel kills it when this process ends, even if this process is killed.
    """
    return _THREAD.submit(_start, [str(part) for part in command], cwd, log, dict(env)).result()


def _start(command: list[str], cwd: Path, log: Path, env: dict[str, str]) -> "subprocess.Popen[bytes]":
    parent = os.getpid()

    def end_with_parent() -> None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have ended between fork and prctl.
        if os.getppid() != parent:
            os._exit(1)

    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
