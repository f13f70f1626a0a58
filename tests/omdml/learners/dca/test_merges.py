"""Learners of DCA that are merged, and those that start from pairs."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from omdml import DCA, LOMDML, merge, start_from_pairs
from omdml.errors import FeedbackError, ParameterError
from tests.support.learning.dca import count_margins, learner, served, world


def test_the_bound_of_many_merged_learners_is_the_sum_of_theirs():
    features, _, _, _ = world(26)
    model = learner(features)
    model.start(features)
    part = copy.deepcopy(model)
    count_margins(part, np.array([[-1.0], [1.0]]))
    for _ in range(9):
        model = merge(model, part)
    assert model._engine.state.hedge[:2].tolist() == [0.0, 9.0]
    assert 4.5 == model.hedge_loss <= model.hedge_loss_bound


def test_queries_of_pairs_and_of_merged_learners_are_remembered():
    features, rows, _, _ = world(29, events=300)
    first, second, undivided = (learner(features, dtype="float64") for _ in range(3))
    for model in (first, second, undivided):
        model.start(features)
    for parted, count in ((31, 80), (100, 230), (90, 91)):
        earlier, later, both = (copy.deepcopy(model) for model in (first, second, undivided))
        earlier.learn_many(rows[:parted], features)
        later.learn_many(rows[parted:count], features)
        both.learn_many(rows[:count], features)
        pairs = start_from_pairs(rows[:count, :2], features, dtype="float64")
        for model in (merge(earlier, later), pairs):
            np.testing.assert_array_equal(model._engine.state.asked, both._engine.state.asked)


def test_models_of_one_start_share_what_they_know_of_the_catalogue():
    features, rows, _, _ = world(17)
    first = learner(features)
    first.start(features)
    second = copy.deepcopy(first)
    assert second._engine.state.basis is first._engine.state.basis
    assert second._engine.state.near is not first._engine.state.near
    before = second.to_bytes()
    first.learn_many(rows, features)
    assert second.to_bytes() == before
    second.learn_many(rows, features)
    assert second.to_bytes() == first.to_bytes()


@pytest.mark.parametrize("memory", [0, 200])
def test_merged_learners_know_what_both_learned(memory):
    features, rows, _, _ = world(7, dims=(9, 30), events=500)
    first, second, both = (learner(features, dtype="float64", memory=memory) for _ in range(3))
    for model in (first, second, both):
        model.start(features)
    # Rankings of four triplets; the first learner ends in the middle of a block.
    first.learn_many(rows[:211], features, weight=0.5)
    second.learn_many(rows[211:], features)
    before = first.to_bytes(), second.to_bytes()
    merged = merge(first, second)
    assert (first.to_bytes(), second.to_bytes()) == before
    assert merged.version == 500
    if not memory:
        both.learn_many(rows, features, weight=np.where(np.arange(500) < 211, 0.5, 1.0))
        np.testing.assert_allclose(merged._engine.moments().sums, both._engine.moments().sums)
        np.testing.assert_allclose(merged.matrices["near"], both.matrices["near"], rtol=1e-12, atol=1e-12)
    assert merged.to_bytes() == merge(first, second).to_bytes()
    again = DCA.from_bytes(merged.to_bytes())
    for model in (merged, again):
        model.learn_many(rows[:90], features)
    assert merged.to_bytes() == again.to_bytes()


@pytest.mark.parametrize("memory", [0, 200])
@pytest.mark.parametrize("count", [1, 32, 33, 64, 500])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_start_from_pairs_is_what_learning_them_one_by_one_leads_to(count, memory, dtype):
    features, rows, _, _ = world(18, dims=(9, 30), events=500)
    features = {name: x.astype(dtype) for name, x in features.items()}
    learned = learner(features, dtype=dtype, memory=memory)
    for row in rows[:count]:
        learned.learn_one(row, features)
    started = start_from_pairs(rows[:count, :2], features, dtype=dtype, memory=memory)
    exact = {"rtol": 1e-5, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-10, "atol": 1e-12}
    assert (started.version, started.updates, started.mistakes) == (count, count, 0)
    np.testing.assert_allclose(started.matrices["near"], learned.matrices["near"], **exact)
    ours, theirs = started._engine.moments(), learned._engine.moments()
    for name in ("near", "middle", "centre", "seen"):
        expected = getattr(theirs, name)
        close = float(np.abs(expected).max()) * exact["rtol"]
        np.testing.assert_allclose(getattr(ours, name), expected, rtol=1e-10, atol=close)
    # no triplet says what is far
    assert ours.sums.tolist() == pytest.approx([*theirs.sums[:2], 0.0])
    assert not ours.far.any()
    assert started.shares.get("far") == started.shares.get("items")
    M = served(learned)["items"]
    np.testing.assert_allclose(served(started)["items"], M, atol=1e-3 if dtype == "float32" else 1e-7)
    assert DCA.from_bytes(started.to_bytes()).to_bytes() == started.to_bytes()


def test_parts_of_a_log_add_up_to_the_whole_and_learn_on():
    features, rows, _, _ = world(19, dims=(9, 30), events=500)
    parts = [start_from_pairs(part[:, :2], features, dtype="float64") for part in np.array_split(rows[:400], 3)]
    undivided = start_from_pairs(rows[:400, :2], features, dtype="float64")
    added = merge(merge(parts[0], parts[1]), parts[2])
    np.testing.assert_allclose(added.matrices["near"], undivided.matrices["near"], rtol=1e-12, atol=1e-12)
    for model in (added, undivided):
        model.learn_many(rows[400:], features)
    assert added.version == undivided.version == 500
    np.testing.assert_allclose(added.matrices["near"], undivided.matrices["near"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("pairs", "says"),
    [(np.zeros((0, 2), int), "no pair"), ([[0, 80]], "rows 0 to 79"), ([[0, 1, 2]], r"integers \(T, 2\)"),
     ([[0, 1], [2, 3]], "item in row 3 of modality 'm0'")],
)  # fmt: skip
def test_pairs_that_say_nothing_are_refused(pairs, says):
    features, _, _, _ = world(20)
    start = {"mean": np.zeros(12), "basis": np.eye(5, 12), "deviations": np.arange(5, 0, -1.0)}
    features["m0"][3, 1] = np.nan
    with pytest.raises(FeedbackError, match=says):
        start_from_pairs(pairs, features, init=start)


def test_learners_that_begin_from_one_start_given_as_arrays_are_merged():
    features, rows, _, _ = world(22)
    first = learner(features)
    first.start(features)
    state = first._engine.state
    start = {"mean": state.mean, "basis": state.basis, "deviations": state.deviations}
    left, right = (learner(features, init=start) for _ in range(2))
    left.learn_many(rows[:50], features)
    right.learn_many(rows[50:], features)
    assert merge(left, DCA.from_bytes(right.to_bytes())).version == len(rows)
    swapped = DCA(dims=dict(reversed(left.dims.items())), init=start)
    with pytest.raises(ParameterError, match="merge"):
        merge(left, swapped)
    with pytest.raises(ParameterError, match="merge"):
        merge(left, LOMDML(dims={"a": 3}))


def test_learners_of_other_parameters_or_other_items_are_not_merged():
    features, rows, _, _ = world(8)
    other = {name: x + 1 for name, x in features.items()}
    learned = learner(features)
    learned.learn_many(rows, features)
    for model, table in ((learner(features, memory=9), features), (learner(features), other)):
        model.learn_many(rows, table)
        with pytest.raises(ParameterError, match="merge"):
            merge(learned, model)
