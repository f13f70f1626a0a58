"""What a node keeps serving while the store's pointer goes, comes back, or changes at the wrong moment."""

from __future__ import annotations

import pytest
import structlog
from prometheus_client import CollectorRegistry

from omdml.errors import CatalogueError
from tests.support.shops import Shop
from workers.node.hot_swap import Refresher
from workers.node.live_model import embedded_view
from workers.node.metrics import NodeMetrics


@pytest.fixture
def shop(tmp_path):
    made = Shop(tmp_path)
    made.learn(40)
    made.publish()
    return made


def refresher(shop, patience_s=60.0):
    """Keeps the views of one node; with no patience every new metric is bridged to, and embedded later."""
    return Refresher(shop.store, lambda model: shop.catalogue, NodeMetrics(CollectorRegistry()), str, patience_s)


def test_a_deleted_model_is_dropped_and_followed_again_once_it_begins_anew(shop):
    node = refresher(shop)
    assert node.refresh("shop").snapshot.version == 40
    shop.store.delete("shop")
    assert node.refresh("shop") is None
    assert (node.views, node.stale_seconds()) == ({}, 0.0)
    anew = Shop(shop.catalogue.path.parent / "anew", store=shop.store)
    anew.publish()
    assert node.refresh("shop").snapshot.version == 0
    assert node.stale_seconds() == 0


def test_each_move_of_an_operator_is_logged_and_new_versions_are_told_together(shop, monkeypatch):
    node = refresher(shop)

    def learned():
        shop.learn(1)
        shop.publish()

    with structlog.testing.capture_logs() as logs:
        moves = [
            lambda: None, learned, learned, learned,
            lambda: shop.store.move("shop", 40, pin=True),
            lambda: shop.store.move("shop", 42, pin=True),
            lambda: shop.store.move("shop", None, pin=False),
        ]  # fmt: skip
        for move in moves:
            move()
            node.refresh("shop")
        monkeypatch.setattr("workers.node.hot_swap.TELL_EVERY_S", 0.0)
        learned()
        node.refresh("shop")
    told = [(line["event"], line["before"], line["version"], line.get("swaps")) for line in logs]
    assert told == [
        ("model_live", None, 40, None),
        ("new_version", 40, 41, 1),
        ("rolled_back", 43, 40, None),
        ("pinned", 40, 42, None),
        ("unpinned", 42, 43, None),
        ("new_version", 43, 44, 3),
    ]


def test_a_model_that_is_forgotten_is_not_stale(shop):
    node = refresher(shop)
    node.refresh("shop")
    node.fall_behind(["shop"])
    assert node.stale_seconds() > 0
    node.forget("shop")
    assert (node.views, node.stale_seconds()) == ({}, 0.0)


def test_a_pin_that_comes_while_a_gallery_is_embedded_is_what_answers_say(shop, monkeypatch):
    node = refresher(shop, patience_s=0.0)
    before = node.refresh("shop")

    def pinned_meanwhile(*arguments):
        made = embedded_view(*arguments)
        shop.store.move("shop", 41, pin=True)
        node.refresh("shop")
        return made

    monkeypatch.setattr("workers.node.hot_swap.embedded_view", pinned_meanwhile)
    shop.learn(1)
    shop.publish()
    assert node.refresh("shop").snapshot.version == 41
    node._embedder.submit(int).result()  # comes after whatever is embedded
    view = node.views["shop"]
    assert (view.origin, view.pointer.pinned, view.pointer.serial) == (None, True, before.pointer.serial + 2)
    node.close()


def test_a_gallery_that_was_not_embedded_is_tried_at_the_next_snapshot(shop, monkeypatch):
    node = refresher(shop, patience_s=0.0)
    node.refresh("shop")

    def away(*_):
        raise CatalogueError("items: away")

    for embeds in (False, True):
        shop.learn(1)
        shop.publish()
        with monkeypatch.context() as broken:
            if not embeds:
                broken.setattr("workers.node.hot_swap.embedded_view", away)
            node.refresh("shop")
            node._embedder.submit(int).result()  # comes after whatever is embedded
        view = node.views["shop"]
        assert (view.origin is None, view.snapshot.version) == (embeds, shop.learner.version)
    node.close()
