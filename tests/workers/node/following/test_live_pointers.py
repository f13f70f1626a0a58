"""What a node keeps serving while the store's pointer goes, comes back, or changes at the wrong moment."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import structlog
from prometheus_client import CollectorRegistry

from omdml.errors import CatalogueError, SnapshotGone, StoreError
from omdml.metrics import ProjectionMetric
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.node.following.live_pointers import follows
from omdml.workers.node.following.making_views import check_fit
from tests.support.nodes import assert_exact, metric_value, pointer, refresher, serves
from tests.support.shops import Shop
from tests.support.waiting import until, wait_until_ready


def test_a_deleted_model_is_dropped_and_followed_again_once_it_begins_again(shop):
    node = refresher(shop)
    assert node.refresh("shop").snapshot.version == 40
    shop.store.delete("shop")
    assert node.refresh("shop") is None
    assert (node.live.views, node.stale_seconds()) == ({}, 0.0)
    begun_again = Shop(shop.catalogue.path.parent / "again", store=shop.store)
    begun_again.publish()
    assert node.refresh("shop").snapshot.version == 0
    assert node.stale_seconds() == 0


def test_a_model_that_is_deleted_is_no_longer_refused(shop):
    node = refresher(shop)
    shop.learn(1)
    shop.publish(generation="other")
    assert node.refresh("shop") is None
    assert list(node.refused) == ["shop"]
    shop.store.delete("shop")
    assert node.refresh("shop") is None
    assert node.refused == {}


def test_a_model_that_is_forgotten_is_not_stale(shop):
    node = refresher(shop)
    node.refresh("shop")
    node.fall_behind(["shop"])
    assert node.stale_seconds() > 0
    node.forget("shop")
    assert (node.live.views, node.stale_seconds()) == ({}, 0.0)


def test_an_outage_between_pointer_and_snapshot_refuses_no_snapshot(shop, monkeypatch):
    node = refresher(shop)
    node.refresh("shop")
    shop.learn(1)
    version = shop.publish()

    def away(*_):
        raise StoreError("away")

    with monkeypatch.context() as broken:
        broken.setattr(shop.store, "load", away)
        with pytest.raises(StoreError, match="away"):
            node.refresh("shop")
    assert node.refused == {}
    assert node.refresh("shop").snapshot.version == version


def test_a_snapshot_whose_bytes_are_gone_is_refused_and_the_last_good_one_stays(shop, monkeypatch):
    registry = CollectorRegistry()
    node = refresher(shop, registry=registry)
    node.refresh("shop")
    shop.learn(1)
    shop.publish()

    def gone(*_):
        raise SnapshotGone("its bytes are gone")

    monkeypatch.setattr(shop.store, "load", gone)
    assert node.refresh("shop").snapshot.version == 40
    assert "bytes are gone" in node.refused["shop"].reason
    assert registry.get_sample_value("omdml_node_snapshots_refused_total", {"reason": "store"}) == 1


def test_a_damaged_snapshot_is_counted_once_and_the_last_good_one_stays(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving() as node, structlog.testing.capture_logs() as logs:
        good = node.view().snapshot
        # So nothing is loaded between publication and damage.
        node._follower.close()
        shop.learn()
        shop.publish()
        shop.damage(shop.snapshot())
        for _ in range(3):
            assert node._refresher.refresh("shop").snapshot is good
        assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["snapshot_refused"]
        assert metric_value(node, "snapshots_refused_total", reason="corrupt") == 1
        assert node.stale_seconds > 0
        shop.learn()
        version = shop.publish()
        assert node._refresher.refresh("shop").snapshot.version == version
        assert node.stale_seconds == 0


def test_a_snapshot_of_other_items_is_refused(tmp_path):
    shop = Shop(tmp_path)
    with pytest.raises(CatalogueError, match="generation 'other'"):
        check_fit(shop.snapshot(generation="other"), shop.catalogue)
    narrow = ProjectionMetric({"shape": 1.0}, {"shape": np.eye(2, dtype=np.float32)})
    with pytest.raises(CatalogueError, match=r"dimensions \{'shape': 2\}"):
        check_fit(shop.snapshot(metric=narrow), shop.catalogue)


def test_a_snapshot_of_other_items_leaves_the_last_good_one(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving() as node:
        shop.learn()
        shop.publish(generation="other")
        until(lambda: metric_value(node, "snapshots_refused_total", reason="catalogue") == 1)
        assert node.search(ids=["i0"]).version == 0


def test_a_rollback_is_a_move_forward(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving() as node:
        shop.learn()
        until(serves(node, shop.publish()))
        serial = node.view().pointer.serial
        shop.store.move("shop", 0, pin=True)
        until(serves(node, 0))
        assert node.view().pointer.serial > serial
        assert node.search(ids=["i0"]).version == 0


def test_a_pin_changes_the_pointer_and_nothing_else(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving() as node:
        indexes = node.view().indexes
        shop.store.move("shop", 0, pin=True)
        until(lambda: node.view().pointer.pinned)
        assert node.view().indexes is indexes


def test_while_the_store_is_out_of_reach_the_last_good_answers(tmp_path):
    shop = Shop(tmp_path)
    with structlog.testing.capture_logs() as logs, shop.serving() as node:
        shop.store.failing = StoreError("refused")
        until(lambda: node.stale_seconds > 0.05)
        assert_exact(shop, node.search(ids=["i0"]), "i0")
        assert node.alive
        assert metric_value(node, "stale_seconds") > 0
        shop.learn()
        version = shop.publish()
        shop.store.failing = None
        until(serves(node, version))
        until(lambda: node.stale_seconds == 0)
    events = [entry["event"] for entry in logs]
    assert events.count("store_lost") == events.count("store_found") == 1


def test_an_emptied_store_goes_live_again_only_when_it_has_caught_up(tmp_path):
    shop = Shop(tmp_path)
    shop.learn()
    with shop.serving() as node:
        before, shop.store = shop.store, MemoryStore()
        node._refresher._store = shop.store
        shop.epoch = shop.store.claim("shop").epoch
        before.failing = StoreError("gone")
        before.publish(shop.snapshot(version=shop.learner.version + 1), before.owner("shop"))
        until(lambda: node.stale_seconds > 0)
        version, metric = shop.learner.version, shop.learner.metric
        shop.publish(version=0)
        assert node._refresher.refresh("shop").snapshot.version == version
        assert node.stale_seconds > 0
        shop.publish(version=version, metric=metric)
        assert node._refresher.refresh("shop").pointer.store_id == shop.store.store_id
        assert node.stale_seconds == 0


def test_a_store_that_comes_back_empty_is_logged_and_reported(shop):
    for _ in range(3):
        shop.learn(10)
    shop.publish()
    node = refresher(shop)
    version = node.refresh("shop").snapshot.version
    node.fall_behind(["shop"])
    node._store = emptied = MemoryStore()
    with structlog.testing.capture_logs() as logs:
        node.refresh("shop")
        assert node.fell_back() == {"shop": None}
        shop.store, shop.epoch = emptied, emptied.claim("shop").epoch
        shop.publish(version=10)
        for _ in range(2):
            node.refresh("shop")
    assert node.fell_back() == {"shop": 10}
    fallen = [entry for entry in logs if entry["event"] == "store_fell_back"]
    assert [(entry["serving"], entry["store"]) for entry in fallen] == [(version, None), (version, 10)]
    assert "restart the node" in fallen[0]["hint"]
    shop.publish(version=version)
    node.refresh("shop")
    assert node.fell_back() == {}


@pytest.mark.parametrize(
    ("new", "old", "gone", "follow"),
    [
        (pointer(6, 10), pointer(5, 9), False, True),
        (pointer(6, 2), pointer(5, 9), False, True),
        (pointer(4, 8), pointer(5, 9), False, False),
        (pointer(4, 9), pointer(5, 9), False, True),
        (pointer(5, 8), pointer(5, 9), False, False),
        (pointer(1, 0, epoch="2-y"), pointer(5, 9), True, True),
        (pointer(1, 0, "b"), pointer(5, 9), True, False),
        (pointer(1, 9, "b"), pointer(5, 9), False, True),
        (pointer(1, 3, "b", pinned=True), pointer(5, 9), False, True),
    ],
    ids=["next", "rolled back", "an older copy of the store", "an older copy that is level",
         "an older copy that went on to as many moves",
         "deleted and begun again", "another store, behind", "another store, level", "another store, pinned"],
)  # fmt: skip
def test_which_pointers_are_news(new, old, gone, follow):
    assert follows(new, old, gone) is follow


@pytest.mark.parametrize("caught_up", [False, True])
@pytest.mark.parametrize("move", ["rollback", "reset"])
def test_a_node_follows_a_rollback_or_a_reset_after_a_restore(tmp_path, caught_up, move):
    # Given a node on a store that is restored from a copy, while it serves a later version
    shop = Shop(tmp_path, store=DirectoryStore(tmp_path / "state"))

    def learned_on(count):
        for _ in range(count):
            shop.learn(10)
            shop.publish()

    learned_on(2)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    copied = shop.learner.to_bytes()
    learned_on(4)
    node = refresher(shop)
    node.refresh("shop")
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "copy", tmp_path / "state")
    shop.learner, shop.epoch = type(shop.learner).from_bytes(copied), shop.store.claim("shop").epoch
    assert (node.refresh("shop").snapshot.version, node.stale_seconds() > 0) == (60, True)
    learned_on(4 if caught_up else 1)
    assert (node.refresh("shop").snapshot.version, node.stale_seconds() > 0) == (60, not caught_up)
    # If an operator moves the model back, I expect the node to serve that, and to go on from there.
    if move == "rollback":
        shop.store.move("shop", 10, pin=True)
    else:
        shop.learner = Shop(tmp_path / "again").learner
        shop.epoch = shop.store.claim("shop").epoch
        shop.publish()
    assert node.refresh("shop").pointer == shop.store.current("shop")
    assert node.stale_seconds() == 0
    shop.store.move("shop", None, pin=False)
    learned_on(1)
    assert node.refresh("shop").pointer == shop.store.current("shop")


def test_a_read_that_goes_back_for_a_moment_changes_nothing(shop):
    node = refresher(shop)
    earlier = shop.store.current("shop")
    shop.learn(10)
    shop.publish()
    view = node.refresh("shop")
    for lagging in (True, False):
        with pytest.MonkeyPatch.context() as replica:
            if lagging:
                replica.setattr(shop.store, "current", lambda _: earlier)
            assert node.refresh("shop") is view
        assert (node.stale_seconds() > 0) == lagging


def test_corruption_met_first_leaves_the_model_missing_not_the_node_dead(tmp_path):
    shop = Shop(tmp_path)
    shop.publish()
    shop.damage(shop.snapshot())
    with shop.node() as node:
        until(lambda: metric_value(node, "snapshots_refused_total", reason="corrupt"))
        assert node.readiness.missing() == ["shop"]
        assert node.alive
        shop.learn()
        shop.publish()
        wait_until_ready(node)
