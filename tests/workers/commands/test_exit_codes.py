"""The exit codes of processes: a supervisor must know whether starting one again helps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib

import click
import click.testing
import pytest
import structlog

from omdml import errors
from omdml.streams.files.source import FileSink
from omdml.streams.placement import PlacementChanged
from omdml.workers.__main__ import end
from omdml.workers.cli import Omdml, main
from omdml.workers.configuration.config import Configuration, ModelConfig
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.process import configure_log
from omdml.workers.doctor.checks.installation import mistyped_models
from tests.support.forks import ended
from tests.support.processes import ROOT, wait_for
from tests.support.worlds import catalogue, events

CODES = {
    2: (errors.ConfigurationError, errors.CatalogueError),
    3: (
        errors.GapError,
        errors.CorruptError,
        errors.FormatError,
        errors.StoreLost,
        errors.StoreRefused,
        errors.SourceRefused,
    ),
    1: (
        errors.StoreError,
        errors.SourceError,
        errors.ClientFailed,
        errors.Fenced,
        errors.StartError,
        PlacementChanged,
    ),
}


@pytest.mark.parametrize(("code", "error"), [(code, error) for code, some in CODES.items() for error in some])
def test_the_exit_code_says_who_can_help(code, error):
    def fail():
        raise error("what is wrong")

    group = Omdml("omdml", commands={"fail": click.Command("fail", callback=fail)})
    result = click.testing.CliRunner().invoke(group, ["fail"])
    assert result.exit_code == code
    assert result.output.startswith("omdml: ")
    assert "what is wrong" in result.output


def test_ctrl_c_ends_a_command_with_a_line_that_says_so():
    def pressed():
        raise KeyboardInterrupt

    group = Omdml("omdml", commands={"wait": click.Command("wait", callback=pressed)})
    result = click.testing.CliRunner().invoke(group, ["wait"])
    assert (result.exit_code, result.output) == (130, "omdml: stopped by Ctrl-C\n")


# What the installed command does, with a signal as it comes to import a module.
SIGNALLED = """
import importlib, os, signal, sys
# Whoever started the tests in the background had Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
entry, module, number = sys.argv.pop(1), sys.argv.pop(1), int(sys.argv.pop(1))
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Press())
name, _, function = entry.partition(":")
getattr(importlib.import_module(name), function)()
"""


@pytest.mark.parametrize("module", ["omdml.workers.cli", "click.core", "omdml.workers.commands.topics"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_amid_the_first_imports_ends_the_process_without_a_word(module, number):
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["omdml"]
    command = [sys.executable, "-c", SIGNALLED, entry, module, str(int(number)), "--help"]
    result = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (-number, "", "")


def immune():
    """End as the first process of a container does, which no signal ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    end(signal.SIGTERM, None)


def test_a_process_that_no_signal_ends_exits_with_its_code():
    assert ended(immune) == 143


@pytest.mark.parametrize("form", ["json", "logfmt"])
def test_lines_of_the_log_have_the_form_and_the_level_of_the_configuration(form, capsys):
    before = structlog.get_config()
    loaded = load(None, {"OMDML_LOGGING__FORMAT": form, "OMDML_LOGGING__LEVEL": "warning"}).logging
    configure_log(loaded.format, loaded.level)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        structlog.get_logger().info("unheard")
        structlog.get_logger().warning("drift", model="a\u202eb", version=3)
    finally:
        structlog.configure(**before)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    if form == "json":
        fields = json.loads(line)
        assert (fields["event"], fields["level"], fields["model"]) == ("drift", "warning", "a\u202eb")
        assert fields["version"] == 3
    else:
        assert "event=drift" in line


def test_an_unknown_level_is_refused():
    with pytest.raises(errors.ConfigurationError, match="logging"):
        load(None, {"OMDML_LOGGING__LEVEL": "loud"})


