"""What experts make of a small gallery's items goes from version to version, and changes no byte of it."""

from __future__ import annotations

import numpy as np
import pytest

from omdml import DCA
from omdml.metrics import CosineMetric
from omdml.streams.catalogues.changes.change import Change
from omdml.workers.node.following.making_views import embedded_view, grown_view
from tests.support.catalogues.changing import change, raw_item
from tests.support.shops import Shop


@pytest.fixture
def shop(tmp_path):
    """A shop whose model DCA has learned and published."""
    shop = Shop(tmp_path)
    shop.learner = DCA(dims=dict(shop.catalogue.dims))
    shop.learner.start(shop.catalogue.features)
    shop.learn(300)
    shop.publish()
    return shop


def view_of(shop, before=None):
    """A view of what was published."""
    return embedded_view(*shop.store.load("shop"), shop.catalogue, before)


def later_view(shop, before=None):
    """A view of a version in which only the expert *items* has another matrix."""
    learned, draw = shop.learner.metric, np.random.default_rng(2)
    rows = draw.normal(0, 1, learned.experts["items"].shape).astype(np.float32)
    metric = CosineMetric(learned.dims, learned.mean, {**learned.experts, "items": rows}, learned.shares)
    snapshot = shop.snapshot(metric=metric, version=shop.learner.version + 1)
    return embedded_view(shop.store.current("shop"), snapshot, shop.catalogue, before)


def gallery(view):
    """The gallery of a view."""
    return view.indexes[None]


def test_the_next_version_computes_only_what_a_changed_expert_makes_of_items(shop):
    before = view_of(shop)
    after = later_view(shop, before)
    units, earlier = gallery(after).units.by_expert, gallery(before).units.by_expert
    assert units["far"] is earlier["far"]
    assert units["items"] is not earlier["items"]
    assert gallery(after).embedding.tobytes() == gallery(later_view(shop)).embedding.tobytes()


def test_nothing_is_taken_over_from_a_gallery_with_other_items(shop):
    before = view_of(shop)
    change(shop.catalogue, Change(id="new", features=raw_item(np.random.default_rng(3))))
    grown = grown_view(before, shop.catalogue)
    assert grown.count == before.count + 1
    alone = gallery(later_view(shop)).embedding.tobytes()
    for earlier in (before, grown):
        assert gallery(later_view(shop, earlier)).embedding.tobytes() == alone


def test_a_large_gallery_does_not_keep_what_its_experts_made(shop, monkeypatch):
    small = gallery(view_of(shop))
    monkeypatch.setattr("omdml.workers.node.galleries.embedding.KEPT_NUMBERS", small.embedding.size - 1)
    large = gallery(view_of(shop))
    assert large.units is None
    assert large.nbytes == small.nbytes - small.units.nbytes
