"""Nearest neighbours: what brute force says, however they are found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.errors import CorruptError
from omdml.metrics import Metric, ProjectionMetric
from tests.support.deep import examples
from workers.node.bridge import Bridge, Spread, change_norms
from workers.node.gallery import Gallery, Query, ScoredGallery

DIMS = {"color": 6, "text": 11}


def features(count: int, seed: int = 0, away: float = 0.0) -> dict[str, np.ndarray]:
    """Items in a few clusters, ``away`` from the origin."""
    draw = np.random.default_rng(seed)
    groups = draw.integers(0, 4, count)
    return {
        name: (away + draw.normal(size=(4, d))[groups] + 0.3 * draw.normal(size=(count, d))).astype(np.float32)
        for name, d in DIMS.items()
    }


def metric(seed: int = 0, base: ProjectionMetric | None = None, change: float = 0.0) -> ProjectionMetric:
    """A random metric, or one that lies ``change`` away from another."""
    draw = np.random.default_rng(seed)
    if base is None:
        return ProjectionMetric(
            {"color": 0.3, "text": 0.7}, {n: draw.normal(size=(4, d)).astype(np.float32) for n, d in DIMS.items()}
        )
    weight = np.clip(base.weights["color"] * (1 + change * draw.normal()), 0, 1)
    matrices = {n: w + change * draw.normal(size=w.shape).astype(np.float32) for n, w in base.matrices.items()}
    return ProjectionMetric({"color": weight, "text": 1 - weight}, matrices)


def by_brute_force(metric: Metric, table, row: int) -> np.ndarray:
    """Distances of everything to an item, in float64."""
    exact = ProjectionMetric(metric.weights, {n: w.astype(np.float64) for n, w in metric.matrices.items()})
    embedding = exact.embed(table)
    distances = ((embedding - embedding[row]) ** 2).sum(axis=1)
    distances[row] = np.inf
    return distances


def one(row: int) -> Query:
    return Query(np.array([row]))


class Bilinear(Metric):
    """A metric without an embedding: the product of the first modality's vectors."""

    kind = "bilinear of a test"
    euclidean = False
    dims = DIMS

    def embed(self, features, task=None):
        raise AssertionError("has no embedding")

    def score(self, query, items, task=None):
        return items["color"] @ np.ravel(query["color"])

    def to_tensors(self):
        return {}, {}

    @classmethod
    def from_tensors(cls, tensors, description):
        return cls()


@settings(max_examples=examples(60), deadline=None)
@given(count=st.integers(2, 80), seed=st.integers(0, 10_000), k=st.integers(1, 100), away=st.sampled_from([0.0, 50.0]))
def test_the_nearest_are_those_of_brute_force(count, seed, k, away):
    table, learned = features(count, seed, away), metric(seed)
    hits = Gallery(learned, table).nearest(one(seed % count), k)
    distances = by_brute_force(learned, table, seed % count)
    assert len(hits.rows) == min(k, count - 1)
    assert np.allclose(hits.distances, np.sort(distances)[: len(hits.rows)], rtol=1e-3, atol=1e-5 * (1 + away) ** 2)
    assert np.allclose(hits.distances, distances[hits.rows], rtol=1e-3, atol=1e-5 * (1 + away) ** 2)
    assert np.all(np.diff(hits.distances) >= 0)


def test_equally_distant_items_come_in_the_order_of_their_rows():
    table = {name: np.repeat(matrix, 7, axis=0) for name, matrix in features(5).items()}
    hits = Gallery(metric(), table).nearest(one(15), 6)
    assert hits.rows.tolist() == [14, 16, 17, 18, 19, 20]
    assert hits.distances.tolist() == [0.0] * 6


def test_a_metric_that_is_zero_answers_in_the_order_of_the_rows():
    dead = ProjectionMetric({"color": 0.5, "text": 0.5}, {n: np.zeros((2, d)) for n, d in DIMS.items()})
    assert Gallery(dead, features(50)).nearest(one(1), 3).rows.tolist() == [0, 2, 3]


def test_several_items_ask_for_what_is_close_to_their_mean_and_are_no_answers():
    table = features(40)
    gallery = Gallery(metric(), table)
    hits = gallery.nearest(Query(np.array([3, 8, 9])), 40)
    mean = {name: matrix[[3, 8, 9]].mean(axis=0, keepdims=True) for name, matrix in table.items()}
    by_vectors = gallery.nearest(Query(np.empty(0, np.int64), mean), 40)
    assert sorted(hits.rows) == sorted(set(range(40)) - {3, 8, 9})
    assert hits.rows.tolist() == [row for row in by_vectors.rows.tolist() if row not in (3, 8, 9)]


def test_a_gallery_of_nothing_but_the_query_answers_nothing():
    assert len(Gallery(metric(), features(1)).nearest(one(0), 5).rows) == 0


def test_a_metric_that_overflows_is_refused_naming_the_item():
    huge = ProjectionMetric(
        {"color": 0.5, "text": 0.5}, {n: np.full((2, d), 1e30, np.float32) for n, d in DIMS.items()}
    )
    with pytest.raises(CorruptError, match="item 0"):
        Gallery(huge, features(3))


def test_a_metric_without_embedding_ranks_by_its_score():
    table = features(30)
    hits = ScoredGallery(Bilinear(), table).nearest(one(4), 5)
    scores = table["color"] @ table["color"][4]
    scores[4] = -np.inf
    assert hits.rows.tolist() == np.argsort(-scores, kind="stable")[:5].tolist()
    assert np.allclose(hits.distances, -scores[hits.rows])


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10_000), change=st.sampled_from([0.0, 1e-5, 1e-3, 1e-2, 0.3]), k=st.integers(1, 30))
def test_over_a_bridge_the_nearest_are_those_of_the_new_metric(seed, change, k):
    table, old = features(200, seed), metric(seed)
    new = metric(seed + 1, old, change)
    bridge = Bridge(Gallery(old, table), old, new, table, Spread(table))
    hits = bridge.nearest(one(seed % 200), k)
    distances = by_brute_force(new, table, seed % 200)
    assert hits is not None
    assert np.allclose(hits.distances, np.sort(distances)[:k], rtol=1e-4, atol=1e-5)
    assert np.allclose(hits.distances, distances[hits.rows], rtol=1e-4, atol=1e-5)


def test_a_bridge_reads_few_items_after_a_small_change(monkeypatch):
    table, old = features(5000), metric()
    bridge = Bridge(Gallery(old, table), old, metric(1, old, 1e-4), table, Spread(table))
    monkeypatch.setattr("workers.node.bridge.REFINED", 0)
    monkeypatch.setattr("workers.node.bridge.SHARE", 0.01)
    assert bridge.nearest(one(7), 10) is not None


def test_a_bridge_gives_up_where_too_many_items_could_be_among_the_nearest(monkeypatch):
    table, old = features(5000), metric()
    bridge = Bridge(Gallery(old, table), old, metric(1, old, 3.0), table, Spread(table))
    assert bridge.nearest(one(7), 10) is None


@pytest.mark.parametrize(("asked", "k", "found"), [([0, 1, 2], 5, []), ([0, 2], 5, [1])])
def test_over_a_bridge_the_query_items_are_no_answers(asked, k, found):
    table, old = features(3), metric()
    bridge = Bridge(Gallery(old, table), old, metric(1, old, 1e-3), table, Spread(table))
    assert bridge.nearest(Query(np.array(asked)), k).rows.tolist() == found


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
