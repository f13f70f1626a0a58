"""Processes that begin with everything imported: for tests that need many short ones, each of its own.

The standard library's fork server imports the modules once for all tests of a run. What it forks then starts within
milliseconds. A new interpreter takes two to three seconds of processor time.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path

from tests.support.processes import Child, Process, die_with_parent

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "tests.support.worlds",
        "omdml.streams.catalogues.building.build",
        "pyarrow.parquet",
        # What `omdml worker`, `omdml node` and `omdml route` import, some of it late.
        "omdml.workers.commands.processes",
        "omdml.workers.wiring.node",
        "omdml.workers.node.node",
        "omdml.workers.node.http.server",
        "omdml.workers.wiring.router",
        "omdml.workers.wiring.worker",
        "tests.support.loaded",
    ]
)
LIMIT_S = 120.0


def ended(target: Callable[..., object], *arguments: object) -> int:
    """The exit code of a process that calls ``target``; minus the signal, if one ended it. Fails if it does not end."""
    process = FORKS.Process(target=target, args=arguments, daemon=True)
    process.start()
    process.join(LIMIT_S)
    try:
        assert process.exitcode is not None, f"{target.__name__} did not end within {LIMIT_S} s"
        return process.exitcode
    finally:
        process.kill()
        process.join()
        process.close()


class ForkedProcess(Process):
    """An ``omdml`` command in a process that is forked: what it imports was imported before.

    For tests that are about what happens after the start. A start itself is tested by real commands.
    """

    def _start(self, folder: Path, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Child:
        return _Forked(folder, self.output, module, arguments, environment)


class _Forked:
    """A forked process with the methods of :class:`subprocess.Popen`."""

    def __init__(self, *command: object) -> None:
        self._process = FORKS.Process(target=_run, args=command, daemon=True)
        self._process.start()
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


def _run(folder: Path, output: Path, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Do what ``python -m module arguments`` does, with the output in a file."""
    die_with_parent()
    # The fork server ends once no process holds this pipe. If this process held it, too, the server would outlive a
    # test run that was killed.
    os.close(forkserver._forkserver._forkserver_alive_fd)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    with output.open("ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    # A line is there to be read once it is written, as with PYTHONUNBUFFERED.
    sys.stdout.reconfigure(line_buffering=True)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
