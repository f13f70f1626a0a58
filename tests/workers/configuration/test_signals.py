"""A second SIGTERM, at whatever moment, does not change how a process ends. A second Ctrl-C ends it at once."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.support.forks import ForkedProcess
from tests.support.processes import ROOT, wait_for
from tests.support.worlds import catalogue

LIMIT_S = 60
# Modules are cleared after Python has reset the handlers of signals: the last moment at which its own code runs.
SCRIPT = """
import atexit, os, signal, sys
from omdml.workers.configuration.process import on_signals

first, later, moment = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

class Ends:
    def __del__(self, kill=os.kill, pid=os.getpid(), later=later, write=os.write):
        write(1, b"cleared")
        kill(pid, later)

calls = []
on_signals(lambda: calls.append(1))
os.kill(os.getpid(), first)
assert calls == [1]
if moment == "while it drains":
    os.kill(os.getpid(), later)
elif moment == "as it exits":
    atexit.register(os.kill, os.getpid(), later)
else:
    last = Ends()
"""


def ended(first, later, moment):
    """The exit code of a process that is sent a second signal at this moment, and what it wrote."""
    command = [sys.executable, "-c", SCRIPT, str(int(first)), str(int(later)), moment]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=LIMIT_S, check=False)
    assert not run.stderr, run.stderr
    return run.returncode, run.stdout


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["while it drains", "as it exits", "as its modules are cleared"])
def test_a_second_sigterm_does_not_change_how_a_process_ends(first, moment):
    assert ended(first, signal.SIGTERM, moment) == (0, b"cleared" if "cleared" in moment else b"")


def test_a_second_ctrl_c_ends_a_process_at_once():
    assert ended(signal.SIGINT, signal.SIGINT, "while it drains") == (-signal.SIGINT, b"")


def test_a_worker_that_is_asked_to_end_as_soon_as_it_says_it_started_ends_well(tmp_path):
    catalogue(tmp_path / "items")
    (tmp_path / "omdml.toml").write_text(
        '[log]\npath = "feedback"\nletters = "letters"\n[store]\nurl = "dir:state"\n'
        '[catalogues.items]\npath = "items"\n[models.shop]\nlearner = "lomdml"\nrank = 3\n'
    )
    worker = ForkedProcess(tmp_path, "worker", name="worker")
    try:
        wait_for(lambda: "worker_started" in worker.said, "the worker to start", LIMIT_S, worker)
        assert worker.stop(LIMIT_S) == 0, worker.said
    finally:
        worker.close()
