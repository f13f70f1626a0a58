"""Items of a catalogue in a folder that are put, changed and deleted while others read it."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from omdml.errors import CatalogueError
from omdml.streams.catalogues.building.build import add_items
from omdml.streams.catalogues.changes.change import Change, ChangeError, decode_change
from omdml.streams.catalogues.changes.journal import CHANGES
from omdml.streams.catalogues.folder import MappedCatalogue, read_manifest
from tests.formats.samples import HERE
from tests.support import worlds
from tests.support.catalogues.changing import Twin, change, check_random_life, plain_catalogue, raw_item
from tests.support.deep import examples
from tests.support.forks import FORKS

DRAW = np.random.default_rng(5)
VECTORS = raw_item(DRAW)


@pytest.fixture
def shop(tmp_path):
    return plain_catalogue(tmp_path / "c")


@pytest.mark.parametrize("seed", range(examples(10)))
def test_random_changes_leave_what_a_dict_would_hold(tmp_path, seed):
    catalogue = plain_catalogue(tmp_path / "c", mapped=seed % 2 == 0)
    check_random_life(catalogue, lambda: MappedCatalogue(tmp_path / "c"), seed)
    MappedCatalogue(tmp_path / "c").verify()


def test_the_newest_row_of_an_id_is_the_item_and_older_ones_stay(shop):
    before = shop.features["shape"].copy()
    changed = change(shop, Change(id="i5", features=VECTORS))
    assert (changed.position, changed.put, shop.rows(["i5"])[0]) == (1, 1, worlds.ITEMS)
    assert_array_equal(shop.features["shape"][: worlds.ITEMS], before)
    assert (shop.shown.items, shop.shown.gone, shop.shown.alive[5]) == (worlds.ITEMS, 1, False)


def test_an_item_that_was_deleted_can_be_put_again(shop):
    assert change(shop, Change(id="i5", delete=True)).deleted == 1
    assert ("i5" in shop, shop.rows(["i5"])[0]) == (False, -1)
    change(shop, Change(id="i5", features=VECTORS))
    assert shop.rows(["i5"])[0] == worlds.ITEMS


def test_to_delete_what_is_not_there_says_so_and_may_be_repeated(shop):
    deletion = Change(id="i5", delete=True)
    assert change(shop, deletion, deletion, Change(id="nobody", delete=True)).unknown == ["i5", "nobody"]
    again = change(shop, deletion)
    assert (again.deleted, again.unknown, again.position) == (0, ["i5"], 1)


def test_a_request_that_fails_changes_nothing_and_the_rest_of_its_group_is_made(shop):
    good = shop.prepare([Change(id="new", features=VECTORS)])
    bad = shop.prepare([Change(id="i1", features=VECTORS), Change(id="nobody", attributes={"price": 1})])
    after = shop.prepare([Change(id="new", attributes={"price": 2}), Change(id="i2", delete=True)])
    first, refused, last = shop.change([good, bad, after])
    assert (first.put, last.attributes, last.deleted, refused.reason) == (1, 1, 1, "unknown_item")
    assert (shop.rows(["i1"])[0], shop.shown.rows, shop.attributes) == (1, worlds.ITEMS + 1, {"new": {"price": 2}})


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        ({"features": {"shape": [1.0] * 8, "noise": [0.0] * 5}}, "dimension", "'shape' has 8 numbers, .* have 9"),
        ({"features": {}}, "missing_modality", "vectors of no modality: the catalogue has"),
        ({"features": {**VECTORS, "sound": [1.0]}}, "invalid", "an unknown modality 'sound': the catalogue has"),
        ({"features": {**VECTORS, "noise": [1e300] * 5}}, "not_finite", "item 'i1': modality 'noise': column 0"),
        ({"features": {**VECTORS, "noise": [1e20] * 5}}, "too_large", "'i1', modality 'noise': it holds .*e\\+"),
        ({"attributes": {"any": 1}}, "invalid", "cannot be called 'any'"),
        ({"attributes": {"price": 1 << 5000}}, "invalid", "attribute 'price' is a number that is too large"),
        ({"attributes": {"text": "x" * (1 << 20)}}, "oversize", "bytes of attributes, expected at most 1,048,576"),
        ({"attributes": {f"a{n}": 1 for n in range(300)}}, "oversize", "300 attributes, expected at most 256"),
        ({"attributes": {"price": "cheap"}}, "invalid", "attribute price is 'cheap', expected a number"),
        ({"delete": True, "attributes": {}}, "invalid", "leave out one of the two"),
        ({}, "invalid", "nothing to change"),
        ({"id": ""}, "invalid", "expected text of 1 to 512 characters"),
        ({"id": "a\nb", "delete": True}, "invalid", "without line breaks"),
        ({"id": "a\0b", "features": VECTORS}, "invalid", "id 'a.x00b' holds a NUL"),
        ({"attributes": {"brand": "a\0"}}, "invalid", "'brand' holds a NUL"),
        ({"attributes": {"tags": ["a", "\0"]}}, "invalid", "'tags' holds a NUL"),
        ({"attributes": {"a\0": 1}}, "invalid", "'a.x00' holds a NUL"),
        ({"price": 4}, "invalid", "no field 'price'"),
        ({"id": 5}, "invalid", "field 'id': expected text, got a whole number 5"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_its_reason(shop, fields, reason, message):
    change(shop, Change(id="i0", attributes={"price": 5}))
    with pytest.raises(ChangeError, match=message) as caught:
        change(shop, decode_change({"id": "i1", **fields}, "line 1"))
    assert caught.value.reason == reason
    assert shop.shown.position == 1


def test_an_item_with_a_nul_in_its_id_can_still_be_deleted(shop):
    # Earlier releases took one.
    change(shop, Change(id="a\0b", features=VECTORS))
    assert change(shop, decode_change({"id": "a\0b", "delete": True}, "line 1")).deleted == 1


def test_elements_of_sets_do_not_change_and_new_items_may_come(tmp_path):
    catalogue = worlds.catalogue(tmp_path / "c")
    for wanted in (Change(id="i1", delete=True), Change(id="i1", features=VECTORS)):
        with pytest.raises(ChangeError, match="is an element of a set, and sets do not change"):
            change(catalogue, wanted)
    with pytest.raises(ChangeError, match="'s1' is named like a set"):
        change(catalogue, Change(id="s1", features=VECTORS))
    assert change(catalogue, Change(id="new", features=VECTORS), Change(id="i1", attributes={"price": 1})).put == 1


def test_items_are_added_behind_changes_and_changed_behind_additions(tmp_path, shop):
    reader, twin = MappedCatalogue(tmp_path / "c"), Twin()
    draw = np.random.default_rng(1)
    for number in range(4):
        wanted = Change(id=f"i{number}", features=raw_item(draw))
        change(shop, wanted)
        twin.make(wanted)
        added = {name: np.array([values]) for name, values in raw_item(draw).items()}
        add_items(tmp_path / "c", added, ids=[f"more-{number}"])
        twin.vectors[f"more-{number}"] = {name: x[0].tolist() for name, x in added.items()}
    change(shop, Change(id="i7", delete=True))
    twin.vectors.pop("i7")
    for catalogue in (shop, reader, MappedCatalogue(tmp_path / "c")):
        catalogue.refresh()
        twin.check(catalogue)
        catalogue.verify()


def test_an_item_that_was_deleted_can_be_added(tmp_path, shop):
    change(shop, Change(id="i5", delete=True))
    add_items(tmp_path / "c", {name: np.array([x]) for name, x in VECTORS.items()}, ids=["i5"])
    assert MappedCatalogue(tmp_path / "c").rows(["i5"])[0] == worlds.ITEMS


def test_the_first_change_raises_the_number_of_the_format(tmp_path):
    # A release that knows no changes refuses a catalogue with the new number.
    shop = MappedCatalogue(shutil.copytree(HERE / "catalogue-2", tmp_path / "c"))
    assert read_manifest(shop.path).format == 2
    change(shop, Change(id="i5", attributes={"price": 3}))
    assert read_manifest(shop.path).format >= 3


@pytest.mark.parametrize("left", [1, 9, 60])
def test_a_line_that_was_not_finished_is_nothing_and_is_written_over(tmp_path, shop, left):
    change(shop, Change(id="i5", delete=True))
    first_line = (tmp_path / "c" / CHANGES).read_bytes()
    change(shop, Change(id="i6", features=VECTORS, attributes={"price": 3}))
    full = (tmp_path / "c" / CHANGES).read_bytes()
    (tmp_path / "c" / CHANGES).write_bytes(full[: len(first_line) + left])

    opened = MappedCatalogue(tmp_path / "c")
    assert (opened.rows(["i6"])[0], opened.shown.position) == (6, 1)
    change(opened, Change(id="i7", delete=True))
    assert MappedCatalogue(tmp_path / "c").shown.position == 2


def test_a_damaged_record_is_reported_with_its_place(tmp_path, shop):
    change(shop, Change(id="i5", delete=True))
    change(shop, Change(id="i6", delete=True))
    path = tmp_path / "c" / CHANGES
    path.write_bytes(path.read_bytes().replace(b"i5", b"i4"))
    with pytest.raises(CatalogueError, match=r"changes.log: the record at byte 0 is damaged"):
        MappedCatalogue(tmp_path / "c")


def test_a_vanished_journal_is_reported_and_the_reader_keeps_what_it_has(tmp_path, shop):
    change(shop, Change(id="i5", delete=True))
    (tmp_path / "c" / CHANGES).unlink()
    with pytest.raises(CatalogueError, match="is gone: restore it"):
        shop.refresh()
    assert "i5" not in shop


def test_damaged_vectors_of_a_change_are_found(tmp_path, shop):
    change(shop, Change(id="i5", features=VECTORS))
    with open(tmp_path / "c" / "shape.npy", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x77")
    with pytest.raises(CatalogueError, match=r"shape.npy: rows 120 to 120 have another sha256"):
        MappedCatalogue(tmp_path / "c").verify()


def test_a_reader_beside_a_writer_sees_whole_requests_only(tmp_path, shop):
    """Each request moves all of ten items to one new place: at any moment they lie together."""
    names, failures, positions = [f"i{n}" for n in range(10)], [], set()
    begun, done = threading.Event(), threading.Event()

    def read():
        reader = MappedCatalogue(tmp_path / "c")
        while not done.is_set():
            reader.refresh()
            shown = reader.shown
            positions.add(shown.position)
            begun.set()
            rows = reader.rows(names)
            if shown.position and len({tuple(row) for row in reader.features["noise"][rows].tolist()}) != 1:
                failures.append(rows.tolist())
            if shown.items != worlds.ITEMS:
                failures.append(shown)

    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(30)
    draw = np.random.default_rng(2)
    for _ in range(60):
        place = raw_item(draw)
        change(shop, *(Change(id=name, features=place) for name in names))
    done.set()
    thread.join()
    assert len(positions) > 2
    assert failures == []


def changing(folder: str, report: str) -> None:
    """Give two items the same new vectors, over and over; write a byte into ``report`` after each time."""
    catalogue, draw = MappedCatalogue(folder), np.random.default_rng()
    with open(report, "ab", buffering=0) as file:
        while True:
            vectors = raw_item(draw)
            change(catalogue, Change(id="left", features=vectors), Change(id="right", features=vectors))
            file.write(b".")


@pytest.mark.parametrize("kill", range(examples(10)))
def test_a_writer_that_is_killed_leaves_whole_changes_and_loses_none(tmp_path, shop, kill):
    process = FORKS.Process(target=changing, args=(str(tmp_path / "c"), str(tmp_path / "report")), daemon=True)
    process.start()
    report = tmp_path / "report"
    while not (report.exists() and report.stat().st_size > 3 * kill):
        assert process.is_alive()
        # Without a pause this would take a processor from the writer.
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.join()

    opened, acknowledged = MappedCatalogue(Path(tmp_path / "c")), report.stat().st_size
    opened.verify()
    assert opened.shown.position in (2 * acknowledged, 2 * acknowledged + 2)
    rows = opened.rows(["left", "right"])
    assert_array_equal(opened.features["shape"][rows[0]], opened.features["shape"][rows[1]])
    assert change(opened, Change(id="left", delete=True)).deleted == 1


@pytest.mark.parametrize("mapped", [False, True])
def test_an_item_that_lacks_a_modality_gets_its_conditional_mean(tmp_path, mapped):
    catalogue = plain_catalogue(tmp_path / "c", mapped)
    draw = np.random.default_rng(7)
    raw = [raw_item(draw) for _ in range(4)]
    # Some lack one, some the other, some none: each request may mix them.
    brings = [("shape",), ("shape", "noise"), ("noise",), ("shape",)]
    changed = change(catalogue, *(
        Change(id=f"new{n}", features={name: vectors[name] for name in names})
        for n, (vectors, names) in enumerate(zip(raw, brings, strict=True))
    ))  # fmt: skip
    assert changed.put == 4
    for n, (vectors, names) in enumerate(zip(raw, brings, strict=True)):
        (row,) = catalogue.rows([f"new{n}"])
        expected = catalogue.scale_some({name: np.array([vectors[name]]) for name in names})
        for name, vector in expected.items():
            assert_allclose(catalogue.features[name][row], vector[0], atol=1e-6)
        if mapped:
            assert_allclose(catalogue.mapped[row], catalogue.map.apply(expected)[0], atol=1e-5)
    (row,) = catalogue.rows(["new0"])
    scaled = catalogue.scale({name: np.array([raw[0][name]]) for name in raw[0]})
    assert_allclose(catalogue.features["shape"][row], scaled["shape"][0], atol=1e-6)
    assert not np.allclose(catalogue.features["noise"][row], scaled["noise"][0], atol=1e-3)
