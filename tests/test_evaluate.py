"""Measures against slow twins, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from omdml.errors import MeasureError
from omdml.evaluate import (
    Prequential,
    average_precision,
    mean_average_precision,
    precision_at,
    rank_by_distance,
)
from tests import naive


@given(arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 30))))
def test_average_precision_equals_its_slow_twin(relevance):
    np.testing.assert_allclose(average_precision(relevance), [naive.average_precision(row) for row in relevance])


def test_ranks_are_those_of_the_distances_without_the_query():
    draw = np.random.default_rng(0)
    vectors, queries = draw.normal(0, 1, (60, 4)), np.array([3, 59, 0])
    for query, ranked in zip(queries, rank_by_distance(vectors, queries), strict=True):
        distances = ((vectors - vectors[query]) ** 2).sum(axis=1)
        assert query not in ranked
        assert (np.diff(distances[ranked]) >= -1e-12).all()
        assert len(ranked) == 59


def test_perfect_clusters_score_one():
    labels = np.repeat([0, 1, 2], 5)
    vectors = np.eye(3)[labels] * 10
    assert mean_average_precision(vectors, labels, np.arange(15)) == 1.0
    assert precision_at(vectors, labels, np.arange(15), 4) == 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_refused(value):
    vectors = np.ones((5, 2))
    vectors[2, 1] = value
    with pytest.raises(MeasureError, match="not finite"):
        mean_average_precision(vectors, np.zeros(5), [0])


@given(st.lists(st.integers(0, 250), max_size=12), st.integers(0, 100))
def test_the_prequential_rate_is_the_same_in_any_chunking(sizes, seed):
    scores = np.random.default_rng(seed).normal(0, 1, sum(sizes))
    whole, parts, at = Prequential(), Prequential(), 0
    whole.add(scores)
    for size in sizes:
        parts.add(scores[at : at + size])
        at += size
    assert whole == parts
    assert whole.mistake_rate == pytest.approx((scores > 0).mean() if len(scores) else 0)
    last = scores[-(1000 + (len(scores) - 1) % 100 + 1) :] if len(scores) else scores
    assert whole.recent_mistake_rate == pytest.approx((last > 0).mean() if len(last) else 0)
