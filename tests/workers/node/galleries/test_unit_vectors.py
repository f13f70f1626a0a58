"""A small gallery hands unit vectors of unchanged experts on to the next version, whose embedding is the same bytes."""

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


def view_of(shop, number, before=None):
    """A view of a version in which only the expert *items* has another matrix, drawn with the seed ``number``."""
    learned, draw = shop.learner.metric, np.random.default_rng(number)
    rows = draw.normal(0, 1, learned.experts["items"].shape).astype(np.float32)
    metric = CosineMetric(learned.dims, learned.mean, {**learned.experts, "items": rows}, learned.shares)
    snapshot = shop.snapshot(metric=metric, version=shop.learner.version + number)
    return embedded_view(shop.store.current("shop"), snapshot, shop.catalogue, before)


def second_view(shop):
    """A view whose gallery keeps unit vectors, because it comes soon after another one."""
    return view_of(shop, 2, view_of(shop, 1))


def gallery(view):
    """The gallery of a view."""
    return view.indexes[None]


def test_the_next_version_computes_unit_vectors_of_changed_experts_only(shop):
    before = second_view(shop)
    after = view_of(shop, 3, before)
    units, earlier = gallery(after).units.by_expert, gallery(before).units.by_expert
    assert units["far"] is earlier["far"]
    assert units["items"] is not earlier["items"]
    assert gallery(after).embedding.tobytes() == gallery(view_of(shop, 3)).embedding.tobytes()


def test_nothing_is_taken_over_from_a_gallery_with_other_items(shop):
    before = second_view(shop)
    change(shop.catalogue, Change(id="new", features=raw_item(np.random.default_rng(3))))
    grown = grown_view(before, shop.catalogue)
    assert grown.count == before.count + 1
    alone = gallery(view_of(shop, 3)).embedding.tobytes()
    for earlier in (before, grown):
        assert gallery(view_of(shop, 3, earlier)).embedding.tobytes() == alone


@pytest.mark.parametrize(("limit", "value"), [("UNIT_NUMBERS", 10), ("SOON_S", -1.0)], ids=["large", "alone for long"])
def test_a_large_or_rarely_replaced_gallery_keeps_no_unit_vectors(shop, monkeypatch, limit, value):
    kept = gallery(second_view(shop))
    monkeypatch.setattr(f"omdml.workers.node.following.making_views.{limit}", value)
    not_kept = gallery(second_view(shop))
    assert not_kept.units is None
    assert not_kept.nbytes == kept.nbytes - kept.units.nbytes
    assert not_kept.embedding.tobytes() == kept.embedding.tobytes()
