"""Candidates ranked again: answers under a metric that moved too far for a bridge, before its gallery is embedded."""

from __future__ import annotations

import numpy as np
import pytest

from omdml import DCA
from omdml.metrics import CosineMetric, CoupledMetric, ProjectionMetric
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.changes.change import Change
from omdml.streams.protocols.store import Pointer
from omdml.workers.node.following.making_views import bridged_view, embedded_view, grown_view, reranked_view
from omdml.workers.node.galleries.bridge import Bridge, Spread
from omdml.workers.node.galleries.gallery import PROBES, Gallery, Query
from omdml.workers.node.galleries.reranking import FOR_EACH, LEAST_ROWS, MOST, Reranking
from omdml.workers.node.searching.answers import Paging
from omdml.workers.node.searching.options import Options
from tests.support import worlds
from tests.support.catalogues.changing import change
from tests.support.catalogues.galleries import features, metric
from tests.support.nodes import assert_exact, metric_value, refresher, serves
from tests.support.shops import Shop, asking, refused
from tests.support.waiting import until

EMBED_LATER = "omdml.workers.node.following.hot_swap.LiveViews._embed_later"
DEEPEST = MOST // FOR_EACH


def many_items(folder, far_out=False):
    """The world's items, and so many like them that candidates are tried."""
    draw, copies = np.random.default_rng(0), LEAST_ROWS // worlds.ITEMS
    table = {}
    for name, x in worlds.items()[0].items():
        noise = 0.4 * draw.normal(size=(copies * len(x), x.shape[1]))
        table[name] = np.concatenate([x, np.tile(x, (copies, 1)) + noise])
    if far_out:
        table["shape"][7, -2:] = 1e6
    count = len(table["shape"])
    return build_catalogue(folder, table, ids=[f"i{row}" for row in range(count)], mapped=False)


@pytest.fixture
def items():
    """The function that makes the shop's catalogue; a test may choose another one."""
    return many_items


@pytest.fixture
def shop(tmp_path, items):
    """A shop with many items, whose model DCA has learned from 300 comparisons."""
    shop = Shop(tmp_path, items=items)
    shop.learner = DCA(dims=dict(shop.catalogue.dims))
    shop.learner.start(shop.catalogue.features)
    shop.learn(300)
    return shop


def far(shop):
    """A metric that goes by the modality of noise only."""
    rows = np.eye(sum(worlds.DIMS.values()), dtype=np.float32)[worlds.DIMS["shape"] :]
    return CosineMetric(shop.learner.metric.dims, shop.learner.metric.mean, {"far": rows}, {"far": 1.0})


def far_out(folder):
    """The same items, of which one lies far out in two numbers."""
    return many_items(folder, far_out=True)


def diverged(shop):
    """The learned metric with an expert that cannot embed the item that lies far out."""
    learned, rows = shop.learner.metric, np.zeros((1, sum(worlds.DIMS.values())), np.float32)
    rows[0, -2:] = 3e38
    experts, shares = {**learned.experts, "diverged": rows}, {**learned.shares, "diverged": 0.0}
    return CosineMetric(learned.dims, learned.mean, experts, shares)


def early(shop):
    """The view of what was learned last, from the gallery of the version before."""
    shop.publish()
    before = embedded_view(*shop.store.load("shop"), shop.catalogue, None, 0.0)
    shop.learn(20)
    shop.publish()
    view = reranked_view(before, *shop.store.load("shop"), shop.catalogue)
    assert view is not None
    return view


def recall(view, whole, queries, k=10, among=None):
    """The share of the whole gallery's answers that the view finds."""
    queries = [query._replace(among=among) for query in queries]
    answers = [view.indexes[None].nearest(query, k).rows for query in queries]
    expected = [whole.nearest(query, k).rows for query in queries]
    return np.mean([np.isin(rows, answer).mean() for rows, answer in zip(expected, answers, strict=True)])


