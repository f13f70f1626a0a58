"""The operators' commands: what they cannot use is refused in a sentence, and what others named is shown harmlessly."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from omdml.errors import ConfigurationError
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.cli import main
from omdml.workers.commands.options import print_table
from omdml.workers.configuration.loading import load
from omdml.workers.wiring import feedback_log, kafka_topic
from omdml.workers.wiring.feedback_log import open_sink
from omdml.workers.wiring.worker import build_worker
from tests.support.installations import Installation
from tests.support.worlds import catalogue, run_until_idle


@pytest.mark.parametrize(
    ("command", "says"),
    [
        # No file can have such a name.
        (["inspect", "m" * 300], "omdml: store dir:"),
        (["inspect", "/proc/self/mem"], "omdml: /proc/self/mem: cannot be read (Input/output error): name a file"),
        (["topics", "rewind", "--to", "²"], "neither 'beginning' nor an offset"),
    ],
)
def test_a_name_file_or_number_that_cannot_be_used_is_refused(tmp_path, command, says):
    file = tmp_path / "omdml.toml"
    file.write_text(f'[log]\nkind = "file"\npath = "{tmp_path}/log"\n[store]\nurl = "dir:{tmp_path}/state"\n')
    DirectoryStore(tmp_path / "state").make()
    refused = CliRunner().invoke(main, [*command, "-c", str(file)])
    assert refused.exit_code != 0
    assert says in " ".join(refused.output.split())


def test_a_rollback_and_a_pin_say_which_version_was_live_before(tmp_path):
    shop = Installation(tmp_path)
    shop.learn(60)
    older = shop.store.current("shop").version
    shop.learn(60, seed=1)
    newer = shop.store.current("shop").version
    assert older < newer
    assert f"version {older} is live (before: version {newer})" in shop.omdml("rollback", "shop", f"--version={older}")
    assert f"version {newer} is live (before: version {older})" in shop.omdml("pin", "shop", f"--version={newer}")
    assert f"version {newer} is live (as before)" in shop.omdml("pin", "shop")


@pytest.mark.parametrize("command", [("rehome",), ("rewind", "--yes")])
def test_how_far_a_topic_reaches_is_looked_at_only_once_the_workers_are_stopped(tmp_path, monkeypatch, command):
    # A worker that still runs may save events from behind the ends that were looked at.
    topics_looked_at = []

    def refuse(log, store):
        raise ConfigurationError("stop the workers first")

    monkeypatch.setattr(feedback_log, "require_stopped", refuse)
    monkeypatch.setattr(kafka_topic, "look_at_topic", topics_looked_at.append)
    environment = {"OMDML_LOG__KIND": "kafka", "OMDML_STORE__URL": f"dir:{tmp_path}/state"}
    refused = CliRunner().invoke(main, ["topics", *command], env=environment)
    assert "stop the workers first" in " ".join(refused.output.split())
    assert topics_looked_at == []


def test_a_rewind_of_a_log_in_files_is_refused_before_it_asks(tmp_path):
    environment = {"OMDML_LOG__KIND": "file", "OMDML_LOG__PATH": f"{tmp_path}/log"}
    environment["OMDML_STORE__URL"] = f"dir:{tmp_path}/state"
    refused = CliRunner().invoke(main, ["topics", "rewind"], env=environment)
    assert refused.exit_code == 2
    assert "a log in files has no topic" in " ".join(refused.output.split())
    assert "Delete all models" not in refused.output


def test_a_command_that_needs_stopped_workers_must_know_their_group(named, tmp_path):
    text = named.read_text().replace('kind = "file"\n', 'kind = "file"\ngroup = "mistyped"\n')
    file = tmp_path / "omdml.toml"
    file.write_text(text)
    refused = CliRunner().invoke(main, ["forget", "shop", "--user", "u", "--yes", "-c", str(file)])
    assert refused.exit_code == 2
    assert "says that group 'omdml' reads this log" in " ".join(refused.output.split())


# A terminal that is sent this clears the screen, rings, changes its title, begins a forged line, and turns text around.
OBEYED = "m-\x1b[2J\x07\x1b]0;title\x07\nforged\x9b31m\u202e\x7f\x00"


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """The configuration of a store with a model, and of a log with events, whose senders chose such names."""
    folder = tmp_path_factory.mktemp("named")
    catalogue(folder / "items")
    file = folder / "omdml.toml"
    file.write_text(
        f'[log]\nkind = "file"\npath = "{folder}/log"\nletters = "{folder}/letters"\n'
        f'[store]\nurl = "dir:{folder}/state"\n[catalogues.items]\npath = "{folder}/items"\n'
        '[models.shop]\nlearner = "lomdml"\nrank = 2\n[models."m-*"]\nlearner = "lomdml"\nrank = 2\n'
    )
    configuration = load(str(file), {}, {})
    event = {"type": "triplet", "query": "i0", "relevant": "i1", "irrelevant": "i2"}
    sink = open_sink(configuration.log)
    for changes in ({"model": OBEYED}, {"model": OBEYED, "query": OBEYED}, {"model": f"x{OBEYED}"}):
        sink.send(json.dumps(event | changes).encode(), OBEYED)
    sink.send(OBEYED.encode(), OBEYED)
    sink.close()
    worker = build_worker(configuration, CollectorRegistry())
    run_until_idle(worker)
    worker.stop()
    worker.run()
    return file


COMMANDS = [
    ("models", "list"), ("doctor",), ("doctor", "--audit"), ("letters", "list"), ("letters", "list", "--json"),
    ("letters", "resend"), ("letters", "resend", "--dry-run"), ("history", OBEYED), ("history", OBEYED, "--json"),
    ("inspect", OBEYED), ("diff", OBEYED, "1", "1"), ("rollback", OBEYED), ("rollback", "nobody" + OBEYED),
    ("pin", OBEYED), ("unpin", OBEYED), ("replay", "--model", OBEYED), ("topics", "status"),
    ("models", "copy", OBEYED, OBEYED), ("models", "reset", "--yes", OBEYED), ("models", "delete", "--yes", OBEYED),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]).partition("m-")[0])
def test_no_command_prints_what_a_terminal_would_obey_whatever_senders_named(named, command):
    answer = CliRunner().invoke(main, [*command, "-c", str(named)])
    assert answer.output
    assert [sign for sign in answer.output if not sign.isprintable() and sign != "\n"] == []
    assert "\nforged" not in answer.output


def test_every_letter_is_explained_without_what_a_terminal_would_obey(named):
    lines = CliRunner().invoke(main, ["letters", "list", "--json", "-c", str(named)]).output.splitlines()
    positions = [f"{letter['partition'][1]}/{letter['offset']}" for letter in map(json.loads, lines)]
    assert len(positions) == 3
    for position in positions:
        answer = CliRunner().invoke(main, ["letters", "explain", position, "-c", str(named)])
        assert answer.exit_code == 0, answer.output
        assert [sign for sign in answer.output if not sign.isprintable() and sign != "\n"] == []


def test_the_position_of_a_letter_can_be_copied_from_the_list(capsys):
    position = f"{'f' * 32}/0/1099511627776"
    print_table(("position", "logged", "since then", "event"), [(position, "2026-11-28 12:00:00", "x" * 60, "y" * 60)])
    assert position in capsys.readouterr().out


def test_events_of_times_that_no_calendar_has_leave_every_command_working(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    catalogue(tmp_path / "items")
    (tmp_path / "omdml.toml").write_text(
        '[catalogues.items]\npath = "items"\n[models.shop]\nlearner = "lomdml"\nrank = 2\n'
    )
    event = {"type": "triplet", "model": "shop", "query": "i0", "relevant": "i1", "irrelevant": "i2"}
    # These two are learned, and the three records below become letters.
    lines = [json.dumps(event | {"at": time}) for time in (1e308, 1e15)]
    refused = json.dumps(event | {"query": "nobody"})
    lines += [json.dumps({"record": {"logged": time, "key": None, "headers": [], "value": refused}})
              for time in (1e308, -1e308, 1e12)]  # fmt: skip
    (tmp_path / "feedback").mkdir()
    (tmp_path / "feedback" / "00000001.jsonl").write_text("\n".join(lines) + "\n")
    worker = build_worker(load("omdml.toml", {}, {}), CollectorRegistry())
    run_until_idle(worker)
    worker.stop()
    worker.run()
    for command in (("inspect", "shop"), ("letters", "list"), ("models", "list"), ("history", "shop"), ("doctor",)):
        answer = CliRunner().invoke(main, command)
        assert answer.exception is None or isinstance(answer.exception, SystemExit), command
        assert "does not foresee" not in answer.output
    listed = CliRunner().invoke(main, ["letters", "list"]).output
    assert ("3 unknown_item" in listed, "1e+308 s since 1970" in listed) == (True, True), listed
    for letter in map(json.loads, CliRunner().invoke(main, ["letters", "list", "--json"]).output.splitlines()):
        position = f"{letter['partition'][1]}/{letter['offset']}"
        assert CliRunner().invoke(main, ["letters", "explain", position]).exit_code == 0


def test_a_command_that_asks_says_what_to_do_if_nobody_can_answer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    catalogue(tmp_path / "items")
    (tmp_path / "omdml.toml").write_text(
        '[catalogues.items]\npath = "items"\n[models.shop]\nlearner = "lomdml"\nrank = 2\n[guard]\non = false\n'
    )
    event = {"type": "triplet", "model": "shop", "query": "i0", "relevant": "i1", "irrelevant": "i2"}
    (tmp_path / "feedback").mkdir()
    (tmp_path / "feedback" / "00000001.jsonl").write_text(json.dumps(event) + "\n")
    worker = build_worker(load("omdml.toml", {}, {}), CollectorRegistry())
    run_until_idle(worker)
    worker.stop()
    worker.run()
    answers = [CliRunner().invoke(main, ["models", "reset", "shop"], input=typed) for typed in ("", "n\n", "y\n")]
    assert [answer.exit_code for answer in answers] == [2, 1, 0]
    assert "pass --yes if the answer is yes" in answers[0].output


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_a_configuration_that_is_no_regular_file_is_refused_not_ignored(tmp_path, monkeypatch, make):
    make(tmp_path / "omdml.toml")
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(main, ["models", "list"])
    assert (refused.exit_code, "configuration omdml.toml: cannot be read" in refused.output) == (2, True), (
        refused.output
    )
