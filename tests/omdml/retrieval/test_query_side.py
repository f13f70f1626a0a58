"""The query side, against the metric itself."""

from __future__ import annotations

import numpy as np
import pytest

from omdml import DCA, LOMDML, OASIS
from omdml.errors import MeasureError
from omdml.metrics import CosineMetric, ProjectionMetric
from omdml.retrieval.query_side import query_vectors, reranked, shares_in_order, side_by_side
from tests.support.worlds import items, triplets


@pytest.fixture(scope="module")
def features():
    raw, _ = items()
    return {name: matrix.astype(np.float32) for name, matrix in raw.items()}


@pytest.fixture(params=[LOMDML, DCA], ids=["lomdml", "dca"])
def metric(request, features):
    learner = request.param({name: matrix.shape[1] for name, matrix in features.items()})
    learner.start(features)
    learner.learn_many(triplets(200), features)
    return learner.metric


def of(features, rows):
    return {name: matrix[rows] for name, matrix in features.items()}


def test_at_equal_learned_lengths_the_inner_product_has_the_learned_order(features):
    draw = np.random.default_rng(0)
    metric = ProjectionMetric({"shape": 0.7, "noise": 0.3}, {"shape": draw.normal(size=(4, 9)), "noise": np.eye(5)})
    origin = {name: np.zeros((1, matrix.shape[1])) for name, matrix in features.items()}
    lengths = np.linalg.norm(metric.embed(features), axis=1, keepdims=True)
    level = {name: matrix / lengths for name, matrix in features.items()}
    turned = query_vectors(metric, of(features, [7]), origin)
    order = np.argsort(-(side_by_side(metric, level) @ turned[0]), kind="stable")
    np.testing.assert_array_equal(order, reranked(metric, of(features, [7]), level, len(lengths)))


def test_the_learned_length_is_all_that_the_query_side_of_a_projection_lacks(features):
    learner = LOMDML({name: matrix.shape[1] for name, matrix in features.items()})
    learner.start(features)
    learner.learn_many(triplets(200), features)
    metric = learner.metric
    embedded = metric.embed(features).astype(np.float64)
    turned = query_vectors(metric, features, features).astype(np.float64)
    lengths = ((embedded - embedded.mean(axis=0)) ** 2).sum(axis=1)
    scores = 2 * turned @ side_by_side(metric, features).T - lengths
    distances = ((embedded[:, None] - embedded[None]) ** 2).sum(axis=2)
    # What is left is the same for all items.
    left = distances + scores
    np.testing.assert_allclose(left, left[:, :1].repeat(len(left), axis=1), atol=1e-4)


@pytest.fixture
def cosines(features):
    """One expert of cosines on both modalities, around the items' mean."""
    draw, items = np.random.default_rng(0), np.concatenate(list(features.values()), axis=1)
    dims = {name: matrix.shape[1] for name, matrix in features.items()}
    matrix = draw.normal(size=(5, items.shape[1]))
    return CosineMetric(dims, items.mean(axis=0).astype(np.float64), {"one": matrix}, {"one": 1.0})


def learned_lengths(metric, features):
    """Vectors less the mean, and how long the only expert makes them."""
    (matrix,) = metric.experts.values()
    centred = side_by_side(metric, features) - metric.mean
    return centred, np.linalg.norm(centred @ matrix.T, axis=1)


def test_the_learned_length_is_all_that_the_query_side_of_one_expert_lacks(cosines, features):
    centred, lengths = learned_lengths(cosines, features)
    for row in (3, 44):
        turned = query_vectors(cosines, of(features, [row]), features)[0].astype(np.float64)
        exact = np.asarray(cosines.score(of(features, [row]), features))
        # Minus the distance is twice the cosine, less 2. The query side has the cosine, times one number for all items.
        np.testing.assert_allclose(
            turned @ centred.T / lengths * np.sqrt((lengths**2).mean()), 1 + exact / 2, atol=1e-5
        )


def test_at_equal_learned_lengths_one_expert_has_the_learned_order(cosines, features):
    centred, lengths = learned_lengths(cosines, features)
    level = centred / lengths[:, None] + cosines.mean
    split = np.cumsum(list(cosines.dims.values()))[:-1]
    items = dict(zip(cosines.dims, np.split(level, split, axis=1), strict=True))
    turned = query_vectors(cosines, of(features, [7]), features)
    order = np.argsort(-(level @ turned[0]), kind="stable")
    np.testing.assert_array_equal(order[:40], reranked(cosines, of(features, [7]), items, 40))


def test_the_query_side_of_learned_cosines_orders_more_than_plain_distance_does(features):
    learner = DCA({name: matrix.shape[1] for name, matrix in features.items()})
    learner.start(features)
    learner.learn_many(triplets(200), features)
    shares = shares_in_order(learner.metric, held_out(features), features, features)
    assert shares.plain < shares.query_side <= shares.exact + 0.02


def test_candidates_are_ranked_as_the_metric_ranks_them(metric, features):
    candidates = np.array([5, 80, 3, 44, 61, 9])
    places = reranked(metric, of(features, [3]), of(features, candidates), 4)
    embedded = metric.embed(features).astype(np.float64)
    distances = ((embedded[candidates] - embedded[3]) ** 2).sum(axis=1)
    np.testing.assert_array_equal(places, np.argsort(distances, kind="stable")[:4])
    assert candidates[places[0]] == 3


def test_held_out_triplets_say_what_each_ranking_is_worth(metric, features):
    shares = shares_in_order(metric, held_out(features), features, features)
    assert shares.exact > shares.plain
    assert all(0 < share <= 1 for share in shares)


def held_out(features):
    _, labels = items()
    draw, rows = np.random.default_rng(9), []
    while len(rows) < 400:
        query, near, far = draw.integers(0, len(labels), 3)
        if labels[query] == labels[near] != labels[far] and query != near:
            rows.append((query, near, far))
    return rows


def test_a_metric_without_a_query_side_is_refused(features):
    oasis = OASIS({name: matrix.shape[1] for name, matrix in features.items()})
    oasis.start(features)
    with pytest.raises(MeasureError, match="has no query side"):
        query_vectors(oasis.metric, features, features)
