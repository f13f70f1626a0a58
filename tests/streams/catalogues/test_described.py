"""Catalogues that are built from a folder of pictures and a table with words."""

from __future__ import annotations

import base64
import json
import os

import numpy as np
import pytest
from structlog.testing import capture_logs

from omdml.errors import CatalogueError
from omdml.streams.catalogues.building.build import add_items, build_catalogue
from omdml.streams.catalogues.building.destinations import build_at
from omdml.streams.catalogues.changes.change import Change, ChangeError, decode_change
from omdml.streams.catalogues.folder import MappedCatalogue, read_manifest
from omdml.streams.describers import pool, thumbnails
from omdml.streams.describers.inputs import read_left_out
from omdml.streams.describers.pictures import decoded
from omdml.streams.describers.sources import Sources
from omdml.streams.describers.thumbnails import own_name, read_index
from tests.support.catalogues.changing import change
from tests.support.catalogues.products import COUNT, TEXT, described_catalogue, drawn, write_shop

PRODUCTS = [product for product, _ in drawn()]


def matrices(catalogue, rows=slice(None)):
    return {name: matrix[rows].tobytes() for name, matrix in catalogue.features.items()}


def write_table(path, rows):
    path.write_text("\n".join(["id,description", *(",".join(row) for row in rows)]) + "\n")
    return path


def test_a_folder_of_pictures_is_a_catalogue(tmp_path):
    _, sources = write_shop(tmp_path)
    catalogue = build_catalogue(tmp_path / "c", [], sources=Sources(sources.pictures), mapped=True)
    assert list(catalogue.ids) == sorted(product.id for product in PRODUCTS)
    assert dict(catalogue.dims) == {"color": 720, "edges": 900, "texture": 140}
    catalogue.verify()


def test_pictures_words_and_numbers_are_joined_in_the_order_of_the_table(tmp_path):
    table, sources = write_shop(tmp_path)
    catalogue = build_catalogue(tmp_path / "c", [table], sources=sources, mapped=True)
    assert list(catalogue.ids) == [product.id for product in PRODUCTS]
    assert set(catalogue.dims) == {"color", "edges", "texture", TEXT, "weight"}
    assert catalogue.manifest.describer.modalities == ["color", "edges", "texture", TEXT]


def test_the_same_pictures_give_the_same_bytes_by_one_process_and_by_several(tmp_path, monkeypatch):
    table, sources = write_shop(tmp_path)
    first = build_catalogue(tmp_path / "one", [table], sources=sources, mapped=True)
    monkeypatch.setattr(pool, "FEW", 0)
    second = build_catalogue(tmp_path / "two", [table], sources=sources, mapped=True)
    assert first.generation == second.generation
    files = sorted(path.relative_to(first.path) for path in first.path.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(second.path) for path in second.path.rglob("*") if path.is_file())
    for file in files:
        assert (first.path / file).read_bytes() == (second.path / file).read_bytes(), file


def test_damaged_files_are_listed_and_end_nothing(tmp_path):
    _, sources = write_shop(tmp_path)
    folder = sources.pictures
    (folder / "a-broken.png").write_bytes(drawn()[0][1][:300])
    (folder / "notes.txt").write_text("x")
    (folder / "product-0001.webp").write_bytes(b"")
    os.mkfifo(folder / "pipe.png")
    catalogue = build_catalogue(tmp_path / "c", [], sources=Sources(folder))
    assert len(catalogue.ids) == COUNT
    reasons = {os.path.basename(entry.file): entry.reason for entry in read_left_out(tmp_path / "c")}
    assert "damaged" in reasons["a-broken.png"]
    assert "a named pipe" in reasons["pipe.png"]
    assert "does not end as a picture's does" in reasons["notes.txt"]
    assert len(reasons) == 4


