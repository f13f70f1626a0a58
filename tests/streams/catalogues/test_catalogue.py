"""A catalogue in a folder: what a process that opens it sees."""

import hashlib
import json
import mmap
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from omdml.errors import CatalogueError, FeedbackError
from omdml.feedback import Triplet
from omdml.streams.catalogues.building.build import add_items, build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.catalogues.inline import InlineTable, scaled_vectors
from omdml.streams.catalogues.opening import open_catalogue
from omdml.streams.protocols.catalogue import Catalogue
from tests.support.forks import FORKS, LIMIT_S

COLOR = [[0.0, 10.0, 5.0], [2.0, 20.0, 5.0], [4.0, 40.0, 5.0]]
TEXT = [[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]]
IDS = ["sku-1", "sku-2", "sku-3"]


@pytest.fixture
def shop(tmp_path: Path) -> MappedCatalogue:
    return build_catalogue(tmp_path / "shop", {"color": COLOR, "text": TEXT}, scaling={"text": "unit"}, ids=IDS)


def _float32(rows: list[Any]) -> NDArray[np.float32]:
    return np.array(rows, np.float32)


def _one_more(path: Path) -> None:
    """An id more than there are rows, whose digest the manifest has."""
    ids = b"\n" + (path / "ids.txt").read_bytes()
    (path / "ids.txt").write_bytes(ids)
    manifest = json.loads((path / "catalogue.json").read_text())
    manifest["parts"][0]["ids_bytes"] = len(ids)
    manifest["parts"][0]["sha256"]["ids.txt"] = hashlib.sha256(ids).hexdigest()
    (path / "catalogue.json").write_text(json.dumps(manifest))


def _damage(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


# Reading


def test_a_folder_and_its_url_open_as_the_same_catalogue(shop: MappedCatalogue) -> None:
    catalogue: Catalogue = open_catalogue(shop.path)

    assert catalogue.dims == {"color": 3, "text": 2}
    assert list(catalogue.ids) == IDS
    assert catalogue.generation == open_catalogue(str(shop.path)).generation


def test_rows_are_numbered_in_order_and_an_unknown_id_is_minus_one(shop: MappedCatalogue) -> None:
    assert_array_equal(shop.rows(["sku-3", "nobody", "sku-1", "sku-3"]), [2, -1, 0, 2])
    assert shop.rows([]).shape == (0,)
    assert "sku-2" in shop
    assert "nobody" not in shop


def test_matrices_are_read_only_float32_in_c_order_and_mapped(shop: MappedCatalogue) -> None:
    for name, matrix in shop.features.items():
        assert matrix.dtype == np.float32
        assert matrix.shape == (3, shop.dims[name])
        assert matrix.flags.c_contiguous
        assert type(matrix) is np.ndarray
        with pytest.raises(ValueError, match="read-only"):
            matrix[0, 0] = 1.0

    base: object = shop.features["color"]
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, mmap.mmap)


def test_numpy_reads_the_files_as_they_are(shop: MappedCatalogue) -> None:
    assert_array_equal(np.load(shop.path / "color.npy"), shop.features["color"])
    assert (shop.path / "ids.txt").read_text() == "sku-1\nsku-2\nsku-3\n"
    assert json.loads((shop.path / "catalogue.json").read_text())["generation"] == shop.generation


# Scaling


def test_minmax_takes_each_column_to_its_range_and_a_constant_column_to_zero(shop: MappedCatalogue) -> None:
    third = 1 / 3
    assert_array_equal(shop.features["color"], _float32([[0, 0, 0], [0.5, third, 0], [1, 1, 0]]))


def test_unit_takes_each_vector_to_norm_one_and_leaves_zeros_alone(shop: MappedCatalogue) -> None:
    assert_array_equal(shop.features["text"], _float32([[0.6, 0.8], [0, 0], [1, 0]]))


def test_unit_survives_numbers_whose_squares_do_not(tmp_path: Path) -> None:
    catalogue = build_catalogue(tmp_path / "c", {"v": [[3e200, 4e200], [3e-200, 4e-200]]}, scaling="unit")

    assert_array_equal(catalogue.features["v"], _float32([[0.6, 0.8], [0.6, 0.8]]))


def test_raw_vectors_are_scaled_to_the_very_numbers_of_the_catalogue(shop: MappedCatalogue) -> None:
    scaled = shop.scale({"color": np.array(COLOR), "text": np.array(TEXT)})

    assert_array_equal(scaled["color"], shop.features["color"])
    assert_array_equal(scaled["text"], shop.features["text"])


