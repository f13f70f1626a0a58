"""Worker and node run under a real systemd, as their units say."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from deploy.local.ports import free_port
from tests.support.kernels import copy_kernels
from tests.support.pages.documents import block_that_begins, operators_commands, read
from tests.support.servers.booted import Booted, CannotBoot
from tests.support.waiting import until
from tests.support.worlds import catalogue

CONFIGURATION = """
[log]
kind = "file"
path = "feedback/"
letters = "letters/"
[store]
url = "dir:state"
[catalogues.items]
path = "items"
[models.shop]
learner = "lomdml"
rank = 2
[guard]
on = false
"""
CLICK = {"type": "triplet", "model": "shop", "query": "i1", "relevant": "i2", "irrelevant": "i3"}
WORKER, NODE = "omdml-worker@1.service", "omdml-node@1.service"
# The kernel that a worker compiles on each machine, because its unit must let it.
COMPILED = "lowrank.flush_all"


class Machine(Booted):
    """A booted machine with items, a configuration, and a port for each process."""

    def __enter__(self):
        super().__enter__()
        self.kernels = self.place / "var/cache/omdml-worker"
        for role in ("worker", "node"):
            copy_kernels(self.place / f"var/cache/omdml-{role}", Path("/opt/source"), left_out=COMPILED)
        self.etc, self.var = self.place / "etc/omdml", self.place / "var/lib/omdml"
        catalogue(self.var / "items")
        (self.etc / "omdml.toml").write_text(CONFIGURATION)
        self.ports = {"worker": free_port(), "node": free_port()}
        for role, port in self.ports.items():
            (self.etc / f"{role}-1.env").write_text(f"OMDML_{role.upper()}__BIND=127.0.0.1:{port}\n")
        return self

    def get(self, role, path):
        return httpx.get(f"http://127.0.0.1:{self.ports[role]}{path}", timeout=10, verify=False)

    def is_ready(self, role):
        try:
            return self.get(role, "/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def click(self):
        """Send a click to the node, and wait until it answers with what was learned from it."""
        version = lambda: self.get("node", "/search?model=shop&id=i1").json()["version"]  # noqa: E731
        before = version()
        sent = httpx.post(f"http://127.0.0.1:{self.ports['node']}/feedback", json=CLICK, timeout=10)
        assert sent.status_code in (200, 202), sent.text
        until(lambda: version() > before, 60)


@pytest.fixture
def machine(systemd, tmp_path):
    try:
        with Machine(systemd, tmp_path) as booted:
            yield booted
    except CannotBoot as error:
        pytest.skip(f"no systemd can be started here, so the units were not run: {error}")


def assert_two_users_without_rights(machine):
    """Check that two users share the log's folder and its group, and that only the worker's reads the secret."""
    uids = {}
    for unit in (WORKER, NODE):
        (pid,) = machine.show(unit, "MainPID")
        status = dict(line.split(":\t", 1) for line in machine.inside("cat", f"/proc/{pid}/status").splitlines())
        assert (status["NoNewPrivs"], status["Seccomp"], int(status["CapEff"], 16)) == ("1", "2", 0)
        uids[unit] = int(status["Uid"].split()[0])
    assert 0 not in uids.values()
    secret = os.stat(machine.var / "state/secret")
    assert (secret.st_uid, secret.st_mode & 0o777) == (uids[WORKER], 0o600)
    assert uids[NODE] != uids[WORKER]


@pytest.mark.deep
def test_units_start_restart_after_a_kill_and_stay_down_for_a_mistake(machine):
    # Started means ready: systemctl waits until the processes say so.
    assert machine.ask("start", WORKER, NODE) == "", machine.said(WORKER) + machine.said(NODE)
    assert machine.show(WORKER, "ActiveState", "StatusText") == ["active", "learning, 1 partition"]
    until(lambda: machine.is_ready("worker") and machine.is_ready("node"), 60)
    machine.click()
    assert_two_users_without_rights(machine)
    assert list(machine.kernels.rglob(f"{COMPILED}-*.nbc"))

    # After a kill it is started again, and learns on.
    assert machine.ask("kill", "--signal=KILL", WORKER) == ""
    until(lambda: machine.show(WORKER, "NRestarts", "ActiveState") == ["1", "active"], 60)
    machine.click()

    # The runbook's commands work, also with the settings that only this worker has.
    assert "ok" in operate(machine, "call a command")
    assert "ok" in operate(machine, "call a command", "$(cat /etc/omdml/worker-1.env)")
    operate(machine, "stop the workers")
    assert machine.show(WORKER, "Result", "ActiveState") == ["success", "inactive"]
    operate(machine, "start them")
    assert machine.show(WORKER, "ActiveState") == ["active"]
    machine.click()

    # When it hangs, the watchdog notices, and it is started again.
    drop_in = machine.place / f"opt/units/{WORKER}.d/short.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nWatchdogSec=5\n")
    machine.ask("daemon-reload")
    assert machine.ask("restart", WORKER) == ""
    machine.ask("kill", "--signal=STOP", WORKER)
    until(lambda: machine.show(WORKER, "NRestarts", "ActiveState") == ["1", "active"], 60)
    machine.click()

    # When it is stopped, it saves and ends in time.
    assert machine.ask("stop", WORKER, NODE) == ""
    for unit in (WORKER, NODE):
        assert machine.show(unit, "Result", "ExecMainStatus", "ActiveState") == ["success", "0", "inactive"]

    # With an empty store, about which an operator must decide, it ends with 3 and is not started again.
    (machine.var / "state").rename(machine.var / "state.lost")
    machine.ask("start", WORKER)
    stays_down(machine, code=3)

    # With a mistake in the configuration it ends with 2 and is not started again.
    (machine.etc / "omdml.toml").write_text("[worker]\nbind = 7\n")
    machine.ask("reset-failed", WORKER)
    machine.ask("start", WORKER)
    stays_down(machine, code=2)


@pytest.mark.deep
def test_a_worker_goes_on_behind_a_gap_as_the_runbook_says(machine):
    # Given a log without the segment in which the worker would go on reading, as if somebody had cleaned up
    machine.ask("start", WORKER, NODE)
    until(lambda: machine.is_ready("worker") and machine.is_ready("node"), 60)
    machine.click()
    assert machine.ask("stop", WORKER, NODE) == ""
    (segment,) = (machine.var / "feedback").glob("*.jsonl")
    segment.rename(segment.with_name("00000003.jsonl"))
    machine.ask("start", WORKER)
    stays_down(machine, code=3)
    assert "--accept-gap" in machine.said(WORKER).splitlines()[-1]
    # When an operator does what the runbook says; there is no journal here, so its file is read
    give, restart, look, take = block_that_begins(read("deploy/RUNBOOK.md"), "echo WORKER_OPTIONS").splitlines()
    call(machine, give)
    call(machine, restart)
    assert look == "journalctl -u omdml-worker@1 --since=-10min | grep gap_accepted"
    until(lambda: "gap_accepted" in machine.said(WORKER), 60)
    call(machine, take)
    # I expect it to learn, and to do so without the option from the next start on.
    machine.ask("start", NODE)
    until(lambda: machine.is_ready("worker") and machine.is_ready("node"), 60)
    machine.click()
    assert "--accept-gap" in command_line(machine)
    call(machine, restart)
    until(lambda: machine.is_ready("worker"), 60)
    assert "--accept-gap" not in command_line(machine)
    machine.click()


def command_line(machine):
    """The command line of the running worker."""
    (pid,) = machine.show(WORKER, "MainPID")
    return machine.inside("cat", f"/proc/{pid}/cmdline").replace("\0", " ")


def call(machine, command):
    """Call a line of the runbook. Fails if it failed."""
    *printed, code = machine.inside("sh", "-c", f"{command} 2>&1; echo $?").splitlines()
    assert code == "0", "\n".join(printed)
    return "\n".join(printed)


def operate(machine, row, environment=""):
    """Call the command in a row of the runbook's table; returns its output. Fails if it failed."""
    command, *_ = operators_commands("Under systemd")[row]
    command = command.replace(" /var/lib/omdml ", f" /var/lib/omdml {environment} ")
    return call(machine, command)


def stays_down(machine, code):
    """Wait until the worker has ended with this code, and is not started again."""
    wanted = ["exit-code", str(code), "failed", "0"]
    until(lambda: machine.show(WORKER, "Result", "ExecMainStatus", "ActiveState", "NRestarts") == wanted, 60)
