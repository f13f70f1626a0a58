"""What a node answers with while galleries are embedded in the background."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from omdml.errors import CatalogueError
from omdml.streams.catalogues.changes.change import Change
from omdml.workers.node.following.making_views import embedded_view
from tests.support.catalogues.changing import change, plain_catalogue, raw_item
from tests.support.nodes import refresher
from tests.support.shops import Shop
from tests.support.worlds import ITEMS


@contextmanager
def embedding(monkeypatch, refresh):
    """While this is entered, another thread refreshes a model, and its new gallery is embedded. Then it goes live."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(*arguments):
        view = embedded_view(*arguments)
        if not begun.is_set():
            begun.set()
            assert go_on.wait(30)
        return view

    monkeypatch.setattr("omdml.workers.node.following.hot_swap.embedded_view", slow)
    with ThreadPoolExecutor(1) as thread:
        refreshed = thread.submit(refresh, "shop")
        try:
            assert begun.wait(30)
            yield
        finally:
            go_on.set()
        refreshed.result(30)


def test_a_pin_that_comes_while_a_gallery_is_embedded_is_in_the_next_view(shop, monkeypatch):
    node = refresher(shop, patience_s=0.0)
    before = node.refresh("shop")

    def pinned_meanwhile(*arguments):
        view = embedded_view(*arguments)
        shop.store.move("shop", 41, pin=True)
        node.refresh("shop")
        return view

    monkeypatch.setattr("omdml.workers.node.following.hot_swap.embedded_view", pinned_meanwhile)
    shop.learn(1)
    shop.publish()
    assert node.refresh("shop").snapshot.version == 41
    # Embeddings and this job run one after the other, so it ends last.
    node.live._embedder.submit(int).result()
    view = node.live.views["shop"]
    assert (view.origin, view.pointer.pinned, view.pointer.serial) == (None, True, before.pointer.serial + 2)
    node.live.close()


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
                broken.setattr("omdml.workers.node.following.hot_swap.embedded_view", away)
            node.refresh("shop")
            # Embeddings and this job run one after the other, so it ends last.
            node.live._embedder.submit(int).result()
        view = node.live.views["shop"]
        assert (view.origin is None, view.snapshot.version) == (embeds, shop.learner.version)
    node.live.close()


def test_a_gallery_that_is_ready_late_does_not_replace_that_of_a_newer_version(shop, monkeypatch):
    node = refresher(shop, patience_s=0.0)
    node.refresh("shop")

    newer = []

    def overtaken(*arguments):
        view = embedded_view(*arguments)
        monkeypatch.undo()
        # No bridge leads to the next version, so it is embedded at once.
        monkeypatch.setattr("omdml.workers.node.following.hot_swap.bridged_view", lambda *_: None)
        shop.learn(1)
        shop.publish()
        newer.append(node.refresh("shop"))
        monkeypatch.undo()
        return view

    monkeypatch.setattr("omdml.workers.node.following.hot_swap.embedded_view", overtaken)
    shop.learn(1)
    shop.publish()
    node.refresh("shop")
    # Embeddings and this job run one after the other, so it ends last.
    node.live._embedder.submit(int).result()
    assert newer[0].snapshot.version == shop.learner.version
    assert node.live.views["shop"] is newer[0]
    node.live.close()


def test_while_a_version_is_embedded_items_change_and_others_are_loaded(tmp_path, monkeypatch):
    shop = Shop(tmp_path, items=plain_catalogue)
    shop.publish()
    shop.store.publish(shop.snapshot(model="other"), shop.store.claim("other").epoch)
    node = refresher(shop)
    node.refresh("shop")
    shop.learn()
    version = shop.publish()
    with embedding(monkeypatch, node.refresh), ThreadPoolExecutor(1) as thread:
        change(
            shop.catalogue, Change(id="new", features=raw_item(np.random.default_rng(0))), Change(id="i3", delete=True)
        )
        thread.submit(node.live.take_in_all).result(10)
        assert thread.submit(node.refresh, "other").result(10).shown.items == ITEMS
        thread.submit(node.forget, "other").result(10)
        assert node.live.views["shop"].snapshot.version == 0
        assert node.live.views["shop"].covers(shop.catalogue)
    view = node.live.views["shop"]
    assert view.snapshot.version == version
    # Whoever changed the items was told that searches find them.
    assert view.covers(shop.catalogue)
    ids = [item.id for item in view.search(view.query(["i5"]), 2 * ITEMS).items]
    assert "new" in ids
    assert "i3" not in ids
    node.live.close()


def test_a_model_that_is_forgotten_while_it_is_embedded_does_not_come_back(shop, monkeypatch):
    node = refresher(shop)
    node.refresh("shop")
    shop.learn()
    shop.publish()
    with ThreadPoolExecutor(1) as thread:
        with embedding(monkeypatch, node.refresh_if_loaded):
            forgotten = thread.submit(node.forget, "shop")
            # A forget that does not wait has time to be first.
            threading.Event().wait(0.2)
        forgotten.result(10)
    assert node.live.views == {}
    node.live.close()


def test_a_gallery_that_is_ready_late_does_not_undo_a_rollback(shop, monkeypatch):
    node = refresher(shop, patience_s=0.0)
    node.refresh("shop")
    older = []

    def rolled_back_meanwhile(*arguments):
        view = embedded_view(*arguments)
        monkeypatch.undo()
        with monkeypatch.context() as patch:
            # No bridge leads back, so the older version is embedded at once.
            patch.setattr("omdml.workers.node.following.hot_swap.bridged_view", lambda *_: None)
            shop.store.move("shop", 40, pin=True)
            older.append(node.refresh("shop"))
        return view

    monkeypatch.setattr("omdml.workers.node.following.hot_swap.embedded_view", rolled_back_meanwhile)
    shop.learn(1)
    shop.publish()
    assert node.refresh("shop").snapshot.version == 41
    # Embeddings and this job run one after the other, so it ends last.
    node.live._embedder.submit(int).result()
    assert (older[0].snapshot.version, older[0].pointer.pinned) == (40, True)
    assert node.live.views["shop"] is older[0]
    node.live.close()


def test_a_stop_waits_for_one_gallery_at_most(shop, monkeypatch):
    shop.store.publish(shop.snapshot(model="other"), shop.store.claim("other").epoch)
    begun, go_on = threading.Event(), threading.Event()

    def slow(*arguments):
        begun.set()
        assert go_on.wait(30)
        return embedded_view(*arguments)

    monkeypatch.setattr("omdml.workers.node.following.hot_swap.embedded_view", slow)
    node = shop.node(models=("shop", "other"))
    node.start()
    assert begun.wait(30)
    with ThreadPoolExecutor(1) as thread:
        closed = thread.submit(node.close)
        assert node._follower._stopped.wait(30)
        go_on.set()
        closed.result(30)
    assert [name for name in ("shop", "other") if node.loaded(name)] in (["shop"], ["other"])
