"""What DCA makes of pairs that people call similar or not, and of items that are compared with themselves."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

from omdml import DCA, merge, start_from_pairs
from omdml.comparisons import triplets
from omdml.errors import FeedbackError, ParameterError
from omdml.evaluate import mean_average_precision
from omdml.feedback import Pair
from omdml.letter_reasons import REASONS
from tests.support.learning.dca import learner, with_pairs, world


def alternating_pairs(rows):
    """A pair of each triplet, in turn the near one and the far one, and which of them are near."""
    similar = np.arange(len(rows)) % 2 == 0
    return np.stack([rows[:, 0], np.where(similar, rows[:, 1], rows[:, 2])], axis=1), similar


def mean_precision(model, features, labels):
    return mean_average_precision(model.metric.embed(features), labels, np.arange(100))


@pytest.mark.parametrize("memory", [0, 50])
def test_pairs_are_triplets_that_name_an_item_beside_itself(memory):
    features, rows, _, _ = world(1, events=300)
    pairs, similar = alternating_pairs(rows)
    left, other = pairs.T
    spelled_out = np.stack([left, np.where(similar, other, left), np.where(similar, left, other)], axis=1)
    by_pairs, by_triplets, in_batches = (learner(features, memory=memory) for _ in range(3))
    by_pairs.learn_many(pairs, features, similar=similar)
    by_triplets.learn_many(spelled_out, features)
    for number in range(0, 300, 70):
        in_batches.learn_many(pairs[number : number + 70], features, similar=similar[number : number + 70])
    assert by_pairs.to_bytes() == by_triplets.to_bytes() == in_batches.to_bytes()


def test_similar_pairs_alone_are_what_a_start_from_pairs_knows():
    features, rows, _, _ = world(2, events=200)
    model = learner(features, dtype="float64")
    model.learn_many(rows[:, :2], features, similar=True)
    started = start_from_pairs(rows[:, :2], features, dtype="float64")
    for name in ("near", "far", "middle", "centre", "sums", "seen"):
        ours, theirs = (getattr(entry._engine.moments(), name) for entry in (model, started))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert not model._engine.moments().far.any()


@pytest.mark.parametrize("shares", [(0, 1, 0), (0, 0.5, 0.5)], ids=["similar ones alone", "both kinds"])
def test_a_few_pairs_beat_plain_features_and_wrong_ones_hardly_matter(shares):
    features, rows, labels, draw = world(5, dims=(8, 40), items=400, events=3000, classes=8)
    swapped = np.where(draw.random(len(rows))[:, None] < 0.2, rows[:, [0, 2, 1]], rows)
    few, many, noisy = (learner(features) for _ in range(3))
    few.start(features)
    plain = mean_precision(few, features, labels)
    few.learn_many(with_pairs(rows, shares, np.random.default_rng(0))[:200], features)
    many.learn_many(with_pairs(rows, shares, np.random.default_rng(0)), features)
    noisy.learn_many(with_pairs(swapped, shares, np.random.default_rng(0)), features)
    assert mean_precision(few, features, labels) > plain + 0.1
    assert mean_precision(many, features, labels) > mean_precision(few, features, labels)
    assert mean_precision(noisy, features, labels) > mean_precision(many, features, labels) - 0.05


def test_pairs_have_no_score_no_mistake_and_tell_hedge_nothing():
    features, rows, _, _ = world(3, events=100)
    model = learner(features)
    pairs, similar = alternating_pairs(rows)
    outcome = model.learn_many(pairs, features, similar=similar)
    assert (outcome.scores == 0).all()
    assert (model.version, model.updates, model.mistakes) == (100, 100, 0)
    assert model.hedge_loss == 0
    assert model.learn_many(rows, features).scores.any()
    assert 0 < model.hedge_loss <= model.hedge_loss_bound < math.inf


def test_dissimilar_pairs_alone_leave_plain_features_until_similar_ones_come():
    features, rows, labels, _ = world(4, dims=(8, 40), items=400, events=2000, classes=8)
    model = learner(features)
    model.start(features)
    plain = mean_precision(model, features, labels)
    model.learn_many(rows[:, [0, 2]], features, similar=False)
    assert model.shares == {"plain": 1.0}
    assert DCA.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
    model.learn_many(rows[:300, :2], features, similar=True)
    assert mean_precision(model, features, labels) > plain + 0.1


def test_dissimilar_pairs_do_not_make_similar_ones_fade():
    features, rows, _, _ = world(11, events=400)
    model = learner(features, memory=20, dtype="float64")
    model.learn_many(rows[:, :2], features, similar=True)
    before = model._engine.moments()
    model.learn_many(rows[:, [0, 2]], features, similar=False)
    after = model._engine.moments()
    for name in ("near", "middle", "centre"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), rtol=1e-9, atol=1e-9)
    assert after.sums[:2].tolist() == pytest.approx(before.sums[:2].tolist())
    assert before.sums[2] == 0 < after.sums[2] < 20.001
    assert "items" in model.shares


def test_more_far_pairs_than_near_ones_weigh_no_more_than_their_covariance():
    features, rows, _, _ = world(6, events=400)
    once, twice = (learner(features, dtype="float64") for _ in range(2))
    for model, far in ((once, 1), (twice, 3)):
        model.learn_many(rows[:, :2], features, similar=True)
        for _ in range(far):
            model.learn_many(rows[:, [0, 2]], features, similar=False)
    ours, theirs = (model.metric.experts["far"] for model in (once, twice))
    np.testing.assert_allclose(ours.T @ ours, theirs.T @ theirs, rtol=1e-6, atol=1e-9)


def test_a_comparison_of_an_item_with_itself_counts_and_changes_nothing():
    features, rows, _, _ = world(7)
    model = learner(features, dtype="float64")
    model.learn_many(rows, features)
    before, embedded = copy.deepcopy(model._engine.moments()), model.metric.embed(features)
    assert model.learn_many([[5, 5, 5], [5, 5, 5]], features).scores.tolist() == [0.0, 0.0]
    assert model.version == len(rows) + 2
    for ours, theirs in zip(model._engine.moments(), before, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(model.metric.embed(features), embedded, atol=1e-5)


def test_a_bad_pair_leaves_the_state_as_it_was():
    features, rows, _, _ = world(8)
    model = learner(features)
    model.learn_many(rows, features)
    before, pairs = model.to_bytes(), rows[:40, :2].copy()
    broken = {name: x.copy() for name, x in features.items()}
    broken["m1"][pairs[30, 1], 0] = np.nan
    with pytest.raises(FeedbackError, match="row") as caught:
        model.learn_many(pairs, broken, similar=True)
    assert (pairs[caught.value.row] == pairs[30, 1]).any()
    assert model.to_bytes() == before


@pytest.mark.parametrize(
    ("rows", "similar", "says"),
    [([[0, 1, 2]], True, r"integers \(T, 2\)"), ([[0, 1]], None, r"integers \(T, 3\)"),
     ([[0, 1]], [True, False], r"or \(1,\) of them"), ([[0, 1]], 1, "True or False"),
     ([[0, 80]], True, "rows 0 to 79")],
)  # fmt: skip
def test_pairs_that_are_none_are_refused(rows, similar, says):
    features, _, _, _ = world(9)
    with pytest.raises(FeedbackError, match=says):
        learner(features).learn_many(rows, features, similar=similar)


def test_a_task_is_refused_because_there_is_one_sense_of_similar():
    features, _, _, _ = world(9)
    with pytest.raises(ParameterError, match="learn_many"):
        learner(features).learn_many([[0, 1]], features, similar=True, task="use")
    with pytest.raises(FeedbackError, match="leave the task out") as caught:
        triplets(Pair(model="shop", left="a", right="b", similar=True, task="use"), DCA.accepts)
    assert caught.value.reason == "unknown_task"
    assert caught.value.reason in REASONS


def test_merged_learners_of_pairs_know_what_both_learned():
    features, rows, _, _ = world(10, events=400)
    pairs, similar = alternating_pairs(rows)
    first, second, both = (learner(features, dtype="float64") for _ in range(3))
    for model in (first, second, both):
        model.start(features)
    first.learn_many(pairs[:150], features, similar=similar[:150])
    second.learn_many(pairs[150:], features, similar=similar[150:])
    both.learn_many(pairs, features, similar=similar)
    merged = merge(first, second)
    for name in ("near", "far", "sums"):
        ours, theirs = (getattr(entry._engine.moments(), name) for entry in (merged, both))
        np.testing.assert_allclose(np.triu(ours), np.triu(theirs), rtol=1e-9, atol=1e-12)