def test_an_item_without_a_picture_is_an_item_all_the_same(tmp_path):
    table, sources = write_shop(tmp_path)
    lost = PRODUCTS[3].id
    (sources.pictures / f"{lost}.png").unlink()
    (sources.pictures / "stranger.png").write_bytes(drawn()[0][1])
    catalogue = build_catalogue(tmp_path / "c", [table], sources=sources)
    assert list(catalogue.ids) == [product.id for product in PRODUCTS]
    row = int(catalogue.rows([lost])[0])
    assert np.isfinite(catalogue.features["color"][row]).all()
    assert catalogue.features["color"][row].any()
    assert read_index(catalogue.pictures).cell(row) is None
    (entry,) = read_left_out(tmp_path / "c")
    assert (entry.file, "no row of the tables" in entry.reason) == (str(sources.pictures / "stranger.png"), True)


def test_a_row_without_words_is_filled_too_but_one_item_must_be_whole(tmp_path):
    _, sources = write_shop(tmp_path)
    rows = [[product.id, "" if number == 5 else product.description] for number, product in enumerate(PRODUCTS)]
    catalogue = build_catalogue(tmp_path / "c", [write_table(tmp_path / "t.csv", rows)], sources=sources)
    assert np.isfinite(catalogue.features[TEXT]).all()
    strangers = write_table(tmp_path / "s.csv", [["a", "red"], ["b", "blue"]])
    with pytest.raises(CatalogueError, match=r"no picture is named by the id of an item: .*, the first item 'a'"):
        build_catalogue(tmp_path / "d", [strangers], sources=sources)
    assert not (tmp_path / "d").exists()


def bad_ids():
    """Rows of which one cannot be an item, and what the error says."""
    good = [[product.id, product.description] for product in PRODUCTS]
    return [
        ([*good, good[3]], r"t\.csv: id 'product-0003' is there twice, in rows 4 and 25"),
        ([*good, ["", "red"]], r"t\.csv: 1 of 25 rows has no id, the first is row 25"),
        ([*good, ["q" * 513, "red"]], r"t\.csv: id 'qqq.* has 513 characters, expected 1 to 512"),
        ([*good, ["a\0b", "red"]], r"t\.csv: id .* holds a NUL"),
        ([], r"t\.csv: the input has no items"),
    ]


@pytest.mark.parametrize(("rows", "message"), bad_ids())
def test_ids_of_a_table_are_checked_before_anything_is_described(tmp_path, rows, message):
    _, sources = write_shop(tmp_path)
    table = write_table(tmp_path / "t.csv", rows)
    for wanted in (sources, Sources(None, [TEXT]), Sources(sources.pictures)):
        with pytest.raises(CatalogueError, match=message):
            build_catalogue(tmp_path / "c", [table], sources=wanted)
    assert not (tmp_path / "c").exists()


def test_ids_of_further_tables_are_checked_and_may_be_fewer(tmp_path):
    good = [[product.id, product.description] for product in PRODUCTS]
    first = tmp_path / "first.csv"
    first.write_text("\n".join(["id,price", *(f"{item},5" for item, _ in good)]) + "\n")
    for rows, message in (
        ([*good, good[3]], r"t\.csv: id 'product-0003' is there twice"),
        ([*good, ["", "red"]], r"t\.csv: 1 of 25 rows has no id"),
        ([*good, ["stranger", "red"]], r"an id that is missing in .*first\.csv, the first is 'stranger'"),
    ):
        table = write_table(tmp_path / "t.csv", rows)
        with pytest.raises(CatalogueError, match=message):
            build_at(str(tmp_path / "c"), [first, table], sources=Sources(None, [TEXT]))
    assert not (tmp_path / "c").exists()
    table = write_table(tmp_path / "t.csv", good[2:])
    with capture_logs() as logged:
        built = build_at(str(tmp_path / "c"), [first, table], sources=Sources(None, [TEXT]))
    assert len(built.ids) == COUNT
    (warning,) = [entry for entry in logged if entry["event"] == "modality_filled_in"]
    assert (warning["modality"], warning["items"], warning["of"], warning["first"]) == (TEXT, 2, COUNT, good[0][0])


