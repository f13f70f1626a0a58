"""DCA that begins with another model's metric: its slow twin, the same bytes in any chunking, what it refuses."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import DCA, LOMDML, merge
from omdml.builders import from_labels
from omdml.engines.second_order.near_last import AllPairs
from omdml.engines.second_order.parent import fitted_rows
from omdml.errors import CorruptError, FeedbackError, NotStarted, ParameterError
from omdml.evaluate import mean_average_precision
from omdml.kernels.second_order.experts import compare
from omdml.metrics.cosine import CosineMetric, projected
from omdml.snapshot import metric_from_bytes, metric_to_bytes, pack, unpack
from tests.formats.samples import HERE
from tests.naive import dca as naive
from tests.support.deep import examples
from tests.support.learning.dca import assert_serves, centred, in_chunks, learner, matrices, with_pairs, world


def begun_from(features, known, seed=100, **options):
    """A learner at its start, and its parent, which has learned ``known`` triplets of other labels."""
    parent = learner(features, **options)
    parent.start(features)
    if known:
        _, rows, _, _ = world(seed, [x.shape[1] for x in features.values()], events=known, classes=3)
        parent.learn_many(rows % len(features["m0"]), features)
    child = learner(features, **options)
    child.start(features)
    # as a worker gets it: by way of a snapshot
    child.begin_from(metric_from_bytes(metric_to_bytes(parent.metric)), parent.version)
    return child, parent


@settings(max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    dims=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    rank=st.sampled_from([2, 512]),
    memory=st.sampled_from([0, 30]),
    known=st.sampled_from([1, 40, 1100]),
    mixed=st.sampled_from([(1, 0, 0), (0, 1, 0), (0.4, 0.3, 0.3)]),
)
def test_a_learner_with_a_parent_equals_the_slow_twin(seed, dims, rank, memory, known, mixed):
    features, rows, _, draw = world(seed, dims)
    rows = with_pairs(rows, mixed, draw)
    model, parent = begun_from(features, known, rank=rank, memory=memory, dtype="float64")
    result = model.learn_many(rows, features).scores
    before = matrices(parent), parent.shares
    scores, _, _, experts, shares = naive.dca(rows, *centred(model, features), memory, before)
    np.testing.assert_allclose(result, scores, rtol=1e-6, atol=1e-8)
    assert_serves(model, experts, shares, rtol=1e-6, atol=1e-8)
    assert model.figures["parent_share"] == pytest.approx(shares_of_parent(model))


def shares_of_parent(model):
    """The share of the parent that the state gives."""
    return model._engine.parent.share()


def test_at_its_start_a_learner_serves_what_its_parent_does():
    features, _, _, _ = world(1)
    for parent_version in (3, 200, 1200):
        child, parent = begun_from(features, parent_version)
        assert (child.version, child.figures["parent_share"]) == (0, 1.0)
        np.testing.assert_allclose(child.metric.embed(features), parent.metric.embed(features), atol=1e-6)
        metric, version = child.parent
        assert version == parent_version
        assert metric.embed(features).tobytes() == parent.metric.embed(features).tobytes()


@settings(max_examples=examples(10), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    dtype=st.sampled_from(["float32", "float64"]),
    dims=st.sampled_from([(33, 9), (2,)]),
    memory=st.sampled_from([0, 50]),
    known=st.sampled_from([2, 1100]),
    sizes=st.lists(st.integers(0, 90), min_size=1),
)
def test_any_chunking_and_restart_give_the_same_bytes(seed, dtype, dims, memory, known, sizes):
    features, rows, _, draw = world(seed, dims, events=300)
    rows = with_pairs(rows, (0.8, 0.1, 0.1), draw)
    whole, _ = begun_from(features, known, dtype=dtype, memory=memory)
    again = DCA.from_bytes(whole.to_bytes())
    single = copy.deepcopy(whole)
    scores = whole.learn_many(rows, features).scores
    again = in_chunks(again, rows, features, iter(sizes * len(rows)))
    assert again.to_bytes() == whole.to_bytes()
    assert again.metric.embed(features).tobytes() == whole.metric.embed(features).tobytes()
    assert [single.learn_one(row, features).scores[0] for row in rows[:100]] == scores[:100].tolist()


@pytest.mark.parametrize("clicks", [50, 200])
def test_clicks_of_another_meaning_leave_nothing_of_the_parent(clicks):
    features, rows, _, _ = world(2, dims=(20,), items=400, events=clicks)
    child, _ = begun_from(features, 2000)
    child.learn_many(rows, features)
    assert child.figures["parent_share"] < 0.005
    assert set(child.shares) <= {"plain", "items", "far"}


def test_clicks_of_the_same_meaning_keep_the_parent():
    features, rows, _, _ = world(2, dims=(20,), items=400, events=2050)
    parent = learner(features)
    parent.learn_many(rows[:2000], features)
    child = learner(features)
    child.start(features)
    child.begin_from(parent.metric, parent.version)
    child.learn_many(rows[2000:], features)
    assert child.figures["parent_share"] > 0.5
    assert sum(share for name, share in child.shares.items() if name.startswith(("parent", "fitted"))) > 0.5


def test_fifty_clicks_make_a_parent_of_the_same_directions_theirs():
    draw = np.random.default_rng(1)
    classes = draw.integers(0, 12, 600)
    features = {"m0": draw.normal(0, 1, (600, 60)) + 0.45 * draw.normal(0, 1, (12, 60))[classes]}
    parent, alone, child = learner(features), learner(features), learner(features)
    parent.learn_many(from_labels(classes, 2000, seed=1), features)
    child.start(features)
    child.begin_from(parent.metric, parent.version)
    groups = classes // 3
    rows = from_labels(groups, 50, seed=2)
    child.learn_many(rows, features)
    alone.learn_many(rows, features)
    by_parent, by_own, by_child = (
        mean_average_precision(model.metric.embed(features), groups, np.arange(600)) for model in (parent, alone, child)
    )
    assert by_child > max(by_parent, by_own) + 0.02
    assert sum(share for name, share in child.shares.items() if name.startswith("fitted")) > 0.5


def test_near_pairs_that_differ_alike_leave_a_parent_as_it_was():
    features, rows, *_ = world(2, dims=(20,), items=400, events=400)
    child, _ = begun_from(features, 2000, dtype="float64")
    child.learn_many(rows, features)
    engine = child._engine
    A = engine.parent.rows[: engine.parent.sizes[0]]
    # The sum of near pairs that makes A N A' a multiple of the identity.
    directions = np.linalg.pinv(projected(A, engine.state.basis))
    pairs = AllPairs.of_closed(engine.moments()._replace(near=np.triu(3 * directions @ directions.T)))
    fitted = fitted_rows(engine.parent, engine.state, pairs)[: len(A)]
    np.testing.assert_allclose(fitted / np.linalg.norm(fitted), A / np.linalg.norm(A), atol=1e-9)


def test_an_older_state_goes_on_with_its_parent_as_it_was():
    child = DCA.from_bytes((HERE / "learner-state-5" / "dca-with-parent.safetensors").read_bytes())
    parent = child._engine.parent
    np.testing.assert_array_equal(parent.fitted, parent.rows)
    assert parent.trust[0, 4] == child.version > 0
    assert "fitted" not in parent.parts()
    assert not any(name.startswith("fitted") for name in child.shares)


def test_a_search_that_is_answered_twenty_times_counts_once_for_the_choice():
    features, rows, *_ = world(2, dims=(20,), items=400, events=400)
    child, _ = begun_from(features, 2000)
    child.learn_many(rows[:1], features)
    of_one_search = rows[:21].copy()
    of_one_search[:, 0] = rows[0, 0]
    child.learn_many(of_one_search[1:], features)
    assert child.version == 21
    np.testing.assert_array_equal(child._engine.parent.trust[:, 3:], 1.0)


def test_with_similar_pairs_alone_a_parent_counts_for_ten_of_them():
    features, rows, _, draw = world(3, events=90)
    child, _ = begun_from(features, 500)
    child.learn_many(with_pairs(rows, (0, 1, 0), draw), features)
    assert child.figures["parent_share"] == pytest.approx(10 / 100)


def test_copies_of_a_start_share_its_parent_and_trust_it_for_themselves():
    features, rows, _, _ = world(4)
    first, _ = begun_from(features, 300)
    second = copy.deepcopy(first)
    assert second._engine.parent.rows is first._engine.parent.rows
    before = second.to_bytes()
    first.learn_many(rows, features)
    assert second.to_bytes() == before
    second.learn_many(rows, features)
    assert second.to_bytes() == first.to_bytes()


def test_a_bad_event_leaves_the_trust_in_a_parent_as_it_was():
    features, rows, _, _ = world(5)
    model, _ = begun_from(features, 300)
    model.learn_many(rows[:100], features)
    before = model.to_bytes()
    broken = {name: np.concatenate([x, np.full((1, x.shape[1]), np.nan)]) for name, x in features.items()}
    bad = rows[100:].copy()
    bad[-1, 2] = len(features["m0"])
    with pytest.raises(FeedbackError, match="not finite"):
        model.learn_many(bad, broken)
    assert model.to_bytes() == before


def test_a_parent_stays_when_hyperparameters_change():
    features, rows, _, _ = world(6)
    model, _ = begun_from(features, 300)
    model.learn_many(rows, features)
    other = model.learning_on(memory=500)
    assert other.figures == model.figures
    assert other.parent[1] == 300


@pytest.mark.parametrize("merged", [False, True])
def test_a_model_with_a_parent_can_be_read_after_its_memory_became_shorter(merged):
    features, rows, _, _ = world(6, events=900)
    options = {"memory": 20} if merged else {}
    model, _ = begun_from(features, 300, **options)
    model.learn_many(rows[:700], features)
    shorter = merge(model, model) if merged else model.learning_on(memory=20)
    before = shorter._engine.parent.trust[0, 3]
    shorter.learn_many(rows[700:], features)
    assert shorter._engine.parent.trust[0, 3] > before > 40
    again = DCA.from_bytes(shorter.to_bytes())
    assert again.to_bytes() == shorter.to_bytes()


def test_a_parent_gains_little_if_both_metrics_are_certain():
    certain, unsure = np.zeros(5), np.zeros(5)
    compare(certain, -3.0, -4.0, 1.0)
    compare(unsure, 0.5, -0.5, 1.0)
    assert 0 < certain[0] < unsure[0] / 10


def test_merged_learners_add_up_what_they_know_of_one_parent():
    features, rows, _, _ = world(7)
    first, _ = begun_from(features, 300)
    second, plain = copy.deepcopy(first), learner(features)
    first.learn_many(rows[:60], features)
    second.learn_many(rows[60:], features)
    both = merge(first, second)
    trust = [model._engine.parent.trust for model in (first, second, both)]
    np.testing.assert_array_equal(trust[0] + trust[1], trust[2])
    plain.learn_many(rows, features)
    for pair in itertools.permutations([first, plain]):
        with pytest.raises(ParameterError, match="have different parents"):
            merge(*pair)


def test_a_parent_is_taken_at_the_start_alone_and_from_its_like():
    features, rows, _, _ = world(8)
    child, parent = begun_from(features, 300)
    with pytest.raises(ParameterError, match="a learner at its start"):
        child.begin_from(parent.metric, 300)
    fresh = learner(features)
    with pytest.raises(NotStarted, match="begin_from"):
        fresh.begin_from(parent.metric, 300)
    fresh.start(features)
    with pytest.raises(ParameterError, match="has a parent itself"):
        fresh.begin_from(child.metric, 0)
    other = LOMDML(dims=dict(parent.dims))
    other.learn_many(rows, features)
    with pytest.raises(ParameterError, match="a metric of DCA of the dimensions"):
        fresh.begin_from(other.metric, 1)
    moved = learner({name: x + 1 for name, x in features.items()})
    moved.learn_many(rows, {name: x + 1 for name, x in features.items()})
    with pytest.raises(ParameterError, match="began from different items"):
        fresh.begin_from(moved.metric, moved.version)
    narrow = learner(features, rank=3)
    narrow.learn_many(rows, features)
    with pytest.raises(ParameterError, match="in different coordinates"):
        fresh.begin_from(narrow.metric, narrow.version)
    many = CosineMetric(fresh.dims, parent.metric.mean, {"items": np.ones((13, 12), np.float32)}, {"items": 1.0})
    with pytest.raises(ParameterError, match="more rows than the 12 numbers of an item"):
        fresh.begin_from(many, 0)
    fresh.learn_many(rows, features)
    with pytest.raises(ParameterError, match="a learner at its start"):
        fresh.begin_from(parent.metric, 300)


@pytest.mark.parametrize(
    ("part", "value"),
    [("rows", np.zeros((1, 12), np.float32)), ("rows", np.zeros(12, np.float32)), ("rows", None),
     ("sizes", np.array([-1, 1])), ("sizes", np.array([1])), ("shares", np.array([0.5, 0.1, 0.1])),
     ("shares", np.array([-1.0, 1, 1])), ("version", np.array([-1])), ("trust", np.zeros((2, 4))),
     ("fitted", np.zeros((1, 12), np.float32)), ("fitted", None),
     ("trust", np.array([[0.0, 0, 2, 1, 1], [0] * 5])), ("trust", np.array([[0] * 5, [50.0, 1, 9, 9, 9]])),
     ("trust", np.array([[0.0, 999, 9, 9, 9], [0] * 5])), ("trust", np.array([[0] * 5, [0.0, -1, 9, 9, 9]])),
     ("trust", np.array([[0.0, 1, 9, 9, 8], [0] * 5]))],
)  # fmt: skip
def test_a_state_with_a_parent_of_another_shape_is_refused(part, value):
    features, rows, _, _ = world(9)
    model, _ = begun_from(features, 300)
    model.learn_many(rows, features)
    tensors, described = unpack(model.to_bytes())
    changed = {**tensors, f"parent/{part}": value}
    if value is None:
        del changed[f"parent/{part}"]
    with pytest.raises(CorruptError):
        DCA.from_bytes(pack(changed, {name: described[name] for name in ("learner", "parameters")}))


def test_a_state_with_more_rows_of_a_parent_than_an_item_has_numbers_is_refused():
    features, *_ = world(9)
    model, _ = begun_from(features, 300)
    tensors, described = unpack(model.to_bytes())
    many = {f"parent/{name}": np.ones((1000, 12), np.float32) for name in ("rows", "fitted")}
    changed = {**tensors, **many, "parent/sizes": np.array([1000, 0])}
    with pytest.raises(CorruptError, match="1000 rows of 12 numbers"):
        DCA.from_bytes(pack(changed, {name: described[name] for name in ("learner", "parameters")}))


@pytest.mark.parametrize("gap", [1e-3, 1e-20, 1e-38, 1e-43])
@pytest.mark.parametrize("known", [0, 300])
def test_near_pairs_that_are_next_to_alike_make_nothing_overflow(gap, known):
    draw = np.random.default_rng(0)
    items = draw.normal(0, 1, (200, 6)).astype(np.float32)
    items[1::2] = items[::2]
    items[::2, 5], items[1::2, 5] = 0, gap
    axes = {"mean": np.zeros(6), "basis": np.zeros((0, 6)), "deviations": np.ones(6)}
    features = {"m0": items}
    model = learner(features, init=axes)
    model.start(features)
    if known:
        parent = learner(features, init=axes)
        parent.learn_many(draw.integers(0, 200, (known, 3)), features)
        model.begin_from(parent.metric, parent.version)
    queries = 2 * draw.integers(0, 100, 60)
    rows = np.stack([queries, queries + 1, draw.integers(0, 200, 60)], axis=1)
    assert np.isfinite(model.learn_many(rows, features).scores).all()
    assert np.isfinite(model.metric.embed(features)).all()
    assert DCA.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()


@pytest.mark.parametrize(("known", "version"), [(True, -1), (True, 1.5), (True, "3"), (True, 2**70), (False, 1)])
def test_a_version_or_a_metric_that_no_parent_can_have_is_refused(known, version):
    features, rows, *_ = world(0)
    parent, child = learner(features), learner(features)
    parent.learn_many(rows[:50], features)
    child.start(features)
    with pytest.raises(ParameterError, match="version=" if known else "got NoneType, expected a metric of DCA"):
        child.begin_from(parent.metric if known else None, version)
    assert child.parent is None
