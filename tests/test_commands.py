"""What the operators' commands are given and cannot use is refused in a sentence."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from omdml.errors import ConfigurationError
from workers import wiring
from workers.cli import main


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["inspect", "m" * 300], "omdml: store dir:"),  # no file has such a name
        (["topics", "rewind", "--to", "²"], "neither 'beginning' nor an offset"),
    ],
)
def test_a_name_or_a_number_that_is_none_is_told_as_such(tmp_path, command, says):
    file = tmp_path / "omdml.toml"
    file.write_text(f'[log]\nkind = "file"\npath = "{tmp_path}/log"\n[store]\nurl = "dir:{tmp_path}/state"\n')
    refused = CliRunner().invoke(main, [*command, "-c", str(file)])
    assert says in " ".join(refused.output.split())


@pytest.mark.parametrize("command", [("rehome",), ("rewind", "--yes")])
def test_how_far_a_topic_reaches_is_looked_at_only_once_the_workers_are_stopped(tmp_path, monkeypatch, command):
    # A worker that still runs may save what came behind the ends that were seen.
    looked = []

    def refuse(log):
        raise ConfigurationError("stop the workers first")

    monkeypatch.setattr(wiring, "require_stopped", refuse)
    monkeypatch.setattr(wiring, "look_at_topic", looked.append)
    environment = {"OMDML_LOG__KIND": "kafka", "OMDML_STORE__URL": f"dir:{tmp_path}/state"}
    refused = CliRunner().invoke(main, ["topics", *command], env=environment)
    assert "stop the workers first" in " ".join(refused.output.split())
    assert looked == []
