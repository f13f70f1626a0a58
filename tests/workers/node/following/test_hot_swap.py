"""What a node answers with while galleries are embedded in the background."""

from __future__ import annotations

from omdml.errors import CatalogueError
from omdml.workers.node.following.making_views import embedded_view
from tests.support.nodes import refresher


def test_a_pin_that_comes_while_a_gallery_is_embedded_is_what_answers_say(shop, monkeypatch):
    node = refresher(shop, patience_s=0.0)
    before = node.refresh("shop")

    def pinned_meanwhile(*arguments):
        made = embedded_view(*arguments)
        shop.store.move("shop", 41, pin=True)
        node.refresh("shop")
        return made

    monkeypatch.setattr("omdml.workers.node.following.hot_swap.embedded_view", pinned_meanwhile)
    shop.learn(1)
    shop.publish()
    assert node.refresh("shop").snapshot.version == 41
    node.live._embedder.submit(int).result()  # comes after whatever is embedded
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
            node.live._embedder.submit(int).result()  # comes after whatever is embedded
        view = node.live.views["shop"]
        assert (view.origin is None, view.snapshot.version) == (embeds, shop.learner.version)
    node.live.close()


def test_a_gallery_that_is_ready_late_does_not_replace_that_of_a_newer_version(shop, monkeypatch):
    node = refresher(shop, patience_s=0.0)
    node.refresh("shop")

    newer = []

    def overtaken(*arguments):
        made = embedded_view(*arguments)
        monkeypatch.undo()
        # No bridge leads to the next version, so it is embedded at once.
        monkeypatch.setattr("omdml.workers.node.following.hot_swap.bridged_view", lambda *_: None)
        shop.learn(1)
        shop.publish()
        newer.append(node.refresh("shop"))
        monkeypatch.undo()
        return made

    monkeypatch.setattr("omdml.workers.node.following.hot_swap.embedded_view", overtaken)
    shop.learn(1)
    shop.publish()
    node.refresh("shop")
    node.live._embedder.submit(int).result()  # comes after whatever is embedded
    assert newer[0].snapshot.version == shop.learner.version
    assert node.live.views["shop"] is newer[0]
    node.live.close()
