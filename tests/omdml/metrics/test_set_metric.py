"""What SetNet serves: scores of sets, greedy matching, whitening, and its way through bytes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import SetNet
from omdml.errors import CorruptError, FeedbackError
from omdml.kernels.retrieval.matching import greedy_matches
from omdml.metrics import SetMetric
from omdml.snapshot import Snapshot
from tests.naive import sets as naive
from tests.support.deep import examples
from tests.support.learning.judged import DIMS, arrays, features, judgements

GOLDEN = Path(__file__).parents[2] / "golden"


def test_greedy_matching_gives_the_golden_totals():
    with np.load(GOLDEN / "greedy_match.npz") as loaded:
        for scores, total in zip(loaded["scores"], loaded["total"], strict=True):
            assert greedy_matches(scores, np.array([0, scores.shape[1]]))[0] == pytest.approx(total, rel=1e-9)


@settings(max_examples=examples(20), deadline=None)
@given(
    seed=st.integers(0, 10_000), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5), queries=st.integers(1, 4)
)
def test_greedy_matching_takes_pairs_in_falling_order_each_side_once(seed, sizes, queries):
    scores = np.random.default_rng(seed).normal(0, 1, (queries, sum(sizes)))
    begins = np.concatenate([[0], np.cumsum(sizes)])
    expected = [naive.greedy(scores[:, begin:end]) for begin, end in itertools.pairwise(begins)]
    np.testing.assert_allclose(greedy_matches(scores, begins), expected)


def sent(model):
    """The metric, after its way through bytes."""
    snapshot = Snapshot(
        model="m", learner="setnet", version=1, generation="g", event_time=None, oldest_event_time=None, progress={},
        metric=model.metric,
    )  # fmt: skip
    return Snapshot.from_bytes(snapshot.to_bytes()).metric


@pytest.mark.parametrize("whiten", [True, False])
def test_a_snapshot_scores_sets_as_the_learner_judges_them(whiten):
    items, (*earlier, last) = features(), judgements(40)
    model = SetNet(dims=DIMS, clusters=3, rank=4, dtype="float64", whiten=whiten)
    model.learn_many(earlier, items)
    metric = sent(model)
    asked, relevant, irrelevant = (metric.embed_sets(items, rows) for rows in (last.query[:, None], *last[1:]))
    np.testing.assert_allclose(np.linalg.norm(relevant, axis=1), 1)
    np.testing.assert_allclose(metric.score_sets(asked, relevant), metric.similarities(asked, relevant).sum(axis=0))
    if not whiten:
        expected = metric.similarities(asked, irrelevant).mean() - metric.similarities(asked, relevant).mean()
        assert model.learn_one(last, items).scores[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([[0], []], "set 1 has no elements"),
        ([[0], [1, 40]], "set 1 names row 40, the features have rows 0 to 39"),
        ([[0], [-1]], "set 1 names row -1"),
        ([[0], [0.5]], "set 1 is float64"),
        ([0, 1], r"set 0 is int64 of shape \(\), expected row numbers"),
        (5, "sets are 5, expected a sequence"),
    ],
)
def test_sets_that_no_vector_can_be_made_of_are_refused(sets, message):
    with pytest.raises(FeedbackError, match=message):
        SetMetric(DIMS, arrays()).embed_sets(features(items=40), sets)


def test_no_sets_have_no_vectors():
    metric = SetMetric(DIMS, arrays())
    assert metric.embed_sets(features(), []).shape == (0, metric.size)


def test_whitened_vectors_of_judged_sets_are_uncorrelated():
    items, judged = features(items=400), judgements(3000, items=400)
    model = SetNet(dims=DIMS, clusters=3, rank=4, dtype="float64", whiten=True, eta=1e-12, step="ogd")
    model.start(items)
    plain = SetMetric(model.dims, model.matrices)
    assert sent(model).whitening is not None
    model.learn_many(judged, items)
    vectors = plain.embed_sets(items, [rows for entry in judged for rows in (*entry.relevant, *entry.irrelevant)])
    whitening = model.metric.whitening
    white = (vectors - whitening.mean) @ whitening.matrix.T
    correlation = np.corrcoef(white.T)
    np.testing.assert_allclose(correlation, np.eye(4), atol=0.02)
    np.testing.assert_allclose(white.var(axis=0) / white.var(), 1, atol=0.05)


def test_a_metric_in_damaged_tensors_is_refused():
    tensors, described = SetMetric(DIMS, arrays()).to_tensors()
    for damage in (
        {"P": np.eye(3)},
        {"scale": np.ones(3)},
        {"whitening/mean": np.ones(2), "whitening/matrix": np.eye(2)},
    ):
        with pytest.raises(ValueError, match="shape"):
            SetMetric.from_tensors({**tensors, **damage}, described)
    with pytest.raises(KeyError):
        SetMetric.from_tensors({"A": tensors["A"]}, described)


def resumed(model, tensors):
    """What from_bytes does with a state."""
    model._resumed(tensors)


def test_a_state_of_other_sizes_is_corrupt():
    model = SetNet(dims=DIMS, clusters=3, rank=4)
    model.start(features())
    tensors = model._engine.to_tensors()
    for damage in ({"sizes": np.array([3, 5])}, {"sizes": np.zeros(3)}, {"theta": np.zeros(5)}):
        with pytest.raises(CorruptError):
            resumed(model, {**tensors, **damage})


def test_matching_adds_up_cosines_and_takes_each_element_once():
    items, metric = features(), SetMetric(DIMS, arrays())
    vectors = metric.embed(items)
    query = vectors[[0, 1]]
    cosines = query @ vectors[5:9].T
    alone = metric.match(query[:1], vectors[5:9], np.ones(4, np.int64))
    np.testing.assert_allclose(alone, cosines[0])
    np.testing.assert_allclose(metric.match(query, vectors[5:9], np.array([1, 3])), [
        naive.greedy(cosines[:, :1]), naive.greedy(cosines[:, 1:])
    ])  # fmt: skip


def test_matching_orders_sets_by_their_elements_even_if_scores_saturate():
    items, metric = features(), SetMetric(DIMS, {**arrays(), "b": np.array(60.0)})
    vectors = metric.embed(items)
    cosines = vectors[:1] @ vectors[1:9].T
    assert np.array_equal(
        np.argsort(metric.match(vectors[:1], vectors[1:9], np.ones(8, np.int64))), cosines[0].argsort()
    )
