"""Who asks for help, or made a mistake in the configuration, does not wait for what learns and serves."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from omdml.learners import LEARNERS
from tests.support.processes import ROOT
from workers.commands.options import LEARNER

SLOW = ("numba", "scipy", "numpy", "kafka", "redis", "river", "fastapi", "starlette", "uvicorn", "rich", "structlog")
# What omdml's own entry point does; the modules are listed when the process ends, whatever ended it.
RUN = """
import atexit, sys
slow = sys.argv.pop(1).split()
atexit.register(lambda: print("imported:", *sorted(set(slow) & set(sys.modules)), file=sys.stderr))
from workers.cli import main
main(prog_name="omdml")
"""


def ended(folder, *arguments):
    """The exit code, the output and the slow imports of a command."""
    command = [sys.executable, "-c", RUN, " ".join(SLOW), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    said, _, imported = run.stderr.rpartition("imported:")
    return run.returncode, run.stdout + said, imported.split()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--help"], "catalogue"),
        (["worker", "--help"], "--accept-gap"),
        (["node", "--help"], "--config"),
        (["replay", "--help"], "lomdml"),
        (["history", "--help"], "withheld"),
        (["letters", "resend", "--help"], "--dry-run"),
    ],
)
def test_help_imports_nothing_slow(tmp_path, arguments, says):
    code, output, imported = ended(tmp_path, *arguments)
    assert (code, imported) == (0, [])
    assert says in output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[log", "not TOML"),
        ('[log]\nkind = "kafka"\nservrs = "a:9092"\n', "did you mean 'servers'?"),
        ('[store]\nurl = ""\n', "store.url is ''"),
        ('[worker]\nbind = "9000"\n', "worker.bind is '9000'"),
        # of several mistakes, one that needs no learner to be seen
        ('[node]\nbind = "8080"\n[catalogues.items]\npath = "items"\n[models.shop]\nrnk = 3\n', "node.bind is '8080'"),
        ("[models.shop]\n", "there is no catalogue"),
    ],
)
@pytest.mark.parametrize("command", [["worker"], ["node"], ["history", "shop"]], ids=" ".join)
def test_a_mistake_in_the_configuration_is_told_without_slow_imports(tmp_path, command, text, says):
    (tmp_path / "bad.toml").write_text(text)
    code, output, imported = ended(tmp_path, *command, "--config", "bad.toml")
    assert (code, imported) == (2, [])
    assert says in output
    assert "Traceback" not in output


def test_a_mistyped_command_is_told_without_slow_imports(tmp_path):
    code, output, imported = ended(tmp_path, "wroker")
    assert (code, imported) == (2, [])
    assert "did you mean 'worker'?" in output


def test_the_command_line_names_every_learner():
    assert sorted(LEARNER.choices) == sorted(LEARNERS)
