"""What ``omdml sync`` brings to the readers of every kind of index."""

from __future__ import annotations

import json
import time

import pytest

from omdml.errors import CatalogueError
from omdml.streams.catalogues.building.build import add_items
from omdml.streams.protocols.index import IndexAway, IndexRefused
from omdml.workers.node.attributes.table import Attributes
from tests.support.catalogues.exports import error
from tests.support.catalogues.indexes import (
    Sqlite,
    Sync,
    Watcher,
    of_one_version,
    read_while_versions_come,
    widen,
)
from tests.support.shops import Thinned
from tests.support.worlds import ITEMS, catalogue, items

# One process runs the tests of indexes, with one PostgreSQL.
pytestmark = pytest.mark.xdist_group("indexes")
MOVED = 0.05


def attributes(prices):
    return Attributes((json.dumps({"id": name, "price": price}).encode() for name, price in prices.items()), "test")


def test_readers_have_the_distances_of_the_live_version(shop, database):
    with Sync(shop, database.open()) as sync:
        synced = sync.step()
        assert (synced.written, synced.removed, synced.switched) == (ITEMS, 0, True)
        # Nothing has changed since.
        assert sync.step() is None
        assert (sync.count("version"), sync.count("items"), sync.count("pending_rows")) == (20, ITEMS, 0)
        assert sync.state().ready
    seen = database.read()
    assert seen.version == 20
    assert error(shop, seen.vectors, 20) < 1e-5


def test_versions_are_followed_by_the_rows_that_moved(shop, database):
    fewer = 0
    with Sync(shop, database.open(), moved=MOVED) as sync:
        sync.step()
        for _ in range(12):
            shop.learn(3)
            version = shop.publish()
            synced = sync.step()
            seen = database.read()
            assert seen.version == version
            # Each end of a distance may be off by the bound.
            assert error(shop, seen.vectors, version) <= 2 * MOVED
            fewer += synced.written < ITEMS
    assert fewer > 6


def test_what_moved_slowly_is_written_in_the_end(shop, database):
    with Sync(shop, database.open(), moved=0.2) as sync:
        sync.step()
        for _ in range(30):
            shop.learn(1)
            version = shop.publish()
            sync.step()
    assert error(shop, database.read().vectors, version) <= 0.4


def test_a_new_process_writes_only_what_moved(shop, database):
    with Sync(shop, database.open(), moved=MOVED) as sync:
        sync.step()
    with Sync(shop, database.open(), moved=MOVED) as again:
        synced = again.step()
        assert (synced.written, synced.switched) == (0, False)
        shop.learn(3)
        version = shop.publish()
        again.step()
    with Sync(shop, database.open(), moved=MOVED) as later:
        assert later.step().written == 0
    assert database.read().version == version


def test_a_new_process_writes_nothing_of_a_version_that_is_there(shop, tmp_path):
    database = Sqlite(tmp_path / "vectors")
    for _ in range(20):
        with Sync(shop, database.open(), moved=MOVED) as sync:
            first = sync.step()
        with Sync(shop, database.open(), moved=MOVED) as again:
            synced = again.step()
        assert (synced.indexed, synced.written, synced.switched) == (first.indexed, 0, False)
        shop.learn(3)
        shop.publish()


def test_a_smaller_bound_is_kept_by_a_new_process_too(shop, tmp_path):
    database = Sqlite(tmp_path / "vectors")
    for moved in (0.5, 0.01):
        for _ in range(2):
            with Sync(shop, database.open(), moved=moved) as sync:
                sync.step()
            version = shop.store.current("shop").version
            assert error(shop, database.read().vectors, version) <= 2 * moved
            if moved == 0.5:
                shop.learn(5)
                shop.publish()


def test_a_version_that_moved_nothing_is_noted_without_a_write(shop, database):
    with Sync(shop, database.open(), moved=MOVED) as sync:
        sync.step()
        before = database.read()
        shop.publish(version=21)
        synced = sync.step()
    after = database.read()
    assert (synced.written, synced.switched, before.version, after.version) == (0, False, 20, 21)
    assert {name: vector.tolist() for name, vector in after.vectors.items()} == {
        name: vector.tolist() for name, vector in before.vectors.items()
    }