def test_a_version_of_dca_answers_at_once_by_the_old_versions_candidates(shop, monkeypatch):
    with shop.serving(patience_s=0.0) as node:
        assert node.search(ids=["i3"]).candidates_version is None
        monkeypatch.setattr(EMBED_LATER, lambda self, model: None)
        shop.learn(20)
        until(serves(node, shop.publish()))
        answer = node.search(ids=["i3"])
        assert (answer.version, answer.candidates_version) == (320, 300)
        assert_exact(shop, answer, "i3")
        assert metric_value(node, "searches_total", model="shop", exact="false", via="reranked") == 1
        assert metric_value(node, "gallery_complete", model="shop") == 0


def test_over_http_an_answer_says_so_until_the_gallery_is_embedded(shop, monkeypatch):
    with shop.serving(patience_s=0.0) as node, asking(node) as client:
        with monkeypatch.context() as patch:
            patch.setattr(EMBED_LATER, lambda self, model: None)
            shop.learn(20)
            shop.publish()
            first = client.get("/search", params={"id": "i3", "min_version": 320}).raise_for_status()
        assert first.json()["candidates_version"] == 300
        node._live._embed_later("shop")
        until(lambda: node.view().origin is None)
        then = client.get("/search", params={"id": "i3"}, headers={"if-none-match": first.headers["etag"]})
        assert then.raise_for_status().json().get("candidates_version") is None
        assert [item["id"] for item in then.json()["items"]] == [item["id"] for item in first.json()["items"]]
        assert_exact(shop, node.search(ids=["i3"]), "i3")


def test_over_http_an_older_version_never_answers_below_min_version(shop, monkeypatch):
    with shop.serving(patience_s=0.0) as node, asking(node) as client:
        monkeypatch.setattr(EMBED_LATER, lambda self, model: None)
        shop.learn(20)
        until(serves(node, shop.publish()))
        deep = {"id": "i3", "k": DEEPEST + 1}
        assert client.get("/search", params=deep).raise_for_status().json()["version"] == 300
        response = client.get("/search", params={**deep, "min_version": 320})
        assert "version 300 answers this search, and min_version is 320" in refused(response, 503, "behind")
        assert response.json()["version"] == 300
        assert client.get("/search", params={**deep, "min_version": 300}).raise_for_status().json()["version"] == 300


def test_a_version_far_away_goes_live_with_its_gallery(shop, monkeypatch):
    with shop.serving(patience_s=0.0) as node:
        monkeypatch.setattr(EMBED_LATER, lambda self, model: None)
        shop.learn(20)
        version = shop.publish(metric=far(shop))
        until(serves(node, version))
        answer = node.search(ids=["i3"])
        assert (answer.version, answer.candidates_version, node.view().origin) == (version, None, None)
        assert_exact(shop, answer, "i3")


@pytest.mark.parametrize("items", [far_out])
@pytest.mark.filterwarnings("ignore:.*(overflow|invalid value)")
def test_a_version_that_cannot_embed_all_items_answers_until_that_is_noticed(shop, monkeypatch):
    with shop.serving(patience_s=0.0) as node:
        before = node.search(ids=["i7"])
        with monkeypatch.context() as patch:
            patch.setattr(EMBED_LATER, lambda self, model: None)
            shop.learn(20)
            until(serves(node, shop.publish(metric=diverged(shop))))
            assert node.search(ids=["i3"]).version == 320
            # Neither query nor candidates may be embedded to something that is not finite.
            assert node.search(ids=["i7"]).items == before.items
            assert node.search(ids=["i7"]).version == 300
            expanded = node.answers(node.view(), [node.view().items(["i7"])], options=Options(expand=3))
            assert (expanded.version, expanded.candidates_version) == (300, None)
        node._live._embed_later("shop")
        until(serves(node, 300))
        until(lambda: "shop" in node._refresher.refused)
        assert "to values that are not finite" in node._refresher.refused["shop"].reason
        assert (node.view().snapshot.version, node.search(ids=["i7"]).candidates_version) == (300, None)
        shop.learn(20)
        until(serves(node, shop.publish()))
        assert not node._refresher.refused