def test_raw_vectors_beyond_the_fitted_range_are_not_clipped(shop: MappedCatalogue) -> None:
    scaled = shop.scale({"color": np.array([[8.0, 10.0, 9.0]]), "text": np.array([[0.0, 2.0]])})

    assert_array_equal(scaled["color"], _float32([[2, 0, 0]]))


@pytest.mark.parametrize(
    ("color", "expected"),
    [
        ([[1.0, 2.0]], r"'color': shape \(1, 2\), expected \(n, 3\)"),
        ([1.0, 2.0, 3.0], r"'color': shape \(3,\), expected \(n, 3\)"),
        ([[1.0, 2.0, np.nan]], "'color': column 2 is nan"),
        ([[1e300, 2.0, 3.0]], "'color': column 0 is 1e.300"),
        ([["a", "b", "c"]], "'color': not numbers"),
    ],
)
def test_raw_vectors_that_do_not_fit_are_refused(shop: MappedCatalogue, color: list[object], expected: str) -> None:
    with pytest.raises(CatalogueError, match=expected):
        shop.scale({"color": np.array(color), "text": np.array([[0.0, 2.0]])})


def test_raw_vectors_need_every_modality_and_no_other(shop: MappedCatalogue) -> None:
    with pytest.raises(CatalogueError, match=r"vectors of color, catalogue .* has color, text"):
        shop.scale({"color": np.array(COLOR)})


# Growing


def test_added_items_are_seen_after_a_refresh_and_old_rows_stay(shop: MappedCatalogue) -> None:
    before = {name: matrix.copy() for name, matrix in shop.features.items()}
    colors_before = shop.features["color"]

    add_items(shop.path, {"color": [[8.0, 70.0, 5.0]], "text": [[0.0, 9.0]]}, ids=["sku-4"])
    assert_array_equal(shop.rows(["sku-4"]), [-1])
    assert shop.refresh() == 1

    assert_array_equal(shop.rows([*IDS, "sku-4"]), [0, 1, 2, 3])
    assert_array_equal(shop.features["color"][3], _float32([2, 2, 0]))
    for name, matrix in before.items():
        assert_array_equal(shop.features[name][:3], matrix)
    assert_array_equal(colors_before, before["color"])
    assert shop.refresh() == 0


def test_a_grown_catalogue_keeps_its_generation_and_verifies(shop: MappedCatalogue) -> None:
    for number in range(4, 14):
        add_items(shop.path, {"color": [[1.0, 2.0, 3.0]], "text": [[0.0, 9.0]]}, ids=[f"sku-{number}"])

    grown = MappedCatalogue(shop.path)
    grown.verify()
    assert (grown.generation, len(grown.ids)) == (shop.generation, 13)
    assert np.load(shop.path / "color.npy").shape == (13, 3)


def test_a_refresh_to_another_generation_is_refused(shop: MappedCatalogue) -> None:
    build_catalogue(shop.path, {"color": COLOR}, ids=IDS, replace=True)

    with pytest.raises(CatalogueError, match="restart the workers, then the nodes"):
        shop.refresh()
    assert_array_equal(shop.features["text"][2], _float32([1, 0]))


def _read_twice(path: Path, other: Connection) -> None:
    """Tell how many items there are and, once the other process has added one, what a refresh finds."""
    catalogue = MappedCatalogue(path)
    other.send(len(catalogue.ids))
    other.recv()
    other.send((catalogue.refresh(), catalogue.features["color"][3].tolist()))


def test_processes_share_a_catalogue_while_items_are_added(shop: MappedCatalogue) -> None:
    here, there = FORKS.Pipe()
    reader = FORKS.Process(target=_read_twice, args=(shop.path, there), daemon=True)
    reader.start()
    assert here.poll(LIMIT_S)
    assert here.recv() == 3
    add_items(shop.path, {"color": [[8.0, 70.0, 5.0]], "text": [[0.0, 9.0]]}, ids=["sku-4"])
    here.send("added")
    assert here.poll(LIMIT_S)
    assert here.recv() == (1, [2.0, 2.0, 0.0])
    reader.join()


# Damage


