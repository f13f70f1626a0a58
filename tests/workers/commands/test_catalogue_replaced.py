"""`omdml catalogue build --replace` says what becomes of models on the catalogue that it replaces."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from omdml.workers.cli import main

BEFORE = "id,color.0,color.1,size.0\na,0,1,2\nb,1,0,3\nc,1,1,4\n"


@pytest.mark.parametrize(
    ("after", "expected", "unexpected"),
    [
        ("id,color.0,color.1\na,0,1\nb,1,0\nc,1,1\n", "omdml replay --model NAME --publish --replace", "models go on"),
        (BEFORE.replace("a,0,1,2\n", ""), "models go on. Restart the workers, then the nodes", "omdml replay"),
    ],
    ids=["other dimensions", "the same dimensions"],
)
def test_what_to_do_next_and_where_the_old_catalogue_lies_is_said(tmp_path, after, expected, unexpected):
    def built(table, *options):
        (tmp_path / "items.csv").write_text(table)
        target, source = str(tmp_path / "items"), str(tmp_path / "items.csv")
        result = CliRunner().invoke(main, ["catalogue", "build", target, source, "--no-map", *options])
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    assert "previous" not in built(BEFORE)
    output = built(after, "--replace")
    assert expected in output
    assert unexpected not in output
    assert f"{tmp_path}/items.previous" in output
    # Processes that run have the folder open that the same items replace, too.
    assert "models go on. Restart the workers, then the nodes" in built(after, "--replace")
