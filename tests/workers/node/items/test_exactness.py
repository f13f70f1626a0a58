"""Searches while items come, change and go are exact for the items that there are."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from omdml.retrieval.growing_matrix import GrowingMatrix
from omdml.streams.catalogues.changes.change import Change
from omdml.workers.node.following.first_views import FirstViews
from omdml.workers.node.following.making_views import bridged_view, embedded_view, grown_view
from omdml.workers.node.searching.answers import Paging
from tests.support.catalogues.changing import Twin, change, plain_catalogue, random_change, raw_item
from tests.support.catalogues.galleries import Bilinear
from tests.support.deep import examples
from tests.support.shops import Shop
from tests.support.waiting import until
from tests.support.worlds import ITEMS

VECTORS = raw_item(np.random.default_rng(3))


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path, items=plain_catalogue)


def expected(metric, catalogue, twin, ids):
    """Distances by brute force in float64 of all items there are, by id; ``ids`` are the query, and no answers."""
    names = list(twin.vectors)
    embedding = metric.embed(catalogue.features).astype(np.float64)
    point = embedding[catalogue.rows(ids)].mean(axis=0)
    distances = ((embedding[catalogue.rows(names)] - point) ** 2).sum(axis=1)
    return {name: distance for name, distance in zip(names, distances, strict=True) if name not in ids}


def check(view, catalogue, twin, metric, draw):
    """Check that an answer is what brute force finds, and has no item twice and no deleted one."""
    ids = list(draw.choice(list(twin.vectors), draw.integers(1, 3), replace=False))
    k = int(draw.integers(1, ITEMS))
    answer = view.search(view.items(ids), k).items
    distances = expected(metric, catalogue, twin, ids)
    assert len(answer) == min(k, len(distances)) == len({item.id for item in answer})
    assert [entry.distance for entry in answer] == pytest.approx(sorted(distances.values())[:k], rel=1e-3, abs=1e-5)
    for item in answer:
        assert item.distance == pytest.approx(distances[item.id], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("patience_s", [60.0, 0.0], ids=["small", "bridged"])
@pytest.mark.parametrize("seed", range(examples(15)))
def test_random_changes_and_versions_are_answered_as_brute_force_does(shop, seed, patience_s):
    draw, twin, catalogue = np.random.default_rng(seed), Twin(), shop.catalogue
    shop.publish()
    view = embedded_view(*shop.store.load("shop"), catalogue, None, patience_s)
    for _ in range(40):
        if draw.random() < 0.2:
            shop.learn(1)
            shop.publish()
            loaded = shop.store.load("shop")
            view = bridged_view(view.complete, *loaded, catalogue) or embedded_view(
                *loaded, catalogue, view, patience_s
            )
        item_change = random_change(draw, twin)
        twin.make(item_change)
        change(catalogue, item_change)
        if draw.random() < 0.7:
            older, view = view, grown_view(view, catalogue)
            assert view.covers(catalogue)
            assert grown_view(older, catalogue).covers(catalogue)
            check(view, catalogue, twin, view.snapshot.metric, draw)
    assert patience_s or view.origin is not None


def test_a_view_stays_what_it_was_when_it_was_made(shop):
    shop.publish()
    before = embedded_view(*shop.store.load("shop"), shop.catalogue)
    answer = before.search(before.items(["i0"]), 5).items
    first = answer[0].id
    change(shop.catalogue, Change(id=first, delete=True), Change(id=answer[1].id, features=VECTORS))
    after = grown_view(before, shop.catalogue)
    assert [item.id for item in before.search(before.items(["i0"]), 5).items] == [item.id for item in answer]
    assert first not in [item.id for item in after.search(after.items(["i0"]), ITEMS).items]


def test_an_older_view_leaves_out_a_changed_query_item_and_exclusions(shop):
    shop.publish()
    view = embedded_view(*shop.store.load("shop"), shop.catalogue)
    change(shop.catalogue, Change(id="i3", features=VECTORS), Change(id="i4", features=VECTORS))
    answer = view.search(view.items(["i3"]), ITEMS, page=Paging(exclude=["i4"])).items
    assert {"i3", "i4"} & {item.id for item in answer} == set()
    assert len(answer) == ITEMS - 2


def test_items_of_a_metric_without_an_embedding_come_and_go():
    features = {"color": np.eye(3, 6, dtype=np.float32), "text": np.zeros((3, 11), np.float32)}
    from omdml.workers.node.galleries.gallery import Query, ScoredGallery

    gallery = ScoredGallery(Bilinear(), {name: x[:2] for name, x in features.items()}).grown(features)
    query = Query(np.empty(0, np.int64), {"color": features["color"][2:], "text": features["text"][2:]})
    assert gallery.nearest(query, 1).rows.tolist() == [2]
    assert gallery.nearest(query._replace(among=np.array([True, True, False])), 3).rows.tolist() == [0, 1]


def test_room_grows_twice_from_the_same_rows_without_a_mix_up():
    room = GrowingMatrix((2, 3))
    room.rows[:] = 1
    first, second = room.grown(np.full((1, 3), 2.0)), room.grown(np.full((1, 3), 3.0))
    assert (first.rows[2, 0], second.rows[2, 0], len(room.rows)) == (2, 3, 2)
    larger = first.grown(np.zeros((1000, 3)))
    assert (len(larger.rows), larger.rows[2, 0], first.rows.shape) == (1003, 2, (3, 3))


def test_first_and_past_versions_answer_nothing_that_was_deleted(shop):
    past = shop.publish()
    with shop.node(first=lambda model: shop.snapshot(version=0)) as node:
        assert "i3" in [item.id for item in node.view_of("shop", past).search(node.view().items(["i0"]), ITEMS).items]
        change(shop.catalogue, Change(id="i3", delete=True))
        view = node.view_of("shop", past)
        assert "i3" not in [item.id for item in view.search(view.items(["i0"]), ITEMS).items]
    firsts = FirstViews(lambda model: shop.snapshot(), lambda model: shop.catalogue, str, ["shop"])
    assert "i3" not in firsts.view("shop").listed
    change(shop.catalogue, Change(id="i4", delete=True))
    view = firsts.view("shop")
    assert {"i3", "i4"} & {item.id for item in view.search(view.items(["i0"]), ITEMS).items} == set()


def test_an_item_deleted_while_a_gallery_is_embedded_is_not_in_it(shop, monkeypatch):
    embedding, go_on = threading.Event(), threading.Event()

    def slowly(*arguments):
        view = embedded_view(*arguments)
        if threading.current_thread().name.startswith("omdml-embed"):
            embedding.set()
            assert go_on.wait(30)
        return view

    monkeypatch.setattr("omdml.workers.node.following.hot_swap.embedded_view", slowly)
    with shop.serving(patience_s=0.0) as node:
        shop.learn(1)
        shop.publish()
        assert embedding.wait(30)
        change(shop.catalogue, Change(id="i3", delete=True))
        node._live.take_in_all()
        assert "i3" not in node.view().listed
        go_on.set()
        until(lambda: node.view().origin is None)
        view = node.view()
        assert "i3" not in [item.id for item in view.search(view.items(["i0"]), ITEMS).items]
