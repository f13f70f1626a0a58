"""A catalogue with a map: coordinates of its items, of those added later, and of raw vectors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from omdml.coordinates import CoordinateMap
from omdml.errors import CatalogueError, FeedbackError
from omdml.feedback import Triplet
from omdml.streams.catalogues.building.build import add_items, build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue, read_manifest
from omdml.streams.catalogues.inline import InlineTable, scaled_vectors
from omdml.streams.catalogues.opening import open_manifest
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.cli import main
from tests.support import worlds

MAPPED = "mapped"
OLDER = Path(__file__).parents[2] / "formats" / "catalogue-1"


@pytest.fixture
def shop(tmp_path: Path) -> MappedCatalogue:
    return worlds.catalogue(tmp_path / "shop", mapped=True)


def mapped_view(items: MappedCatalogue) -> Catalogue:
    """The items as a model on mapped coordinates sees them."""
    return items.in_coordinates(MAPPED)


def only_matrix(table: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """The coordinates, which are the only modality."""
    (matrix,) = table.values()
    return matrix


def raw(row: int, seed: int = 0) -> dict[str, list[float]]:
    return {name: x[row].tolist() for name, x in worlds.items(seed)[0].items()}


def test_coordinates_of_all_items_lie_beside_their_features(shop: MappedCatalogue) -> None:
    expected = CoordinateMap.fit(shop.features).apply(shop.features)

    assert list(mapped_view(shop).dims.values()) == [expected.shape[1]]
    assert_array_equal(only_matrix(mapped_view(shop).features), expected)
    assert_array_equal(np.load(shop.path / "mapped.npy"), expected)
    assert dict(shop.dims) == worlds.DIMS
    assert shop.features.keys() == worlds.DIMS.keys()
    shop.verify()


def test_a_map_makes_another_generation_and_is_a_part_of_it(shop: MappedCatalogue, tmp_path: Path) -> None:
    plain, again = worlds.catalogue(tmp_path / "plain"), worlds.catalogue(tmp_path / "again", mapped=True)

    assert plain.generation != shop.generation == again.generation
    assert plain.manifest.map is None
    assert open_manifest(shop.path).map == shop.manifest.map
    assert shop.manifest.map
    assert mapped_view(shop).dims == {f"mapped-{shop.manifest.map.sha256[:8]}": shop.manifest.map.dim}


def test_both_views_number_the_same_items_and_sets(shop: MappedCatalogue) -> None:
    mapped = mapped_view(shop)

    assert shop.in_coordinates("features") is mapped.in_coordinates("features") is shop
    assert (mapped.generation, mapped.first, mapped.ids) == (shop.generation, shop.first, shop.ids)
    assert mapped.sets is shop.sets
    assert_array_equal(mapped.rows(["i3", "nobody"]), [3, -1])


def test_items_that_are_added_are_mapped_as_the_first_ones_were(shop: MappedCatalogue) -> None:
    before, mapped = only_matrix(mapped_view(shop).features), mapped_view(shop)
    more = worlds.items(1)[0]

    add_items(shop.path, more, ids=[f"new-{row}" for row in range(worlds.ITEMS)])
    assert mapped.refresh() == worlds.ITEMS

    assert only_matrix(mapped.features).shape == (2 * worlds.ITEMS, before.shape[1])
    assert_array_equal(only_matrix(mapped.features)[: worlds.ITEMS], before)
    assert_allclose(only_matrix(mapped.features)[worlds.ITEMS :], only_matrix(mapped.scale(more)), atol=1e-6)
    opened = MappedCatalogue(shop.path)
    opened.verify()
    assert (opened.generation, opened.first) == (shop.generation, worlds.ITEMS)
    assert_array_equal(only_matrix(mapped_view(opened).features), only_matrix(mapped.features))


def test_raw_vectors_and_inline_items_are_brought_by_modality_and_mapped(shop: MappedCatalogue) -> None:
    mapped, table = mapped_view(shop), InlineTable(mapped_view(shop))
    query = scaled_vectors(mapped, "the query's features", raw(5))
    event = Triplet(model="shop", query="i1", relevant="i2", irrelevant="new", features={"new": raw(7)})
    rows = table.add(event, ["i1", "i2", "new"])

    assert query.keys() == table.features.keys() == mapped.dims.keys()
    assert_allclose(only_matrix(query)[0], only_matrix(mapped.features)[5], atol=1e-6)
    assert_allclose(only_matrix(table.features)[rows], only_matrix(mapped.features)[[1, 2, 7]], atol=1e-6)


@pytest.mark.parametrize(
    ("vectors", "reason"),
    [
        ({"shape": [0.0] * 9}, "missing_modality"),
        ({"shape": [0.0] * 9, "noise": [0.0] * 4}, "dimension"),
        ({"shape": [0.0] * 9, "noise": [0.0] * 5, "mapped": [0.0]}, "invalid"),
        ({"mapped": [0.0]}, "missing_modality"),
        ({"shape": [0.0] * 9, "noise": [np.nan] + [0.0] * 4}, "not_finite"),
    ],
)
def test_vectors_that_cannot_be_mapped_are_refused(
    shop: MappedCatalogue, vectors: dict[str, list[float]], reason: str
) -> None:
    with pytest.raises(FeedbackError) as caught:
        scaled_vectors(mapped_view(shop), "item 'new'", vectors)
    assert caught.value.reason == reason


def near_limit(folder: Path) -> MappedCatalogue:
    """Items so small that an ordinary number is too far out for float32."""
    tiny = {name: x * 1e-25 for name, x in worlds.items()[0].items()}
    return build_catalogue(folder, tiny, scaling="none", mapped=True)


def test_an_item_too_far_out_for_float32_is_refused_wherever_it_comes(tmp_path: Path) -> None:
    tiny = near_limit(tmp_path / "tiny")
    far = {name: np.full((1, dim), 1e20) for name, dim in worlds.DIMS.items()}

    with pytest.raises(FeedbackError, match="the query's features: it lies so far out that its coordinate") as caught:
        scaled_vectors(mapped_view(tiny), "the query's features", {name: x[0].tolist() for name, x in far.items()})
    assert caught.value.reason == "not_finite"
    before = (tiny.path / "catalogue.json").read_bytes()
    with pytest.raises(CatalogueError, match="item 'far' lies so far out that its mapped coordinate"):
        add_items(tiny.path, far, ids=["far"])
    assert (tiny.path / "catalogue.json").read_bytes() == before
    add_items(tiny.path, {name: x * 1e-45 for name, x in far.items()}, ids=["near"])
    MappedCatalogue(tiny.path).verify()


def test_a_modality_of_the_coordinates_name_is_refused_beside_a_map(tmp_path: Path) -> None:
    vectors = {MAPPED: np.eye(4)}
    with pytest.raises(CatalogueError, match="rename it, or build without a map"):
        build_catalogue(tmp_path / "c", vectors, mapped=True)
    assert not (tmp_path / "c").exists()
    assert build_catalogue(tmp_path / "c", vectors).dims == {MAPPED: 4}


def test_a_catalogue_without_a_map_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"has no map.*omdml catalogue build --map --replace"):
        worlds.catalogue(tmp_path / "c").in_coordinates(MAPPED)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_catalogue_of_few_items_has_few_coordinates(tmp_path: Path, count: int) -> None:
    few = {name: x[:count] for name, x in worlds.items()[0].items()}
    built = build_catalogue(tmp_path / "few", few, mapped=True)
    assert list(mapped_view(built).dims.values()) == [max(1, count - 1)]
    assert np.isfinite(only_matrix(mapped_view(built).scale(worlds.items(1)[0]))).all()


# Damage


def test_a_damaged_or_missing_map_is_reported_when_it_is_opened(shop: MappedCatalogue) -> None:
    path = shop.path / "map.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CatalogueError, match="map of coordinates has another sha256"):
        MappedCatalogue(shop.path)
    path.unlink()
    with pytest.raises(CatalogueError, match="map of coordinates is missing"):
        MappedCatalogue(shop.path)
    path.mkdir()
    with pytest.raises(CatalogueError, match="cannot be read"):
        MappedCatalogue(shop.path)


def test_damaged_coordinates_are_found_by_their_digest(shop: MappedCatalogue) -> None:
    path = shop.path / "mapped.npy"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CatalogueError, match=r"mapped.npy: rows 0 to 119 .* damaged"):
        MappedCatalogue(shop.path).verify()
    path.write_bytes(data[:-1])
    with pytest.raises(CatalogueError, match=r"mapped.npy is shorter than 120 rows"):
        MappedCatalogue(shop.path)


def test_a_map_of_other_items_is_refused(shop: MappedCatalogue, tmp_path: Path) -> None:
    other = build_catalogue(tmp_path / "other", {"shape": np.eye(9)}, mapped=True)
    shutil.copy(other.path / "map.safetensors", shop.path)
    manifest = json.loads((shop.path / "catalogue.json").read_text())
    assert other.manifest.map
    manifest["map"]["sha256"] = other.manifest.map.sha256
    (shop.path / "catalogue.json").write_text(json.dumps(manifest))
    with pytest.raises(CatalogueError, match="its map takes"):
        MappedCatalogue(shop.path)


# The command


def build(*arguments: object) -> str:
    """Run ``omdml catalogue build``; returns its output."""
    done = CliRunner().invoke(main, ["catalogue", "build", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_makes_a_map_unless_an_unmapped_catalogue_is_there(tmp_path: Path) -> None:
    np.savez(tmp_path / "items.npz", **worlds.items()[0])  # type: ignore[arg-type]
    inputs, new, plain = tmp_path / "items.npz", tmp_path / "new", tmp_path / "plain"

    assert "119 mapped coordinates, generation" in build(new, inputs)
    assert "seconds=" in build(new, inputs)
    assert "mapped" not in build(plain, inputs, "--no-map")
    assert "catalogue_unchanged" in build(plain, inputs)
    assert MappedCatalogue(plain).map is None
    assert "119 mapped coordinates, generation" in build(plain, inputs, "--map", "--replace")
    assert open_manifest(plain).generation == open_manifest(new).generation


def test_to_replace_a_catalogue_keeps_its_map_unless_a_new_one_is_asked_for(tmp_path: Path) -> None:
    for seed in (0, 1):
        np.savez(tmp_path / f"{seed}.npz", **worlds.items(seed)[0])  # type: ignore[arg-type]
    np.savez(tmp_path / "other.npz", color=worlds.items(0)[0]["shape"])
    target = tmp_path / "c"
    build(target, tmp_path / "0.npz")
    first = MappedCatalogue(target)

    # The map is kept: the coordinates mean the same as before.
    assert "new_map=false" in build(target, tmp_path / "1.npz", "--replace")
    unchanged = MappedCatalogue(target)
    assert unchanged.generation != first.generation
    assert mapped_view(unchanged).dims == mapped_view(first).dims
    assert "catalogue_unchanged" in build(target, tmp_path / "1.npz")
    # The map is not kept.
    assert "new_map=true" in build(target, tmp_path / "1.npz", "--replace", "--map")
    assert mapped_view(MappedCatalogue(target)).dims.keys() != mapped_view(first).dims.keys()
    assert "new_map=true" in build(target, tmp_path / "other.npz", "--replace")
    (target / "map.safetensors").unlink()
    assert "map_not_kept" in build(target, tmp_path / "0.npz", "--replace")
    assert mapped_view(MappedCatalogue(target)).dims == mapped_view(first).dims
    assert "coordinates_mapped" not in build(target, tmp_path / "0.npz", "--replace", "--no-map")


def test_an_item_keeps_its_coordinates_in_a_new_catalogue_with_far_items(tmp_path: Path) -> None:
    features = worlds.items()[0]
    np.savez(tmp_path / "items.npz", **features)  # type: ignore[arg-type]
    np.savez(tmp_path / "more.npz", **{name: np.concatenate([x, 50 * x[:1]]) for name, x in features.items()})
    build(tmp_path / "c", tmp_path / "items.npz")
    before = only_matrix(mapped_view(MappedCatalogue(tmp_path / "c")).features).copy()
    assert "new_map=false" in build(tmp_path / "c", tmp_path / "more.npz", "--replace")
    assert_array_equal(only_matrix(mapped_view(MappedCatalogue(tmp_path / "c")).features)[: len(before)], before)
    # If features are scaled in another way, the same numbers mean something else.
    assert "new_map=true" in build(tmp_path / "c", tmp_path / "more.npz", "--replace", "--scaling", "none")


def test_items_are_added_with_the_map_that_is_there(tmp_path: Path) -> None:
    np.savez(tmp_path / "items.npz", **worlds.items()[0])  # type: ignore[arg-type]
    build(tmp_path / "c", tmp_path / "items.npz")
    np.savez(tmp_path / "new.npz", ids=np.array(["new"]), **{name: x[:1] for name, x in worlds.items(1)[0].items()})
    assert "121 items, noise 5, shape 9, 119 mapped" in build(tmp_path / "c", tmp_path / "new.npz", "--add")
    for option in ("--map", "--no-map"):
        refused = CliRunner().invoke(
            main, ["catalogue", "build", f"{tmp_path}/c", f"{tmp_path}/new.npz", "--add", option]
        )
        assert refused.exit_code == 2
        assert "leave out --replace, --scaling and --[no-]map" in refused.output


def test_items_are_added_to_a_catalogue_of_before_there_were_maps(tmp_path: Path) -> None:
    folder = tmp_path / "older"
    shutil.copytree(OLDER, folder)
    before = read_manifest(folder)
    add_items(folder, {name: x[:1] for name, x in worlds.items(1)[0].items()}, ids=["new"])
    assert (read_manifest(folder).format, read_manifest(folder).generation) == (4, before.generation)
    assert len(MappedCatalogue(folder).ids) == worlds.ITEMS + 1
