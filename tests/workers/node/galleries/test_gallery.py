"""Nearest neighbours: what brute force says, however they are found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.errors import CorruptError
from omdml.metrics import ProjectionMetric
from omdml.workers.node.galleries.gallery import Gallery, Query, ScoredGallery
from tests.support.catalogues.galleries import DIMS, Bilinear, by_brute_force, features, metric, query_of_row
from tests.support.deep import examples


@settings(max_examples=examples(60), deadline=None)
@given(count=st.integers(2, 80), seed=st.integers(0, 10_000), k=st.integers(1, 100), away=st.sampled_from([0.0, 50.0]))
def test_the_nearest_are_those_of_brute_force(count, seed, k, away):
    table, learned = features(count, seed, away), metric(seed)
    hits = Gallery(learned, table).nearest(query_of_row(seed % count), k)
    distances = by_brute_force(learned, table, seed % count)
    assert len(hits.rows) == min(k, count - 1)
    assert np.allclose(hits.distances, np.sort(distances)[: len(hits.rows)], rtol=1e-3, atol=1e-5 * (1 + away) ** 2)
    assert np.allclose(hits.distances, distances[hits.rows], rtol=1e-3, atol=1e-5 * (1 + away) ** 2)
    assert np.all(np.diff(hits.distances) >= 0)


def test_equally_distant_items_come_in_the_order_of_their_rows():
    table = {name: np.repeat(matrix, 7, axis=0) for name, matrix in features(5).items()}
    hits = Gallery(metric(), table).nearest(query_of_row(15), 6)
    assert hits.rows.tolist() == [14, 16, 17, 18, 19, 20]
    assert hits.distances.tolist() == [0.0] * 6


def test_a_metric_that_is_zero_answers_in_the_order_of_the_rows():
    dead = ProjectionMetric({"color": 0.5, "text": 0.5}, {n: np.zeros((2, d)) for n, d in DIMS.items()})
    assert Gallery(dead, features(50)).nearest(query_of_row(1), 3).rows.tolist() == [0, 2, 3]


def test_several_items_ask_for_what_is_close_to_their_mean_and_are_no_answers():
    table = features(40)
    gallery = Gallery(metric(), table)
    hits = gallery.nearest(Query(np.array([3, 8, 9])), 40)
    mean = {name: matrix[[3, 8, 9]].mean(axis=0, keepdims=True) for name, matrix in table.items()}
    by_vectors = gallery.nearest(Query(np.empty(0, np.int64), mean), 40)
    assert sorted(hits.rows) == sorted(set(range(40)) - {3, 8, 9})
    assert hits.rows.tolist() == [row for row in by_vectors.rows.tolist() if row not in (3, 8, 9)]


def test_a_gallery_of_nothing_but_the_query_answers_nothing():
    assert len(Gallery(metric(), features(1)).nearest(query_of_row(0), 5).rows) == 0


@pytest.mark.parametrize("size", [1e30, 1e38, np.nan], ids=["its square overflows", "infinite", "no number"])
@pytest.mark.parametrize("row", [0, 17])
def test_the_item_that_diverges_is_named_and_no_other(size, row):
    table = features(30)
    table["color"][row] = size
    steep = ProjectionMetric(
        {"color": 1.0, "text": 1.0}, {n: np.full((2, d), 1e3, np.float32) for n, d in DIMS.items()}
    )
    with pytest.raises(CorruptError, match=f"embeds item {row} to"):
        Gallery(steep, table)


def test_an_added_item_that_diverges_is_named():
    table, more = features(30), features(40)
    more["color"][35] = np.inf
    with pytest.raises(CorruptError, match="embeds item 35 to"):
        Gallery(metric(), table).grown(more)


def test_a_metric_without_embedding_ranks_by_its_score():
    table = features(30)
    hits = ScoredGallery(Bilinear(), table).nearest(query_of_row(4), 5)
    scores = table["color"] @ table["color"][4]
    scores[4] = -np.inf
    assert hits.rows.tolist() == np.argsort(-scores, kind="stable")[:5].tolist()
    assert np.allclose(hits.distances, -scores[hits.rows])