def test_a_missing_catalogue_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="omdml catalogue build"):
        open_catalogue(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda path: (path / "catalogue.json").write_text("{"), r"catalogue\.json is no manifest"),
        (lambda path: (path / "text.npy").unlink(), r"text\.npy holds no matrix"),
        (
            lambda path: np.save(path / "text.npy", np.zeros((3, 2))),
            r"text\.npy holds float64 .*, expected float32 \(n, 2\)",
        ),
        (lambda path: os.truncate(path / "text.npy", 140), r"text\.npy is shorter than 3 rows"),
        (lambda path: (path / "text.npy").write_bytes(b"hello, world" * 20), r"text\.npy holds no matrix"),
        (lambda path: _damage(path / "ids.txt", 2), r"ids\.txt has another sha256"),
        (lambda path: _one_more(path), r"ids\.txt has 4 ids, expected 3"),
        (lambda path: (path / "ids.txt").unlink(), r"ids\.txt: No such file"),
    ],
)
def test_damage_is_reported_when_opening(
    shop: MappedCatalogue, damage: Callable[[Path], object], expected: str
) -> None:
    damage(shop.path)

    with pytest.raises(CatalogueError, match=expected):
        open_catalogue(shop.path)


def test_a_damaged_vector_is_found_by_verifying(shop: MappedCatalogue) -> None:
    shop.verify()
    _damage(shop.path / "text.npy", -1)

    with pytest.raises(CatalogueError, match=r"text.*rows 0 to 2 .* damaged"):
        MappedCatalogue(shop.path).verify()


def test_another_format_asks_for_the_release_that_wrote_it(shop: MappedCatalogue) -> None:
    path = shop.path / "catalogue.json"
    path.write_text(path.read_text().replace('"format":4', '"format":5'))

    with pytest.raises(CatalogueError, match=r"a newer omdml \(format 5, this one reads up to 4\)"):
        open_catalogue(shop.path)


# Inline vectors


def _event(features: dict[str, dict[str, list[float]]] | None) -> Triplet:
    return Triplet(model="shop", query="sku-1", relevant="sku-2", irrelevant="new", features=features)


NEW = {"color": [2.0, 20.0, 5.0], "text": [5.0, 0.0]}


def test_an_event_may_bring_an_item_that_the_catalogue_lacks(shop: MappedCatalogue) -> None:
    table = InlineTable(shop)
    rows = table.add(_event({"new": NEW}), ["sku-2", "new", "sku-2"])

    assert_array_equal(table.features["color"][rows], shop.features["color"][[1, 1, 1]])
    assert_array_equal(table.features["text"][rows], _float32([[0, 0], [1, 0], [0, 0]]))
    assert len(table) == 2


def test_an_inline_item_overrides_the_catalogue_for_its_event_only(shop: MappedCatalogue) -> None:
    table = InlineTable(shop)
    first = table.add(_event({"sku-3": NEW}), ["sku-3", "sku-1"])
    second = table.add(_event(None), ["sku-3", "sku-1"])

    assert_array_equal(table.features["color"][first], shop.features["color"][[1, 0]])
    assert_array_equal(table.features["color"][second], shop.features["color"][[2, 0]])
    assert first[1] == second[1]


@pytest.mark.parametrize(
    ("features", "reason", "expected"),
    [
        (None, "unknown_item", "item 'new' is not in the catalogue"),
        ({"new": {"color": [1.0, 2.0, 3.0]}}, "missing_modality", "'new': modality 'text' is missing"),
        ({"new": NEW | {"text": [1.0]}}, "dimension", "'new': modality 'text' has 1 number, the catalogue's have 2"),
        ({"new": NEW | {"text": [1.0, float("inf")]}}, "not_finite", "'new': modality 'text': column 1 is inf"),
        ({"new": NEW | {"texture": [1.0]}}, "invalid", "'new': modality 'texture' is unknown"),
    ],
)
def test_an_event_that_cannot_be_learned_leaves_the_table_as_it_was(
    shop: MappedCatalogue, features: dict[str, dict[str, list[float]]] | None, reason: str, expected: str
) -> None:
    table = InlineTable(shop)
    table.add(_event(None), ["sku-1"])

    with pytest.raises(FeedbackError, match=expected) as caught:
        table.add(_event(features), ["sku-2", "new"])

    assert caught.value.reason == reason
    assert len(table) == 1
    assert table.features["text"].shape == (1, 2)


def test_a_query_of_raw_vectors_is_scaled_to_a_table_of_one_row(shop: MappedCatalogue) -> None:
    query = scaled_vectors(shop, "the query's features", {"color": COLOR[1], "text": TEXT[0]})

    assert_array_equal(query["color"], shop.features["color"][1:2])
    assert_array_equal(query["text"], shop.features["text"][0:1])
