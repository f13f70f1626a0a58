"""Sets of a catalogue's items: where they come from, how they are kept, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from numpy.testing import assert_array_equal

from omdml.errors import CatalogueError
from omdml.streams.catalogues.building.build import add_items, build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.catalogues.opening import open_catalogue
from omdml.workers.cli import main

FACES = {"face": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]}
IDS = ["f-1", "f-2", "f-3", "f-4"]
PHOTOS = {"p-1": ["f-2", "f-1"], "größe": ["f-3"]}


def _photos(folder: Path, **options: Any) -> MappedCatalogue:
    return build_catalogue(folder / "photos", FACES, **{"ids": IDS, "sets": PHOTOS, **options})


def _elements(catalogue: MappedCatalogue) -> dict[str, list[int]]:
    return {name: rows.tolist() for name, rows in catalogue.sets.items()}


def _file(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_sets_are_row_numbers_of_their_elements_in_order(tmp_path: Path) -> None:
    _photos(tmp_path)
    opened = open_catalogue(tmp_path / "photos")
    assert_array_equal(opened.sets["p-1"], [1, 0])
    assert_array_equal(opened.sets["größe"], [2])
    assert not opened.sets["p-1"].flags.writeable
    assert list(opened.sets) == list(PHOTOS)


def test_a_catalogue_without_sets_stores_nothing_of_sets(tmp_path: Path) -> None:
    plain = _photos(tmp_path, sets=None)
    assert plain.sets == {}
    assert not (plain.path / "sets.jsonl").exists()
    assert "sets" not in (plain.path / "catalogue.json").read_text()
    assert plain.generation != build_catalogue(tmp_path / "other", FACES, ids=IDS, sets=PHOTOS).generation


def test_a_mapping_csv_and_json_lines_make_the_same_generation(tmp_path: Path) -> None:
    table = _file(tmp_path, "sets.csv", "item,set\nf-2,p-1\nf-3,größe\nf-1,p-1\n")
    lines = _file(tmp_path, "s.jsonl", "\n".join(json.dumps({"set": name, "items": of}) for name, of in PHOTOS.items()))
    generations = {
        build_catalogue(tmp_path / f"c{number}", FACES, ids=IDS, sets=sets).generation
        for number, sets in enumerate([PHOTOS, table, str(lines)])
    }
    assert len(generations) == 1


def test_sets_are_added_with_items_and_may_hold_older_ones(tmp_path: Path) -> None:
    shared = _photos(tmp_path)
    sets_before = shared.sets
    add_items(shared.path, {"face": [[3.0, 3.0]]}, ids=["f-5"], sets={"p-9": ["f-5", "f-1"]})
    add_items(shared.path, {"face": [[3.0, 4.0]]}, ids=["f-6"])
    add_items(shared.path, {"face": [[3.0, 4.0]]}, ids=["f-7"], sets={"p-8": ["f-7"]})
    assert shared.refresh() == 3
    assert _elements(shared) == {"p-1": [1, 0], "größe": [2], "p-9": [4, 0], "p-8": [6]}
    assert _elements(MappedCatalogue(shared.path)) == _elements(shared)
    # A mapping that was taken before does not change.
    assert list(sets_before) == list(PHOTOS)
    shared.verify()


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ({"p-1": ["f-9"]}, "set 'p-1' names item 'f-9', which is not in the catalogue"),
        ({"p-1": []}, "set 'p-1' has no elements"),
        ({"f-1": ["f-2"]}, "set 'f-1' is named like an item"),
        ({"p-1": ["f-1", "f-1"]}, "set 'p-1' names an item twice"),
        ({"": ["f-1"]}, "set '': field 'set': expected text of at least 1 character"),
        ("nothing.csv", "nothing.csv: cannot be read"),
        ("sets.txt", "unknown kind '.txt'"),
    ],
)
def test_sets_that_do_not_fit_are_refused_and_leave_nothing(tmp_path: Path, sets: Any, expected: str) -> None:
    with pytest.raises(CatalogueError, match=expected):
        _photos(tmp_path, sets=sets)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("s.csv", "set,face\np-1,f-1\n", "0 columns named 'item'"),
        ("s.csv", "set,item\np-1,f-1\np-2,\n", "line 3 names no set, or no item"),
        (
            "s.jsonl",
            '{"set": "p-1", "items": ["f-1"]}\n{"set": "p-2"}\n',
            "line 2: it has no field 'items', which",
        ),
        (
            "s.jsonl",
            '{"set": "p-1", "items": []}\n',
            "line 1: field 'items': .* at least 1 entry, got 0",
        ),
        ("s.jsonl", '{"set": "p-1", "items": ["f-1"]}\n{"set": "p-1", "items": ["f-2"]}\n', "'p-1' is there twice"),
    ],
)
def test_files_of_sets_that_are_wrong_say_where(tmp_path: Path, name: str, text: str, expected: str) -> None:
    with pytest.raises(CatalogueError, match=expected):
        _photos(tmp_path, sets=_file(tmp_path, name, text))


@pytest.mark.parametrize(
    ("ids", "sets", "expected"),
    [
        (["f-9"], {"p-1": ["f-9"]}, "set 'p-1' is there twice"),
        (["f-9"], {"f-1": ["f-9"]}, "set 'f-1' is named like an item"),
        (["p-1"], None, "item 'p-1' is named like a set"),
    ],
)
def test_what_is_added_does_not_clash_with_what_is_there(tmp_path: Path, ids: Any, sets: Any, expected: str) -> None:
    with pytest.raises(CatalogueError, match=expected):
        add_items(_photos(tmp_path).path, {"face": [[3.0, 3.0]]}, ids=ids, sets=sets)
    assert _elements(MappedCatalogue(tmp_path / "photos")) == {"p-1": [1, 0], "größe": [2]}


def test_damaged_sets_are_reported_when_opening(tmp_path: Path) -> None:
    path = _photos(tmp_path).path / "sets.jsonl"
    path.write_bytes(path.read_bytes().replace(b"f-3", b"f-4"))
    with pytest.raises(CatalogueError, match=r"sets\.jsonl has another sha256"):
        open_catalogue(tmp_path / "photos")


def test_the_command_builds_with_sets(tmp_path: Path) -> None:
    table = _file(tmp_path, "items.csv", "id,face.0,face.1\nf-1,1,2\nf-2,3,4\n")
    sets = _file(tmp_path, "sets.csv", "set,item\np-1,f-1\np-1,f-2\n")
    done = CliRunner().invoke(main, ["catalogue", "build", f"{tmp_path}/c", str(table), "--sets", str(sets)])
    assert done.exit_code == 0, done.output
    assert "2 items, 1 set, face 2" in done.output
