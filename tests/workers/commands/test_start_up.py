"""Help, and errors about the configuration, come without waiting for the code that learns and serves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager

import click
import pytest

from omdml.learners import LEARNERS
from omdml.workers.cli import main
from tests.support.processes import ROOT

SLOW = ("numba", "scipy", "numpy", "kafka", "redis", "river", "fastapi", "starlette", "uvicorn", "rich", "structlog")
# What omdml's own entry point does, command after command: none may import anything slow, so one process does for all.
RUN = """
import contextlib, io, json, os, sys
from omdml.workers.cli import main
for line in sys.stdin:
    folder, slow, arguments = json.loads(line)
    os.chdir(folder)
    output, code = io.StringIO(), 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            main(arguments, prog_name="omdml")
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, output.getvalue(), sorted(set(slow) & set(sys.modules))]), flush=True)
"""


@contextmanager
def running(slow):
    """Runs commands in one process; each gives its exit code, its output, and what of ``slow`` was imported so far."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", RUN], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def run(folder, *arguments):
            process.stdin.write(json.dumps([str(folder), slow, arguments]) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield run
        process.stdin.close()


@pytest.fixture(scope="module")
def omdml():
    """Runs a command in a folder; returns its exit code, its output, and the slow modules that were imported so far."""
    with running(SLOW) as run:
        yield run


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
def test_help_imports_nothing_slow(omdml, tmp_path, arguments, says):
    code, output, imported = omdml(tmp_path, *arguments)
    assert [code, imported] == [0, []]
    assert says in output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[log", "not TOML"),
        ('[log]\nkind = "kafka"\nservrs = "a:9092"\n', "did you mean 'servers'?"),
        ('[store]\nurl = ""\n', "store.url is ''"),
        ('[worker]\nbind = "9000"\n', "worker.bind is '9000'"),
        # Of several mistakes, this one can be seen without any learner.
        ('[node]\nbind = "8080"\n[catalogues.items]\npath = "items"\n[models.shop]\nrnk = 3\n', "node.bind is '8080'"),
        ("[models.shop]\n", "there is no catalogue"),
        ('[catalogues.items]\npath = "items"\n[models.shop]\nlearner = "lomdl"\n', "did you mean 'lomdml'?"),
    ],
)
@pytest.mark.parametrize("command", [["worker"], ["node"], ["history", "shop"]], ids=" ".join)
def test_a_mistake_in_the_configuration_is_reported_without_slow_imports(omdml, tmp_path, command, text, says):
    (tmp_path / "bad.toml").write_text(text)
    code, output, imported = omdml(tmp_path, *command, "--config", "bad.toml")
    assert [code, imported] == [2, []]
    assert says in output
    assert "Traceback" not in output


@pytest.fixture(scope="module")
def omdml_with_learners():
    """The same for mistakes in options of learners, which need numpy: it is not counted as slow here."""
    with running(("numba", "scipy", "kafka", "redis", "rich", "structlog")) as run:
        yield run


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("dtype = 'float16'", "dtype='float16': expected 'float32' or 'float64'"),
        ("seed = -1", "seed=-1: expected a whole number of at least 0"),
        ("no_such_thing = 1", "no option 'no_such_thing'"),
    ],
)
def test_a_mistake_in_a_learners_option_is_reported_without_kernels(
    omdml_with_learners, tmp_path, learner, option, says
):
    (tmp_path / "bad.toml").write_text(f'[catalogues.a]\npath = "a"\n[models.m]\nlearner = "{learner}"\n{option}\n')
    code, output, imported = omdml_with_learners(tmp_path, "worker", "--config", "bad.toml")
    assert [code, imported] == [2, []]
    assert says in output


@pytest.mark.parametrize("command", ["worker", "node", "feed"])
def test_a_lack_of_models_is_reported_without_importing_learners(tmp_path, command):
    # Lines of the log, which warnings are, need structlog. A process of its own keeps that from the other tests.
    python = [sys.executable, "-X", "importtime"]
    ended = subprocess.run([*python, "-m", "omdml.workers.cli", command], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 2
    assert f"omdml: there is no omdml.toml in {tmp_path}, so no model is configured" in ended.stderr
    assert not re.findall(r"\| +(numba|scipy|numpy|kafka|redis)$", ended.stderr, re.MULTILINE)


def configured_commands(group=main, path=()):
    """The words of every command that reads the configuration, with a value for each parameter that it needs."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from configured_commands(command, (*path, name))
        elif any("--config" in parameter.opts for parameter in command.params):
            words = [*path, name]
            for parameter in command.params:
                if parameter.required:
                    words += parameter.opts[:1] if isinstance(parameter, click.Option) else []
                    words.append("file" if getattr(parameter.type, "exists", False) else "2")
            yield tuple(words)


def test_every_command_reports_a_mistake_without_slow_imports(omdml, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "bad.toml").write_text('[log]\nkind = "nonsense"\n')
    # `config check` answers with a table, which rich draws.
    commands = set(configured_commands()) - {("config", "check")}
    assert {("worker",), ("node",), ("topics", "status")} <= commands
    for command in sorted(commands):
        code, output, imported = omdml(tmp_path, *command, "--config", "bad.toml")
        assert [code, imported] == [2, []], command
        assert "log.kind is 'nonsense'" in output, command


def test_a_mistyped_command_is_reported_without_slow_imports(omdml, tmp_path):
    code, output, imported = omdml(tmp_path, "wroker")
    assert [code, imported] == [2, []]
    assert "did you mean 'omdml worker'?" in output


def test_a_router_and_commands_about_logs_load_nothing_of_learners():
    # They would take a second of processor time at each start. Stores and catalogues import what they need when opened.
    code = (
        "import sys; from omdml.workers.wiring import dead_letters, feedback_log, kafka_topic, models, router, stores;"
        "from omdml.workers.router import condition; print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"numba", "scipy", "redis", "starlette", "uvicorn"} & set(ran.stdout.split())
