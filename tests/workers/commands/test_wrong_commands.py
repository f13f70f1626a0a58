"""Errors about commands that do not exist, and about a catalogue whose folder was not named."""

from __future__ import annotations

import click
import numpy as np
import pytest
from click.testing import CliRunner

from omdml.workers.cli import main
from omdml.workers.commands.wrong_names import MEANT


def last_line(*words):
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    return done.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("build", "did you mean 'omdml catalogue build'?"),
        ("start", "did you mean 'omdml worker' or 'omdml node'?"),
        ("serve", "did you mean 'omdml node'?"),
        ("learn", "did you mean 'omdml worker' or 'omdml learn-on'?"),
        ("index", "did you mean 'omdml catalogue build'?"),
        ("delete", "did you mean 'omdml catalogue delete' or 'omdml models delete'?"),
        ("serach", "did you mean 'omdml search'?"),
        ("stop", "no command 'stop': omdml --help lists all commands"),
    ],
)
def test_the_command_that_is_probably_meant_is_named(word, expected):
    assert expected in last_line(word)


def test_every_command_that_is_suggested_exists():
    for command in {command for commands in MEANT.values() for command in commands}:
        command_or_group = main
        for word in command.split():
            assert isinstance(command_or_group, click.Group)
            command_or_group = command_or_group.commands[word]


def test_an_input_in_the_place_of_the_catalogues_folder_is_recognised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("image.npy", np.eye(3))
    np.save("my text.npy", np.eye(3))
    message = last_line("catalogue", "build", "image.npy", "my text.npy")
    assert "TARGET is image.npy, which looks like an input" in message
    assert message.endswith("omdml catalogue build items/ image.npy 'my text.npy'")
    assert "which looks like an input" in last_line("catalogue", "build", "items.npz")
    (tmp_path / "notes").write_text("")
    assert "TARGET notes is a file, expected a folder" in last_line("catalogue", "build", "notes", "image.npy")
    done = CliRunner().invoke(main, ["catalogue", "build", "items/", "image.npy", "my text.npy"])
    assert "say what the modality is called, as in image='my text.npy'" in str(done.exception) + done.output
    assert not (tmp_path / "items").exists()
