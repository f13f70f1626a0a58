"""`omdml catalogue put` and `delete` change a catalogue, and `verify` reads it again."""

from __future__ import annotations

import msgspec
import numpy as np
from click.testing import CliRunner

from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.workers.cli import main
from tests.support.catalogues.changing import plain_catalogue, raw_item
from tests.support.worlds import ITEMS

VECTORS = raw_item(np.random.default_rng(3))


def run(*arguments, **options):
    return CliRunner().invoke(main, ["catalogue", *map(str, arguments)], **options)


def test_items_are_put_from_a_file_and_from_standard_input(tmp_path):
    plain_catalogue(tmp_path / "c")
    lines = [{"id": f"new-{n}", "features": VECTORS, "attributes": {"price": n}} for n in range(1500)]
    (tmp_path / "lines.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    result = run("put", tmp_path / "c", tmp_path / "lines.jsonl")
    assert "1,500 put, 0 with other attributes, 0 deleted, 1,620 items, position 1,500" in result.output
    result = run("put", tmp_path / "c", input=b'{"id":"i1","attributes":{"price":3}}\n{"id":"i2","delete":true}\n')
    assert "0 put, 1 with other attributes, 1 deleted, 1,619 items, position 1,502" in result.output
    assert MappedCatalogue(tmp_path / "c").attributes["new-7"] == {"price": 7}


def test_items_are_deleted_and_those_that_are_not_there_are_reported(tmp_path):
    plain_catalogue(tmp_path / "c")
    result = run("delete", tmp_path / "c", "i1", "nobody", "--from", "-", input="i2\ni3\n")
    assert "3 deleted, 117 items" in result.output
    assert "no such items: nobody" in result.output
    again = run("delete", tmp_path / "c", "i1")
    assert (again.exit_code, "no such items: i1" in again.output) == (0, True)
    assert run("delete", tmp_path / "c").exit_code == 2


def test_a_bad_line_says_which_and_what_was_made_before(tmp_path):
    plain_catalogue(tmp_path / "c")
    good = msgspec.json.encode({"id": "new", "features": VECTORS}) + b"\n"
    result = run("put", tmp_path / "c", input=good * 1000 + b'{"id": "new", "colour": []}\n')
    assert result.exit_code == 2
    assert "line 1001: no field 'colour'; expected one of id, features" in result.output
    assert "before it, 1000 changes were made" in result.output
    assert MappedCatalogue(tmp_path / "c").shown.items == ITEMS + 1


def test_a_build_names_kinds_of_attributes_and_the_cell_that_made_them_text(tmp_path):
    rows = ["id,color.0,price,sale,title", "a,1,9.5,true,cup", "b,2,3,false,mug", 'c,3,"9,50",true,bag']
    (tmp_path / "items.csv").write_text("\n".join(rows))
    lines = run("build", tmp_path / "c", tmp_path / "items.csv").stdout.splitlines()
    assert lines[0] == "attributes: price (text), sale (true or false), title (text)"
    assert lines[1].startswith("attribute price: 2 of 3 cells are numbers, but item 'c' has '9,50', so all of them are")
    assert len(lines) == 3
    (tmp_path / "items.csv").write_text("\n".join(rows).replace('"9,50"', "9.50"))
    refused = run("build", tmp_path / "c", tmp_path / "items.csv")
    assert "attribute price is 9.5, expected a text, as others have" in refused.output
    for advice in (lines[1], refused.output):
        assert "build the catalogue again with --replace" in advice
    assert "price (numbers)" in run("build", tmp_path / "c", tmp_path / "items.csv", "--replace").stdout


def test_a_damaged_vector_is_named_when_a_catalogue_is_verified(tmp_path):
    folder = plain_catalogue(tmp_path / "c").path
    assert f"{folder}: 120 items, generation " in run("verify", folder).output
    vectors = min(folder.glob("*.npy"))
    data = bytearray(vectors.read_bytes())
    data[-1] ^= 1
    vectors.write_bytes(data)
    result = run("verify", folder)
    assert result.exit_code == 2
    assert (
        f"{vectors}: rows 0 to 119 have another sha256 than catalogue.json says, so they are damaged" in result.output
    )


def test_an_input_that_does_not_exist_is_named_once(tmp_path):
    result = run("build", tmp_path / "c", tmp_path / "missing.npz")
    assert result.exit_code == 2
    assert result.output.endswith("missing.npz: cannot be read as .npz (No such file or directory)\n")
