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