def test_a_small_gallery_is_embedded_at_once(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    shop.learner = DCA(dims=dict(shop.catalogue.dims))
    shop.learner.start(shop.catalogue.features)
    with shop.serving(patience_s=0.0) as node:
        monkeypatch.setattr(EMBED_LATER, lambda self, model: None)
        shop.learn()
        until(serves(node, shop.publish()))
        assert node.view().origin is None


def test_nearly_all_of_the_nearest_are_found_with_filters_too(shop):
    view = early(shop)
    whole = Gallery(view.snapshot.metric, shop.catalogue.features)
    draw = np.random.default_rng(1)
    queries = [Query(row[None]) for row in draw.choice(view.count, 50, replace=False)]
    assert recall(view, whole, queries) >= 0.99
    assert recall(view, whole, queries, DEEPEST) >= 0.99
    for left in (0.3, 0.01, 0.0003):
        among = draw.random(view.count) < left
        assert recall(view, whole, queries, among=among) >= 0.99
        assert among[view.indexes[None].nearest(queries[0]._replace(among=among), 10).rows].all()


def test_a_page_too_deep_for_candidates_is_the_older_versions(shop):
    view = early(shop)
    deep = view.search(view.items(["i3"]), 5, page=Paging(DEEPEST))
    assert (deep.version, deep.candidates_version) == (300, None)
    last = view.search(view.items(["i3"]), 5, page=Paging(DEEPEST - 5))
    assert (last.version, last.candidates_version) == (320, 300)
    assert last.items == view.search(view.items(["i3"]), DEEPEST).items[-5:]
    near = view.search(view.items(["i3"]), 5).items
    without = view.search(view.items(["i3"]), 5, page=Paging(0, [near[0].id]))
    assert without.items[:4] == near[1:]


def test_queries_are_expanded_and_distances_explained_as_in_the_gallery(shop):
    view = early(shop)
    whole = embedded_view(view.pointer, view.snapshot, shop.catalogue)
    queries = [view.items(["i3"]), view.items(["i5", "i7"]), view.vectors({"shape": [0.5] * 9, "noise": [0.5] * 5})]
    early_answers = view.search_each(queries, 10, options=Options(expand=5, explain=True))
    for mine, right in zip(
        early_answers.answers, whole.search_each(queries, 10, options=Options(expand=5)).answers, strict=True
    ):
        assert len({item.id for item in mine} & {item.id for item in right}) >= 9
        assert [item.distance for item in mine] == pytest.approx([item.distance for item in right], rel=0.05, abs=1e-4)
        for item in mine:
            assert sum(item.parts.values()) == pytest.approx(item.distance, abs=1e-5)


def test_deleted_items_are_never_answered_and_new_ones_are(shop, monkeypatch):
    with shop.serving(patience_s=0.0) as node:
        monkeypatch.setattr(EMBED_LATER, lambda self, model: None)
        shop.learn(20)
        until(serves(node, shop.publish()))
        nearest = node.search(ids=["i3"]).items[0].id
        raw = {name: x[3].tolist() for name, x in worlds.items()[0].items()}
        change(shop.catalogue, Change(id=nearest, delete=True), Change(id="new", features=raw))
        node._live.take_in_all()
        answer = node.search(ids=["i3"])
        assert (answer.version, answer.candidates_version) == (320, 300)
        assert answer.items[0].id == "new"
        assert nearest not in [item.id for item in answer.items]


def test_a_bridge_is_preferred_and_candidates_answer_if_none_holds(tmp_path):
    shop = Shop(tmp_path, items=many_items)
    shop.publish()
    before = embedded_view(*shop.store.load("shop"), shop.catalogue, None, 0.0)
    shop.learn(1)
    shop.publish()
    assert isinstance(bridged_view(before, *shop.store.load("shop"), shop.catalogue).indexes[None], Bridge)
    table, old = features(LEAST_ROWS), metric()
    gallery, new = Gallery(old, table), metric(1, old, 0.05)
    assert not Bridge(gallery, old, new, table, Spread(table)).holds()
    assert Reranking(gallery, new, table, 0).holds()
    assert not Reranking(gallery, metric(1, old, 3.0), table, 0).holds()
    assert not Reranking(Gallery(old, features(1000)), old, features(1000), 0).holds()


def test_a_bridge_is_not_given_up_for_candidates_of_a_newer_gallery(tmp_path):
    shop = Shop(tmp_path, items=many_items)
    views = refresher(shop, patience_s=0.0).live
    shop.publish()
    first = embedded_view(*shop.store.load("shop"), shop.catalogue, None, 0.0)
    draw, matrices = np.random.default_rng(3), shop.learner.metric.matrices
    moved = {name: x + (0.05 * draw.normal(size=x.shape)).astype(np.float32) for name, x in matrices.items()}
    snapshot = shop.snapshot(version=1, metric=ProjectionMetric(shop.learner.metric.weights, moved))
    newer = embedded_view(first.pointer, snapshot, shop.catalogue, None, 0.0)
    arguments = first.pointer, shop.snapshot(version=2), shop.catalogue
    bridge = views.views["shop"] = bridged_view(first, *arguments)
    assert bridged_view(newer, *arguments) is None
    candidates = reranked_view(newer, *arguments)
    assert candidates.reranked
    views._swap_embedding("shop", newer, newer)
    assert views.views["shop"] is bridge
    views.views["shop"] = reranked_view(first, *arguments)
    views._swap_embedding("shop", newer, newer)
    assert views.views["shop"].origin.snapshot.version == 1
    views.close()


def test_each_task_ranks_the_candidates_of_its_own_gallery(tmp_path):
    shop = Shop(tmp_path, items=many_items)
    dims, draw = shop.catalogue.dims, np.random.default_rng(2)
    old = {name: draw.normal(size=(4, sum(dims.values()))).astype(np.float32) for name in ("shared", "one")}
    new = {name: x + 0.02 * draw.normal(size=x.shape).astype(np.float32) for name, x in old.items()}
    before, after = (
        CoupledMetric(dims, matrices, {"one": ["shared", "one"], "other": ["shared"]}) for matrices in (old, new)
    )
    pointers = [Pointer(serial, serial, "", "", 0.0) for serial in (1, 2)]
    snapshots = [shop.snapshot(metric=before, version=1), shop.snapshot(metric=after, version=2)]
    origin = embedded_view(pointers[0], snapshots[0], shop.catalogue, None, 0.0)
    view = reranked_view(origin, pointers[1], snapshots[1], shop.catalogue)
    whole = embedded_view(pointers[1], snapshots[1], shop.catalogue)
    raw = {name: x[3].tolist() for name, x in worlds.items()[0].items()}
    change(shop.catalogue, Change(id="i9", delete=True), Change(id="new", features=raw))
    view, whole = (grown_view(each, shop.catalogue) for each in (view, whole))
    assert view.indexes["other"] is view.indexes[None] is not view.indexes["one"]
    for task in (None, "one", "other"):
        answer, right = (each.search(each.items(["i3"]), 10, task) for each in (view, whole))
        assert (answer.version, answer.candidates_version) == (2, 1)
        assert [item.id for item in answer.items] == [item.id for item in right.items]
        assert answer.items[0].id == "new"


def test_the_trial_of_a_metric_that_moved_far_ends_early(shop):
    gallery = Gallery(shop.learner.metric, shop.catalogue.features)
    assert not Reranking(gallery, far(shop), shop.catalogue.features, 300).holds()
    assert len(gallery._probes) < PROBES


def test_a_gallery_can_be_tried_after_one_that_grew_from_it():
    old, table = metric(), features(LEAST_ROWS + 20)
    fewer = {name: x[:LEAST_ROWS] for name, x in table.items()}
    gallery = Gallery(old, fewer)
    grown = gallery.grown(table)
    assert Reranking(grown, metric(1, old, 0.05), table, 0).holds()
    assert Reranking(gallery, metric(1, old, 0.05), fewer, 0).holds()


def test_an_approximate_index_proposes_candidates_too(shop):
    pytest.importorskip("faiss")
    view = early(shop)
    own = view.indexes[None]
    reranking = Reranking(own.gallery.with_cells(), own.metric, own.features, own.version)
    assert reranking.holds()
    whole = Gallery(own.metric, own.features)
    queries = [Query(row[None]) for row in np.random.default_rng(1).choice(view.count, 30, replace=False)]
    shares = [np.isin(whole.nearest(query, 10).rows, reranking.nearest(query, 10).rows).mean() for query in queries]
    assert np.mean(shares) >= 0.99
