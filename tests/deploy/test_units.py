"""systemd understands the units. They confine the processes, and agree with what the processes do."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from omdml.streams.kafka.routing.router import STOP_S
from omdml.workers.cli import main
from omdml.workers.learning.schedule import FINISH_S
from omdml.workers.node.http.server import GRACE_S

FOLDER = Path(__file__).resolve().parents[2] / "deploy/systemd"
UNITS = sorted(FOLDER.glob("*.service"))
# The highest exposure a unit may have, in tenths: systemd rates it from 0 to 10.
EXPOSURE = 15


def options(unit):
    """The options of a unit; one that is given several times has the last value."""
    lines = (line for line in unit.read_text().splitlines() if line and line[0] not in "#[")
    return dict(line.split("=", 1) for line in lines)


def analyze(systemd, *arguments):
    """The exit code, output and errors of systemd-analyze."""
    environment = {**os.environ, **systemd.environment, "LANG": "C"}
    command = [systemd.program("systemd-analyze"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def instance(unit, folder, text=None):
    """Write an instance of a unit into a folder, with a program that exists."""
    text = (text or unit.read_text()).replace("/opt/omdml/bin/omdml", sys.executable)
    path = folder / unit.name.replace("@", "@1")
    path.write_text(text)
    return path


def test_there_is_a_unit_for_workers_one_for_nodes_and_one_for_routers():
    assert [unit.name for unit in UNITS] == [f"omdml-{role}@.service" for role in ("node", "route", "worker")]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_understands_all_of_a_unit(systemd, tmp_path, unit):
    # An unknown option is a line in the output, and the exit code is 0.
    assert analyze(systemd, "verify", "--man=no", instance(unit, tmp_path)) == (0, "", "")
    mistaken = unit.read_text().replace("WatchdogSec=", "WatchdogSeconds=")
    _, _, complaint = analyze(systemd, "verify", "--man=no", instance(unit, tmp_path, mistaken))
    assert "WatchdogSeconds" in complaint


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_confines_its_process(systemd, tmp_path, unit):
    command = ("security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}")
    code, table, complaint = analyze(systemd, *command, instance(unit, tmp_path))
    assert (code, complaint) == (0, ""), table
    opened = "\n".join(line for line in unit.read_text().splitlines() if not line.startswith("ProtectSystem"))
    assert analyze(systemd, *command, instance(unit, tmp_path, opened.replace("NoNewPrivileges=yes", "")))[0] != 0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_fits_the_process(unit):
    given = options(unit)
    program, role, *arguments = shlex.split(given["ExecStart"])
    assert program == "/opt/omdml/bin/omdml"
    options_of_role = {name for parameter in main.commands[role].params for name in parameter.opts}
    assert {word for word in arguments if word.startswith("-")} <= options_of_role
    assert unit.name == f"omdml-{role}@.service"
    # Exit code 1 means that starting again helps. Codes 2 and 3 need an operator.
    assert given["RestartPreventExitStatus"].split() == ["2", "3"]
    assert (given["Type"], given["Restart"], given["NotifyAccess"]) == ("notify", "always", "main")
    assert float(given["TimeoutStopSec"]) >= 2 * max(FINISH_S, STOP_S, GRACE_S, 10)
    assert f"NUMBA_CACHE_DIR=%C/{given['CacheDirectory']}" in unit.read_text()
    # Kernels are compiled into memory that is written and then run.
    assert "MemoryDenyWriteExecute" not in given


def test_units_and_lists_name_the_same_users_and_folders():
    users = set(re.findall(r"^u (\S+)", (FOLDER / "omdml.sysusers.conf").read_text(), re.MULTILINE))
    folders = re.findall(r"^d (\S+)", (FOLDER / "omdml.tmpfiles.conf").read_text(), re.MULTILINE)
    given = [options(unit) for unit in UNITS]
    assert {unit["User"] for unit in given} == users
    assert {unit["WorkingDirectory"].replace("%S", "/var/lib") for unit in given} <= set(folders)
    assert {unit["ReadWritePaths"].replace("-%S", "/var/lib") for unit in given if "ReadWritePaths" in unit} <= set(
        folders
    )
