"""What ``omdml export`` writes, read by a reader of its own."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from omdml import LOMDML, OASIS, CPmtML
from omdml.errors import CatalogueError, ConfigurationError, CorruptError, StoreError
from omdml.streams.catalogues.building.build import add_items
from omdml.workers.cli import main
from omdml.workers.node.attributes.table import Attributes
from omdml.workers.operate.export.exporter import Exporter, ExportOptions
from omdml.workers.operate.export.layout import Rows
from omdml.workers.operate.export.vectors import aligned, merged, spread
from tests.support.catalogues.exports import error, order, read
from tests.support.nodes import CONFIGURATION, stored_shop
from tests.support.shops import Shop, Thinned
from tests.support.worlds import ITEMS, catalogue, items

FORMATS = ("npy", "parquet")


def attributes(prices):
    return Attributes((json.dumps({"id": name, "price": price}).encode() for name, price in prices.items()), "test")


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.learn()
    shop.publish()
    return shop


def exporter(shop, folder, table=None, **options):
    return Exporter(folder, ExportOptions("shop", **options), shop.store, lambda: shop.catalogue, lambda: table)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_has_the_nodes_order_and_distances(shop, tmp_path, kind):
    exporter(shop, tmp_path / "out", format=kind).step()
    manifest, vectors, _ = read(tmp_path / "out")
    ids, distances = shop.expected(20, "i5", 10)
    exported_ids, exported_distances = order(vectors, "i5")
    assert exported_ids == ids
    np.testing.assert_allclose(exported_distances, distances, rtol=1e-4)
    assert (manifest["version"], manifest["serial"], manifest["items"]) == (20, 1, ITEMS)
    assert list(vectors) == list(shop.catalogue.ids)


@pytest.mark.parametrize("kind", FORMATS)
def test_attributes_come_with_the_items_that_have_them(shop, tmp_path, kind):
    exporter(shop, tmp_path / "out", attributes({"i3": 7.5, "i4": 12}), format=kind).step()
    _, _, attributes_of = read(tmp_path / "out")
    assert (attributes_of["i3"], attributes_of["i4"]) == ({"price": 7.5}, {"price": 12})
    assert not (attributes_of["i5"] or {}).get("price")


def test_a_kept_version_is_exported_as_it_was(shop, tmp_path):
    shop.learn()
    shop.publish()
    exporter(shop, tmp_path / "out", version=20).step()
    manifest, vectors, _ = read(tmp_path / "out")
    assert manifest["version"] == 20
    assert error(shop, vectors, 20) < 1e-5
    with pytest.raises(StoreError, match="version 21 is not kept"):
        exporter(shop, tmp_path / "other", version=21).step()


@pytest.mark.parametrize("kind", FORMATS)
def test_versions_are_followed_by_the_rows_that_moved(shop, tmp_path, kind):
    folder, bound = tmp_path / "out", 0.05
    follower, fewer = exporter(shop, folder, format=kind, moved=bound), 0
    for _ in range(25):
        shop.learn(3)
        version = shop.publish()
        written = follower.step()
        assert written.manifest.version == version
        # Nothing has changed since.
        assert follower.step() is None
        manifest, vectors, _ = read(folder)
        assert manifest["version"] == version
        # Each end of a distance may be off by the bound.
        assert error(shop, vectors, version) <= 2 * bound
        exact = written.part is not None and written.part.whole
        stated = 0.0 if exact else bound * spread(shop.metrics[version].embed(shop.catalogue.features))
        assert manifest["bound"] == pytest.approx(stated, rel=1e-4)
        fewer += written.part is None or written.part.rows < ITEMS
        assert sum(part["rows"] for part in manifest["parts"][1:]) <= ITEMS
    assert fewer > 10


def test_rows_that_move_slowly_are_written_in_the_end(shop, tmp_path):
    # Items are compared with what was written of them, not with the version before.
    follower = exporter(shop, tmp_path / "out", moved=0.2)
    follower.step()
    for _ in range(60):
        shop.learn(1)
        version = shop.publish()
        follower.step()
    assert error(shop, read(tmp_path / "out")[1], version) <= 0.4


@pytest.mark.parametrize("kind", FORMATS)
def test_a_new_process_goes_on_where_the_last_one_ended(shop, tmp_path, kind):
    folder, table = tmp_path / "out", attributes({"i3": 7.5, "i4": 12})
    exporter(shop, folder, table, format=kind, moved=0.05).step()
    again = exporter(shop, folder, table, format=kind, moved=0.05)
    assert again.resume().version == 20
    # The version has not changed, so no row is written.
    assert again.step().part is None
    shop.learn(20)
    shop.publish()
    later = exporter(shop, folder, table, format=kind, moved=0.05)
    later.resume()
    assert not later.step().part.whole
    assert error(shop, read(folder)[1], 40) <= 0.1


@pytest.mark.parametrize("change", [{"format": "parquet"}, {"model": "other"}])
def test_an_export_of_another_kind_is_not_gone_on_with(shop, tmp_path, change):
    exporter(shop, tmp_path / "out").step()
    options = ExportOptions(**{"model": "shop", **change})
    other = Exporter(tmp_path / "out", options, shop.store, lambda: shop.catalogue, lambda: None)
    assert other.resume() is None


def test_items_that_were_added_are_written(shop, tmp_path):
    follower = exporter(shop, tmp_path / "out", moved=0.05)
    follower.step()
    features, _ = items(seed=1)
    added = {name: matrix[:4] for name, matrix in features.items()}
    add_items(tmp_path / "items", added, ids=[f"n{row}" for row in range(4)])
    shop.catalogue.refresh()
    assert follower.step().part.rows == 4
    assert {"n0", "n3"} < set(read(tmp_path / "out")[1])


@pytest.mark.parametrize("kind", FORMATS)
def test_items_that_a_catalogue_no_longer_finds_are_removed(shop, tmp_path, kind):
    follower = exporter(shop, tmp_path / "out", format=kind, moved=0.05)
    follower.step()
    shop.catalogue = Thinned(shop.catalogue, {"i3", "i7"})
    written = follower.step()
    assert (written.part.rows, written.part.removed, written.manifest.items) == (0, 2, ITEMS - 2)
    assert not {"i3", "i7"} & set(read(tmp_path / "out")[1])
    shop.catalogue = Thinned(shop.catalogue, set(shop.catalogue.ids))
    follower.step()
    assert read(tmp_path / "out")[1] == {}
    again = exporter(shop, tmp_path / "out", format=kind, moved=0.05)
    again.resume()
    assert again.step().part is None


def test_an_item_whose_attributes_changed_is_written(shop, tmp_path):
    table = attributes({"i3": 7.5, "i4": 12})
    follower = Exporter(
        tmp_path / "out", ExportOptions("shop", moved=0.05), shop.store, lambda: shop.catalogue, lambda: table
    )
    follower.step()
    table = attributes({"i3": 7.5, "i4": 11})
    assert follower.step().part.rows == 1
    assert read(tmp_path / "out")[2]["i4"] == {"price": 11}


def test_another_generation_is_written_whole(shop, tmp_path):
    follower = exporter(shop, tmp_path / "out")
    follower.step()
    rebuilt = catalogue(tmp_path / "rebuilt", seed=1)
    shop.publish(generation=rebuilt.generation, version=21)
    # A worker has published on a catalogue that is not here yet.
    with pytest.raises(CatalogueError, match=f"learned on catalogue generation {rebuilt.generation[:12]}"):
        follower.step()
    assert read(tmp_path / "out")[0]["version"] == 20
    shop.catalogue = rebuilt
    assert follower.step().part.whole
    manifest, vectors, _ = read(tmp_path / "out")
    assert (manifest["version"], manifest["generation"]) == (21, rebuilt.generation)
    assert error(shop, vectors, 21) < 1e-5


def test_readers_of_the_manifest_before_still_find_its_parts(shop, tmp_path):
    follower = exporter(shop, tmp_path / "out")
    follower.step()
    before = json.loads((tmp_path / "out/manifest.json").read_text())
    shop.learn()
    shop.publish()
    # Each row moves further than 0, so all of them are written again.
    assert follower.step().part.rows == ITEMS
    assert all((tmp_path / "out" / part["name"]).is_dir() for part in before["parts"])
    for _ in range(2):
        shop.learn()
        shop.publish()
        follower.step()
    assert len(list((tmp_path / "out").glob("part-*"))) <= 3


def test_a_damaged_part_is_reported_and_never_gone_on_with(shop, tmp_path):
    exporter(shop, tmp_path / "out").step()
    path = tmp_path / "out/part-000001/embeddings.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=r"embeddings.npy: its sha256 is not the one .*export again"):
        exporter(shop, tmp_path / "out").resume()


def test_a_folder_that_holds_something_else_is_left_alone(shop, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/one.png").write_bytes(b"1")
    with pytest.raises(ConfigurationError, match=r"it is not empty and has no manifest\.json"):
        exporter(shop, tmp_path / "photos")
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["one.png"]


def test_two_exports_never_write_into_one_folder(shop, tmp_path):
    first, second = (exporter(shop, tmp_path / "out") for _ in range(2))
    with first.held(), pytest.raises(ConfigurationError, match="another `omdml export` writes here"), second.held():
        pass
    with first.held():
        first.step()
    # The next one goes on with what the first one wrote.
    with second.held():
        assert second.resume().version == 20


def test_a_task_that_the_model_does_not_have_is_refused(shop, tmp_path):
    with pytest.raises(ConfigurationError, match=r"--task 'two': model 'shop' has none"):
        exporter(shop, tmp_path / "out", task="two").step()


def test_a_metric_without_vectors_is_refused(shop, tmp_path):
    oasis = OASIS(dims=dict(shop.catalogue.dims))
    oasis.start(shop.catalogue.features)
    shop.publish(metric=oasis.metric, learner="oasis", version=21)
    with pytest.raises(ConfigurationError, match="learns with 'oasis', whose metric has no vectors of items"):
        exporter(shop, tmp_path / "out").step()
    assert not (tmp_path / "out").exists()


def test_each_task_has_vectors_of_its_own(shop, tmp_path):
    coupled = CPmtML(dims=dict(shop.catalogue.dims), tasks=["one", "other"])
    coupled.start(shop.catalogue.features)
    metric = coupled.metric
    shop.publish(metric=metric, learner="cpmtml", version=21)
    for task in (None, "one", "other"):
        exporter(shop, tmp_path / f"out-{task}", task=task).step()
        manifest, vectors, _ = read(tmp_path / f"out-{task}")
        assert manifest["task"] == task
        np.testing.assert_array_equal(list(vectors.values()), metric.embed(shop.catalogue.features, task))


def test_a_turned_embedding_has_not_moved():
    draw = np.random.default_rng(0)
    was = draw.normal(size=(50, 6)).astype(np.float32)
    turn, _ = np.linalg.qr(draw.normal(size=(6, 6)))
    rows = np.arange(50)
    np.testing.assert_allclose(aligned((was @ turn).astype(np.float32), was, rows, rows), was, atol=1e-5)
    # One direction less: what remains lies where it lay.
    flat = was.copy()
    flat[:, 5] = 0
    basis, _ = np.linalg.qr(np.vstack([np.eye(5), np.zeros((1, 5))]) @ draw.normal(size=(5, 5)))
    np.testing.assert_allclose(aligned((flat @ basis).astype(np.float32), flat, rows, rows), flat, atol=1e-5)


def test_readers_no_longer_find_items_that_a_later_part_removes():
    def rows(names, value, removed=()):
        return Rows(list(names), np.full((len(names), 2), value, np.float32), [{"at": value}] * len(names), removed)

    after = merged(merged(None, rows("abc", 0)), rows("bd", 1, removed=["a"]))
    assert (after.ids, after.embedding[:, 0].tolist()) == (["b", "c", "d"], [1, 0, 1])
    assert after.attributes == [{"at": 1}, {"at": 0}, {"at": 1}]


def test_an_export_that_follows_has_room_for_wider_versions(shop, tmp_path):
    follower = exporter(shop, tmp_path / "out", moved=0.05, follow=True)
    assert follower.step().manifest.width == 16
    shop.learner = LOMDML(dims=dict(shop.catalogue.dims), rank=8)
    shop.learner.start(shop.catalogue.features)
    shop.learn(40)
    version = shop.publish()
    follower.step()
    manifest, vectors, _ = read(tmp_path / "out")
    # Eight numbers of one modality, and five of the other.
    assert (manifest["width"], shop.metrics[version].embed(shop.catalogue.features).shape[1]) == (16, 13)
    assert error(shop, vectors, version) <= 0.1


@pytest.fixture
def installed(tmp_path):
    """A shop whose store lies in a folder, and its configuration."""
    shop = stored_shop(tmp_path)
    (tmp_path / "omdml.toml").write_text(CONFIGURATION.format(port=1))
    return shop


def test_the_command_says_what_it_wrote(installed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(main, ["export", "shop", "out", "--format", "parquet"])
    assert ran.output == "out: version 0, serial 1: all 120 items, 6 numbers each\n"
    assert error(installed, read(tmp_path / "out")[1], 0) < 1e-5
    refused = CliRunner().invoke(main, ["export", "shop", "out", "--follow", "--version", "0"])
    assert (refused.exit_code, "leave out --version" in refused.output) == (2, True)


def test_changed_items_are_exported_with_their_changed_attributes(installed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vectors = {name: [0.5] * dim for name, dim in installed.catalogue.raw_dims.items()}
    changed = [{"id": "new", "features": vectors, "attributes": {"price": 4}}, {"id": "i3", "attributes": {"price": 9}}]
    put = CliRunner().invoke(main, ["catalogue", "put", "items"], input="\n".join(map(json.dumps, changed)))
    assert put.exit_code == 0, put.output
    CliRunner().invoke(main, ["catalogue", "put", "items"], input=json.dumps({"id": "new", "features": vectors}))
    CliRunner().invoke(main, ["export", "shop", "out"])
    manifest, exported, attributes_of = read(tmp_path / "out")
    assert (manifest["items"], "new" in exported, attributes_of["new"], attributes_of["i3"]) == (
        121,
        True,
        {"price": 4},
        {"price": 9},
    )
