"""The bridge: exact answers under a new metric before the gallery is embedded again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.metrics import ProjectionMetric
from omdml.workers.node.galleries.bridge import Bridge, Spread, change_norms
from omdml.workers.node.galleries.gallery import Gallery, Query
from tests.support.catalogues.galleries import DIMS, by_brute_force, features, metric, query_of_row
from tests.support.deep import examples
from tests.support.nodes import assert_exact, serves
from tests.support.shops import Shop
from tests.support.waiting import until


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10_000), change=st.sampled_from([0.0, 1e-5, 1e-3, 1e-2, 0.3]), k=st.integers(1, 30))
def test_over_a_bridge_the_nearest_are_those_of_the_new_metric(seed, change, k):
    table, old = features(200, seed), metric(seed)
    new = metric(seed + 1, old, change)
    bridge = Bridge(Gallery(old, table), old, new, table, Spread(table))
    hits = bridge.nearest(query_of_row(seed % 200), k)
    distances = by_brute_force(new, table, seed % 200)
    assert hits is not None
    assert np.allclose(hits.distances, np.sort(distances)[:k], rtol=1e-4, atol=1e-5)
    assert np.allclose(hits.distances, distances[hits.rows], rtol=1e-4, atol=1e-5)


def test_a_bridge_reads_few_items_after_a_small_change(monkeypatch):
    table, old = features(5000), metric()
    bridge = Bridge(Gallery(old, table), old, metric(1, old, 1e-4), table, Spread(table))
    monkeypatch.setattr("omdml.workers.node.galleries.bridge.FEWEST", 0)
    monkeypatch.setattr("omdml.workers.node.galleries.bridge.SHARE", 0.02)
    assert bridge.nearest(query_of_row(7), 10) is not None


def test_a_bridge_gives_up_if_too_many_items_could_be_among_the_nearest():
    table, old = features(5000), metric()
    bridge = Bridge(Gallery(old, table), old, metric(1, old, 3.0), table, Spread(table))
    assert bridge.nearest(query_of_row(7), 10) is None


@pytest.mark.parametrize(("rows", "k", "expected"), [([0, 1, 2], 5, []), ([0, 2], 5, [1])])
def test_over_a_bridge_the_query_items_are_no_answers(rows, k, expected):
    table, old = features(3), metric()
    bridge = Bridge(Gallery(old, table), old, metric(1, old, 1e-3), table, Spread(table))
    assert bridge.nearest(Query(np.array(rows)), k).rows.tolist() == expected


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10_000), change=st.floats(1e-6, 1.0))
def test_no_vector_changes_its_length_by_more_than_the_bound(seed, change):
    old = metric(seed)
    new, draw = metric(seed + 1, old, change), np.random.default_rng(seed)
    norms = change_norms(old, new)
    for name, d in DIMS.items():
        difference = np.sqrt(new.weights[name]) * new.matrices[name].astype(np.float64)
        difference -= np.sqrt(old.weights[name]) * old.matrices[name].astype(np.float64)
        vectors = draw.normal(size=(d, 50))
        assert np.all(np.linalg.norm(difference @ vectors, axis=0) <= norms[name] * np.linalg.norm(vectors, axis=0))
        assert norms[name] <= np.linalg.norm(difference) * (1 + 1e-4)


@pytest.mark.parametrize(("unit", "change"), [(1e-21, 0.03), (1e-24, 1e-6)])
def test_features_too_small_for_their_squares_have_a_bound_that_holds(unit, change):
    table = {name: (unit * x).astype(np.float32) for name, x in features(300).items()}
    old, new = (
        ProjectionMetric(model.weights, {name: (W / unit).astype(np.float32) for name, W in model.matrices.items()})
        for model in (metric(), metric(1, metric(), change))
    )
    spread = Spread(table)
    bridge = Bridge(Gallery(old, table), old, new, table, spread)
    changes = (
        np.sqrt(new.weights[name]) * new.matrices[name].astype(np.float64)
        - np.sqrt(old.weights[name]) * old.matrices[name].astype(np.float64)
        for name in table
    )
    centred = (table[name].astype(np.float64) - spread.middle[name] for name in table)
    moved = np.concatenate([x @ X.T for x, X in zip(centred, changes, strict=True)], axis=1)
    assert (bridge._width(spread.distances) >= np.linalg.norm(moved, axis=1)).all()
    hits = bridge.nearest(query_of_row(7), 10)
    assert hits is not None
    assert sorted(hits.rows) == sorted(np.argsort(by_brute_force(new, table, 7))[:10])


def test_behind_a_bridge_the_gallery_is_embedded_in_the_background(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving(patience_s=0.0) as node:
        shop.learn()
        until(serves(node, shop.publish()))
        until(lambda: node.view().origin is None)
        assert node.view().snapshot.version == shop.learner.version
        assert_exact(shop, node.search(ids=["i3"]), "i3")


def test_a_version_to_which_no_bridge_holds_goes_live_with_its_gallery(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    monkeypatch.setattr("omdml.workers.node.galleries.bridge.FEWEST", 0)
    with shop.serving(patience_s=0.0) as node:
        monkeypatch.setattr("omdml.workers.node.following.hot_swap.LiveViews._embed_later", lambda self, model: None)
        shop.learn(500)
        until(serves(node, shop.publish()))
        answer = node.search(ids=["i3"], k=3)
        assert (answer.version, node.view().origin) == (500, None)
        assert_exact(shop, answer, "i3", 3)


def test_a_query_that_a_bridge_cannot_answer_gets_the_older_version(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    monkeypatch.setattr("omdml.workers.node.galleries.bridge.FEWEST", 0)
    monkeypatch.setattr("omdml.workers.node.galleries.bridge.Bridge.holds", lambda self: True)
    with shop.serving(patience_s=0.0) as node:
        monkeypatch.setattr("omdml.workers.node.following.hot_swap.LiveViews._embed_later", lambda self, model: None)
        shop.learn(500)
        until(serves(node, shop.publish()))
        answer = node.search(ids=["i3"], k=3)
        assert answer.version == 0
        assert_exact(shop, answer, "i3", 3)