def test_attributes_that_nobody_can_have_leave_no_catalogue_behind(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["id,v.0,brand", "a,1,acme", "b,2,ze\0ta"]) + "\n")
    with pytest.raises(CatalogueError, match=r"t\.csv: item 'b': 'brand' holds a NUL"):
        build_at(str(tmp_path / "c"), [table])
    assert not (tmp_path / "c").exists()


def test_pictures_whose_names_cannot_be_ids_are_left_out(tmp_path):
    _, sources = write_shop(tmp_path)
    (sources.pictures / "a\nb.png").write_bytes(drawn()[0][1])
    with open(os.fsencode(sources.pictures) + b"/\xff.png", "wb") as file:
        file.write(drawn()[0][1])
    assert len(build_catalogue(tmp_path / "c", [], sources=Sources(sources.pictures)).ids) == COUNT
    reasons = [entry.reason for entry in read_left_out(tmp_path / "c")]
    assert ["line break" in reasons[0], "UTF-8" in reasons[1]] == [True, True]


@pytest.mark.parametrize("mapped", [False, True])
def test_a_picture_that_is_added_later_equals_one_that_was_built(tmp_path, mapped):
    table, sources = write_shop(tmp_path)
    catalogue = build_catalogue(tmp_path / "c", [table], sources=sources, mapped=mapped)
    product, data = drawn()[7]
    weight = [7.0, 0.0]
    put = Change(id="again", features={"weight": weight}, text={TEXT: product.description}, picture=data)
    change(catalogue, put)
    line = {"id": "line", "features": {"weight": weight}, "text": {TEXT: product.description}}
    line["picture"] = base64.b64encode(data).decode()
    change(catalogue, decode_change(json.dumps(line).encode(), "line 1"))
    built, *added = (int(row) for row in catalogue.rows([product.id, "again", "line"]))
    for name, matrix in catalogue.stored.items():
        for row in added:
            np.testing.assert_array_equal(matrix[row], matrix[built], name)
    thumbnail = decoded(catalogue.pictures.read(own_name("again")))
    assert thumbnail.shape == (64, 64, 3)
    change(catalogue, Change(id="again", delete=True))
    assert catalogue.pictures.read(own_name("again")) is None


def test_items_are_added_with_pictures_and_words_within_the_generation(tmp_path):
    write_shop(tmp_path / "all")
    table, sources = write_shop(tmp_path / "first", 15)
    more = tmp_path / "more"
    more.mkdir()
    built = build_catalogue(tmp_path / "c", [table], sources=sources, mapped=True)
    rows = [line for line in (tmp_path / "all/products.csv").read_text().splitlines() if line]
    (more / "products.csv").write_text("\n".join([rows[0], *rows[16:]]) + "\n")
    added = add_items(
        tmp_path / "c", [more / "products.csv"], sources=Sources(tmp_path / "all/pictures", sources.texts)
    )
    assert (added.generation, len(added.ids)) == (built.generation, COUNT)
    assert read_index(added.pictures).cell(23) == (15, 8)
    change(added, Change(id="x", features={"weight": [17.0, 3.0]}, text={TEXT: PRODUCTS[17].description},
                         picture=drawn()[17][1]))  # fmt: skip
    for name, matrix in added.features.items():
        np.testing.assert_array_equal(matrix[COUNT], matrix[17], name)
    with pytest.raises(CatalogueError, match="was built with --pictures --text description"):
        add_items(tmp_path / "c", [table], sources=Sources(sources.pictures))


