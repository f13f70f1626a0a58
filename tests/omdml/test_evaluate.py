"""Measures against slow twins, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from omdml.errors import MeasureError
from omdml.evaluate import (
    Prequential,
    average_precision,
    cumulative_match,
    mean_average_precision,
    ndcg,
    one_call_at,
    precision_at,
    rank_by_distance,
    rank_by_score,
)
from tests.naive import projections

GOLDEN = Path(__file__).parents[1] / "golden"


@given(arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 30))))
def test_average_precision_equals_its_slow_twin(relevance):
    np.testing.assert_allclose(average_precision(relevance), [projections.average_precision(row) for row in relevance])


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


@pytest.mark.parametrize("k", [0, -3])
@pytest.mark.parametrize("measure", [precision_at, one_call_at, cumulative_match])
def test_no_measure_looks_at_less_than_one_place(measure, k):
    with pytest.raises(MeasureError, match=f"k={k}: expected a number of places of at least 1"):
        measure(np.eye(3), np.zeros(3), [0], k)
    with pytest.raises(MeasureError, match=f"k={k}"):
        ndcg([1, 0], k)


@pytest.mark.parametrize("measure", [mean_average_precision, lambda *given: precision_at(*given, 1),
                                     lambda *given: one_call_at(*given, 1)])  # fmt: skip
def test_without_a_query_there_is_nothing_to_measure(measure):
    with pytest.raises(MeasureError, match="no query"):
        measure(np.eye(3), np.zeros(3), [])


@pytest.mark.parametrize("grade", [2000, -1, np.nan, np.inf])
def test_grades_whose_gain_is_no_finite_number_are_refused(grade):
    with pytest.raises(MeasureError, match=f"grade of relevance {grade:g}: expected 0 to 1000"):
        ndcg([grade, 0, 1], 3)
    assert ndcg([1000, 0, 1], 3) == 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_refused(value):
    vectors = np.ones((5, 2))
    vectors[2, 1] = value
    with pytest.raises(MeasureError, match="not finite"):
        mean_average_precision(vectors, np.zeros(5), [0])


def test_gains_and_precisions_of_ranked_lists_are_those_of_the_golden_file():
    with np.load(GOLDEN / "ranking.npz") as golden:
        relevance = golden["relevance"]
        np.testing.assert_allclose(ndcg(relevance, 10), golden["ndcg10"], rtol=1e-12)
        np.testing.assert_allclose(average_precision(relevance > 2), golden["ap"], rtol=1e-12)


def test_the_best_order_has_all_the_gain_and_a_list_of_zeros_none():
    assert ndcg([[3, 2, 0], [0, 0, 0]], k=5).tolist() == [1.0, 0.0]
    for grades in ([1.0, np.nan], [1.0, -1.0], [np.inf]):
        with pytest.raises(MeasureError, match="grade of relevance"):
            ndcg(grades, 2)


def test_matches_accumulate_over_the_ranks():
    vectors, labels = np.array([[0.0], [1.0], [2.1], [3.3], [9.0]]), np.array([0, 1, 0, 1, 0])
    queries = np.arange(5)
    curve = cumulative_match(vectors, labels, queries, 3)
    # At rank 1 the neighbour is always of the other label.
    assert curve.tolist() == [0.0, 0.6, 1.0]
    assert one_call_at(vectors, labels, queries, 2) == curve[1]
    with pytest.raises(MeasureError, match="k=0"):
        one_call_at(vectors, labels, queries, 0)


def test_items_are_ranked_by_score_and_scores_that_are_not_finite_are_refused():
    assert rank_by_score([[0.1, 3, 3, -1]]).tolist() == [[1, 2, 0, 3]]
    with pytest.raises(MeasureError, match="scores hold values that are not finite"):
        rank_by_score([1.0, np.nan])


@pytest.mark.parametrize("measure", [one_call_at, cumulative_match, precision_at])
def test_no_measure_takes_embeddings_that_are_not_finite(measure):
    with pytest.raises(MeasureError, match="not finite"):
        measure(np.full((5, 2), np.nan), np.zeros(5), [0], 2)


@given(st.lists(st.integers(0, 250), max_size=12), st.integers(0, 100))
def test_the_prequential_rate_is_the_same_in_any_chunking(sizes, seed):
    scores = np.random.default_rng(seed).normal(0, 1, sum(sizes))
    whole, parts, start = Prequential(), Prequential(), 0
    whole.add(scores)
    for size in sizes:
        parts.add(scores[start : start + size])
        start += size
    assert whole == parts
    assert whole.mistake_rate == pytest.approx((scores > 0).mean() if len(scores) else 0)
    last = scores[-(1000 + (len(scores) - 1) % 100 + 1) :] if len(scores) else scores
    assert whole.recent_mistake_rate == pytest.approx((last > 0).mean() if len(last) else 0)


@pytest.mark.parametrize("measure", [mean_average_precision, lambda *given: precision_at(*given, 1),
                                     lambda *given: one_call_at(*given, 1)])  # fmt: skip
@pytest.mark.parametrize(
    ("given", "match"),
    [
        ((np.eye(3), np.zeros(3), [3]), r"queries=\[3\]: expected row numbers \(Q,\) from 0 to 2"),
        ((np.eye(3), np.zeros(3), [-1]), "queries="),
        ((np.eye(3), np.zeros(3), [True, False, True]), "queries="),
        ((np.eye(3), np.zeros(3), [[0, 1]]), "queries="),
        ((np.eye(3), np.zeros(3), 1), "queries=1: expected an array"),
        ((np.eye(3), np.zeros(2), [0]), r"labels of shape \(2,\), expected \(3,\)"),
        ((np.eye(3), np.zeros(6), [0]), "labels of shape"),
        ((np.ones(3), np.zeros(3), [0]), r"embeddings of shape \(3,\)"),
        ((np.eye(1), np.zeros(1), [0]), "n at least 2"),
    ],
    ids=str,
)
def test_what_does_not_fit_together_is_not_measured(measure, given, match):
    with pytest.raises(MeasureError, match=match):
        measure(*given)


@pytest.mark.parametrize("values", [3, [[1], [1, 2]]], ids=str)
@pytest.mark.parametrize("measure", [average_precision, lambda lists: ndcg(lists, 1), rank_by_score])
def test_what_is_no_ranked_list_is_not_measured(measure, values):
    with pytest.raises(MeasureError, match="expected an array"):
        measure(values)


@pytest.mark.parametrize("k", [2.5, "ten", None])
def test_places_that_are_no_whole_number_are_refused(k):
    with pytest.raises(MeasureError, match="k="):
        precision_at(np.eye(3), np.zeros(3), [0], k)