def test_deleted_items_leave_and_added_ones_come(shop, database, tmp_path):
    with Sync(shop, database.open(), moved=MOVED) as sync:
        sync.step()
        whole, shop.catalogue = shop.catalogue, Thinned(shop.catalogue, {"i3", "i7"})
        sync.step()
        assert len(database.read().vectors) == ITEMS - 2
        assert not {"i3", "i7"} & set(database.read().vectors)
        features, _ = items(seed=1)
        add_items(
            tmp_path / "items", {name: matrix[:4] for name, matrix in features.items()}, ids=["n0", "n1", "n2", "n3"]
        )
        shop.catalogue = whole
        shop.catalogue.refresh()
        sync.step()
    # The items that came back were still missing from one of two sides.
    assert set(database.read().vectors) == set(whole.ids)


def test_attributes_come_along_and_their_changes_too(shop, database):
    with Sync(shop, database.open(), attributes({"i3": 7.5, "i4": 12}), moved=MOVED) as sync:
        sync.step()
    seen = database.read()
    assert (seen.attributes["i3"], seen.attributes["i4"], seen.attributes["i5"]) == ({"price": 7.5}, {"price": 12}, {})
    with Sync(shop, database.open(), attributes({"i3": 7.5, "i4": 11}), moved=MOVED) as sync:
        sync.step()
    assert database.read().attributes["i4"] == {"price": 11}


def test_numbers_that_are_no_sum_of_few_powers_of_two_are_not_written_again(shop, database):
    """PostgreSQL keeps decimal digits: 1e23 comes back as a whole number, which no float equals."""
    table = attributes({"i3": 1_234_567_890_123_456_789, "i4": 1e23, "i5": 0.1, "i6": 5e-324})
    for written in (ITEMS, 0):
        with Sync(shop, database.open(), table, moved=MOVED) as sync:
            assert sync.step().written == written


def test_a_wider_embedding_replaces_a_narrower_one(shop, database, tmp_path):
    with Sync(shop, database.open(), moved=MOVED) as sync:
        assert sync.step().indexed.width == 16
        widen(shop, tmp_path / "wide")
        for _ in range(3):
            shop.learn(20)
            version = shop.publish()
            assert sync.step().indexed.width == 32
            assert error(shop, database.read().vectors, version) <= 2 * MOVED


def test_another_generation_waits_for_its_catalogue(shop, database, tmp_path):
    rebuilt = catalogue(tmp_path / "rebuilt", seed=1)
    with Sync(shop, database.open()) as sync:
        sync.step()
        shop.publish(generation=rebuilt.generation, version=21)
        with pytest.raises(CatalogueError, match="learned on catalogue generation"):
            sync.step()
        assert database.read().version == 20
        shop.catalogue = rebuilt
        sync.step()
    assert error(shop, database.read().vectors, 21) <= 0.1


def test_one_process_writes_an_index_at_a_time(shop, database):
    with Sync(shop, database.open()) as sync:
        sync.step()
        with Sync(shop, database.open()) as other, pytest.raises(IndexAway, match="another omdml sync writes"):
            other.step()
    with Sync(shop, database.open()) as other:
        other.step()


def test_an_index_of_another_model_is_left_alone(shop, database):
    with Sync(shop, database.open()) as sync:
        sync.step()
    shop.store.claim("other")
    shop.store.publish(shop.snapshot(model="other"), shop.store.claim("other").epoch)
    with (
        Sync(shop, database.open(), model="other") as sync,
        pytest.raises(IndexRefused, match=r"holds model 'shop', .*choose another --name"),
    ):
        sync.step()


def test_a_sync_that_stops_in_the_middle_leaves_readers_what_they_had(shop, database):
    with Sync(shop, database.open()) as sync:
        sync.step()
    shop.learn(60)
    version = shop.publish()
    with Sync(shop, database.open(), moved=0, rows_per_second=40) as sync:
        write, index = sync.index.write, sync.index

        def write_and_stop(rows):
            write(rows)
            sync.stop.set()

        index.write = write_and_stop
        assert sync.step() is None
        assert sync.count("rows_total", what="written") == 20
    assert database.read().version == 20
    with Sync(shop, database.open(), moved=1e-6) as sync:
        # What was written is not written again.
        assert sync.step().written == ITEMS - 20
    assert error(shop, database.read().vectors, version) < 1e-4


def test_a_reader_never_sees_two_versions_in_one_answer(shop, database):
    reader = Watcher(database)
    read_while_versions_come(reader, shop, database)
    assert of_one_version(shop, reader.answers)


def test_writes_are_throttled(shop, database):
    with Sync(shop, database.open(), rows_per_second=100) as sync:
        begun = time.monotonic()
        sync.step()
        # 120 rows in batches of 50: the last one begins a second after the first.
        assert time.monotonic() - begun >= 1.0