def test_changes_that_cannot_be_described_are_refused_with_the_reason(tmp_path):
    catalogue = described_catalogue(tmp_path / "c")
    plain = build_catalogue(tmp_path / "p", {"color": np.random.default_rng(0).random((5, 3))})
    for where, wanted, reason in (
        (catalogue, Change(id="x", picture=b"no picture"), "bad_picture"),
        (catalogue, Change(id="x", text={TEXT: "xyzzy"}), "no_known_word"),
        (catalogue, Change(id="x", text={"title": "red"}), "invalid"),
        (catalogue, Change(id="x", features={"color": [0.0] * 720}, picture=drawn()[0][1]), "invalid"),
        (plain, Change(id="x", picture=drawn()[0][1]), "no_describer"),
    ):
        with pytest.raises(ChangeError, match=r"item 'x'") as caught:
            where.prepare([wanted])
        assert caught.value.reason == reason
    change(catalogue, Change(id="y", text={TEXT: "red mug"}))
    assert np.isfinite(catalogue.features["edges"][-1]).all()


def test_a_catalogue_that_is_replaced_keeps_what_describes_its_texts(tmp_path):
    table, sources = write_shop(tmp_path)
    first = build_at(str(tmp_path / "c"), [table], sources=sources)
    rows = [[product.id, f"{product.description} new words"] for product in PRODUCTS]
    other = write_table(tmp_path / "t.csv", rows)
    second = build_at(str(tmp_path / "c"), [other], sources=sources, replace=True)
    assert second.manifest.describer == first.manifest.describer
    third = build_at(str(tmp_path / "c"), [other], sources=sources, replace=True, mapped=True)
    assert third.manifest.describer != first.manifest.describer


def test_a_damaged_describer_is_refused_and_a_missing_one_too(tmp_path):
    described_catalogue(tmp_path / "c")
    path = tmp_path / "c" / "describer.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CatalogueError, match="another sha256"):
        _ = MappedCatalogue(tmp_path / "c").describer
    path.unlink()
    with pytest.raises(CatalogueError, match="is missing"):
        _ = MappedCatalogue(tmp_path / "c").describer


def test_atlases_show_each_item_in_the_cell_of_its_row(tmp_path, monkeypatch):
    monkeypatch.setattr(thumbnails, "CELLS_OF_ATLAS", 9)
    table, sources = write_shop(tmp_path)
    catalogue = build_catalogue(tmp_path / "c", [table], sources=sources)
    index = read_index(catalogue.pictures)
    assert [(atlas.first, atlas.rows) for atlas in index.atlases] == [(0, 9), (9, 9), (18, 6)]
    describer = catalogue.describer
    for row in (0, 10, 23):
        atlas, cell = index.cell(row)
        shown = thumbnails.cut(decoded(catalogue.pictures.read(f"{atlas}.webp")), cell)
        wanted = describer.picture(drawn()[row][1]).thumbnail
        assert np.abs(shown.astype(int) - wanted).mean() < 6
        another = describer.picture(drawn()[(row + 1) % COUNT][1]).thumbnail
        assert np.abs(shown.astype(int) - another).mean() > 6
    assert index.cell(COUNT) is None


def test_sources_that_do_not_go_together_are_refused(tmp_path):
    table, sources = write_shop(tmp_path)
    for wanted, inputs, message in (
        (Sources(None, ["title"]), [table], "--text title: no table has this column, expected one"),
        (Sources(None, [TEXT, TEXT]), [table], "--text description is given twice"),
        (Sources(None, [TEXT], tmp_path / "m.onnx"), [table], "--onnx describes pictures"),
        (Sources(tmp_path / "nowhere"), [], "no such folder"),
        (Sources(sources.pictures, ["color"]), [table], "cannot have this name: rename the column"),
    ):
        with pytest.raises(CatalogueError, match=message):
            build_catalogue(tmp_path / "c", inputs, sources=wanted)
    assert not (tmp_path / "c").exists()
    assert read_manifest(build_catalogue(tmp_path / "c", [table], sources=Sources(None, [TEXT])).path).describer