@pytest.mark.parametrize(("settings", "code"), [("[worker]\nmemory_mb = -1\n", 2), ("", 0)])
def test_a_full_disk_under_the_log_changes_no_work_and_no_exit_code(tmp_path, settings, code):
    catalogue(tmp_path / "items")
    (tmp_path / "omdml.toml").write_text(
        f'[catalogues.items]\npath = "items"\n[models.shop]\nlearner = "lomdml"\nrank = 2\n{settings}'
    )
    learned = tmp_path / "state" / "models" / "shop" / "checkpoints"
    sink = FileSink(tmp_path / "feedback")
    sink.send_many([(event, "shop") for event in events(20)])
    sink.flush()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        worker = subprocess.Popen(
            [sys.executable, "-m", "omdml.workers.cli", "worker"],
            cwd=tmp_path,
            stdout=full,
            stderr=full,
            env=environment,
        )
    try:
        if code == 0:
            wait_for(lambda: worker.poll() is not None or any(learned.glob("**/*.checkpoint")), "a checkpoint")
            assert worker.poll() is None
            worker.terminate()
        assert worker.wait(60) == code
    finally:
        worker.kill()
        worker.wait()


CLOSED, FULL = (">&-", "it is closed"), (">/dev/full", "No space left on device")


@pytest.mark.parametrize(
    ("command", "output", "why"),
    [
        ("config schema", *CLOSED),
        ("config schema", *FULL),
        ("letters list", *FULL),
        ("--help", *CLOSED),
        ("worker --help", *FULL),
    ],
)
def test_a_command_whose_output_takes_nothing_ends_with_a_sentence(tmp_path, command, output, why):
    (tmp_path / "omdml.toml").write_text('[catalogues.items]\npath = "items"\n[models.shop]\n')
    result = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m omdml.workers.cli {command} {output}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    expected = f"omdml: standard output cannot be written ({why}): send it to a file with room, or a terminal\n"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", expected)


def test_a_command_whose_reader_has_gone_ends_without_a_word(tmp_path):
    # The reader goes before anything is written: a pipe would take all of a schema before `head` has gone.
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "omdml.workers.cli", "config", "schema"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True) as process:
        os.close(reader)
        os.close(writer)
        _, errors_printed = process.communicate(timeout=120)
    assert (process.returncode, errors_printed) == (1, "")


@pytest.mark.parametrize(
    "command", ["models list", "history shop", "doctor", "letters list", "status", "worker", "node", "config check"]
)
def test_a_folder_without_a_configuration_is_reported_with_what_to_do(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    done = click.testing.CliRunner().invoke(main, command.split())
    assert done.exit_code == 2
    output = " ".join(done.output.replace("│", " ").split())
    assert f"there is no omdml.toml in {tmp_path}, so no model is configured: change to the" in output
    assert "add [models.NAME]" not in output


def test_a_configuration_without_a_model_is_named_and_its_lack_is_one_finding(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "omdml.toml").write_text("")
    done = click.testing.CliRunner().invoke(main, ["doctor"])
    assert done.stderr == f"omdml: {tmp_path}/omdml.toml was read, and has no section [models.NAME]: add one\n"
    assert done.stdout.count("no model is configured") == 1


@pytest.mark.parametrize("command", ["feed", "letters resend"])
@pytest.mark.parametrize("file", ["", None])
def test_a_command_that_needs_a_model_says_once_that_there_is_none(tmp_path, monkeypatch, command, file):
    monkeypatch.chdir(tmp_path)
    if file is not None:
        (tmp_path / "omdml.toml").write_text(file)
    done = click.testing.CliRunner().invoke(main, command.split())
    assert done.exit_code == 2
    (line,) = done.output.splitlines()
    assert ("no model is configured" if file is None else "has no section [models.NAME]: add one") in line


def test_servers_without_a_kind_say_which_kind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "omdml.toml").write_text('[log]\nservers = "localhost:9092"\n')
    done = click.testing.CliRunner().invoke(main, ["models", "list"])
    assert 'add kind = "kafka"' in done.stderr


def test_a_missing_token_file_is_named_with_the_command_that_makes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "omdml.toml").write_text('[node]\ntoken_file = "token"\n')
    done = click.testing.CliRunner().invoke(main, ["models", "list"])
    assert "node.token_file 'token': cannot be read (No such file" in done.stderr
    assert "`openssl rand -hex 32 > token`" in done.stderr


def test_the_doctor_says_which_name_was_probably_meant():
    configuration = Configuration(models={"shopp": ModelConfig(learner="dca", catalogue="items")})
    (remark,) = mistyped_models(configuration, ["shop", "shopp", "other"])
    assert "model shop is in the store, and no configured model covers it: did you mean 'shopp'?" in str(remark)
