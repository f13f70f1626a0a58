"""What the operators' commands are given and cannot use is refused in a sentence."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

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
