"""`omdml catalogue build --replace` says what becomes of models on the catalogue that it replaces."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from omdml.streams.catalogues.opening import open_catalogue
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
def test_a_replacement_says_what_to_do_next_and_where_the_old_one_lies(tmp_path, after, expected, unexpected):
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
    # A catalogue of the same items is another folder, too: processes that run still have the old one open.
    assert "models go on. Restart the workers, then the nodes" in built(after, "--replace")


def test_changes_after_the_build_are_counted_and_dropped_only_after_a_yes(tmp_path):
    target, source = str(tmp_path / "items"), tmp_path / "items.csv"
    source.write_text("id,color.0,color.1,price\na,0,1,2\nb,1,0,3\nc,1,1,4\n")

    def catalogue(*arguments, **options):
        return CliRunner().invoke(main, ["catalogue", *map(str, arguments)], **options)

    def build(*options, **more):
        return catalogue("build", target, source, "--no-map", *options, **more)

    assert build().exit_code == 0
    # The build's own attributes are no changes, not even if it is repeated.
    source.write_text(source.read_text().replace("4\n", "5\n"))
    assert build().exit_code == 0
    assert "Replace it?" not in build("--replace").output

    (tmp_path / "more.csv").write_text("id,color.0,color.1,price\nd,0,0,6\ne,0,2,6\n")
    assert catalogue("build", target, tmp_path / "more.csv", "--add").exit_code == 0
    lines = '{"id":"f","features":{"color":[1,1]}}\n{"id":"a","attributes":{"price":9}}\n{"id":"b","delete":true}\n'
    assert catalogue("put", target, input=lines).exit_code == 0
    for answer in ("", "n\n"):
        refused = build("--replace", input=answer)
        assert refused.exit_code != 0
        assert "got 2 added items and 3 changes after its build" in refused.output
    assert "pass --yes if the answer is yes" in build("--replace", input="").output
    ids = {"a", "c", "d", "e", "f"}
    unchanged = open_catalogue(target)
    assert {item for item in (*ids, "b") if item in unchanged} == ids
    assert unchanged.attributes["a"] == {"price": 9}

    again = " ".join(build().output.split())
    assert "got 2 added items and 3 changes since: items that were put stay, and deleted ones stay deleted" in again

    replaced = build("--replace", "--yes")
    assert replaced.exit_code == 0, replaced.output
    output = " ".join(replaced.output.split())
    assert "not in the new one, unless the inputs have it: 2 added items and 3 changes" in output
    now = open_catalogue(target)
    assert {item for item in (*ids, "b") if item in now} == {"a", "b", "c"}
    assert now.later == (0, 0)
    assert "Replace it?" not in build("--replace", input="y\n").output


def test_later_changes_of_a_damaged_catalogue_are_reported_as_unknown(tmp_path):
    (tmp_path / "items.csv").write_text(BEFORE)
    build = ["catalogue", "build", str(tmp_path / "items"), str(tmp_path / "items.csv"), "--no-map"]
    assert CliRunner().invoke(main, build).exit_code == 0
    (tmp_path / "items" / "ids.txt").write_bytes(b"damaged")
    replaced = CliRunner().invoke(main, [*build, "--replace"])
    assert replaced.exit_code == 0, replaced.output
    assert "its later changes could not be counted" in replaced.output
