"""OASIS: the blocked engine equals the one-triplet loop, in any chunking, to the byte."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import OASIS
from omdml.errors import CorruptError, FeedbackError, MeasureError, NotStarted, ParameterError, StartError
from omdml.metrics import BilinearMetric
from omdml.snapshot import Snapshot
from tests.naive import oasis as naive
from tests.support.deep import examples
from tests.support.learning.chunks import in_chunks

GOLDEN = Path(__file__).parents[2] / "golden"


def world(seed, dims=(7, 5), items=40, events=80):
    """Features at random, starts that are not symmetric, triplets."""
    draw = np.random.default_rng(seed)
    features = {f"m{i}": draw.normal(0, 1, (items, d)) / np.sqrt(d) for i, d in enumerate(dims)}
    init = {f"m{i}": draw.normal(0, 0.5, (d, d)) for i, d in enumerate(dims)}
    return features, init, draw.integers(0, items, (events, 3))


def learner(features, init="identity", **options):
    return OASIS(dims={name: x.shape[1] for name, x in features.items()}, init=init, **options)


@pytest.mark.parametrize("sizes", [[0], [1000], [3, 40, 0, 7]], ids=["one by one", "all at once", "in chunks"])
def test_the_golden_numbers_are_reproduced(sizes):
    with np.load(GOLDEN / "oasis.npz") as golden:
        model = OASIS(dims={"x": 20}, C=float(golden["C"]), init={"x": np.eye(20)}, dtype="float64")
        in_chunks(model, golden["events"], {"x": golden["X"]}, itertools.cycle(sizes))
        np.testing.assert_allclose(model.matrices["x"], golden["W_out"], rtol=1e-9, atol=1e-12)
        assert model.updates == golden["updates"]


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    dims=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    C=st.sampled_from([0.01, 1.0, 1e9]),
)
def test_the_blocked_engine_equals_the_slow_twin(seed, dims, C):
    features, init, rows = world(seed, dims)
    # If both answers are the same item, the comparison says nothing.
    rows[::7, 2] = rows[::7, 1]
    model = learner(features, init, C=C, dtype="float64")
    outcome = model.learn_many(rows, features)
    W, scores, updates = naive.oasis(rows, features, init, C=C)
    for name in W:
        np.testing.assert_allclose(model.matrices[name], W[name], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(outcome.scores, scores, rtol=1e-7, atol=1e-8)
    assert (model.mistakes, model.version) == ((outcome.scores > 0).sum(), len(rows))
    # Close to the margin, rounding decides whether a comparison is an update.
    assert abs(model.updates - updates) <= (2 if C >= 1 else 0)


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    dtype=st.sampled_from(["float32", "float64"]),
    sizes=st.lists(st.integers(0, 40), min_size=1),
)
def test_any_chunking_gives_the_same_bytes(seed, dtype, sizes):
    features, init, rows = world(seed, dims=(33, 9))
    in_one_call = learner(features, init, dtype=dtype)
    in_one_call.learn_many(rows, features)
    again = in_chunks(learner(features, init, dtype=dtype), rows, features, itertools.cycle(sizes))
    assert again.to_bytes() == in_one_call.to_bytes()


def test_state_sent_as_bytes_amid_a_block_goes_on_identically():
    features, init, rows = world(1)
    in_one_call, model = learner(features, init), learner(features, init)
    in_one_call.learn_many(rows, features)
    for row in rows:
        model = OASIS.from_bytes(model.to_bytes())
        model.learn_one(row, features)
    assert model.to_bytes() == in_one_call.to_bytes()


@pytest.mark.parametrize("number", [0, 21, 79])
@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_value_not_finite_names_its_row_and_changes_no_state(number, column):
    features, init, rows = world(2)
    rows[rows == 39] = 0
    features["m1"][39, 2] = np.nan
    model = learner(features, init)
    model.learn_many(rows[:5], features)
    before = model.to_bytes()
    rows[number, column] = 39
    with pytest.raises(FeedbackError, match=f"comparison {number}: item in row 39 of modality 'm1'") as caught:
        model.learn_many(rows, features)
    assert (caught.value.row, caught.value.reason) == (number, "not_finite")
    assert model.to_bytes() == before
    rows[number, column] = 0
    # What the refused call left in working space does not matter.
    model.learn_many(rows, features)
    again = in_chunks(OASIS.from_bytes(before), rows, features, itertools.cycle([0, 3]))
    assert again.to_bytes() == model.to_bytes()


@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e8])
@pytest.mark.parametrize("C", [1e-12, 1.0, 1e300])
def test_no_rate_and_no_size_of_features_makes_it_diverge(scale, C):
    features, _, rows = world(3)
    features = {name: (x * scale).astype(np.float32) for name, x in features.items()}
    model = learner(features, C=C)
    # Each of these comparisons is contradicted by another one.
    model.learn_many(np.concatenate([rows, rows[:, (0, 2, 1)]] * 5), features)
    assert all(np.isfinite(W).all() for W in model.matrices.values())
    assert np.isfinite(model.metric.score({n: x[0] for n, x in features.items()}, features)).all()


def test_a_step_brings_the_loss_to_zero_and_no_further():
    features, init, rows = world(4)
    model = learner(features, init, C=1e9, dtype="float64")
    model.start(features)

    def closer(q, r, s):
        return np.array([x[q] @ model.matrices[name] @ (x[r] - x[s]) for name, x in features.items()])

    for row in rows:
        before = closer(*row)
        model.learn_one(row, features)
        if len(set(row)) == 3:
            np.testing.assert_allclose(closer(*row), np.maximum(1, before))


def test_the_start_tells_random_triplets_apart_by_one_in_every_modality():
    features, _, _ = world(5, dims=(7, 30), items=400)
    features["m0"] = features["m0"] * 50 + 3
    model = learner(features)
    model.start(features)
    q, r, s = np.random.default_rng(0).integers(0, 400, (3, 20_000))
    for name, W in model.matrices.items():
        x = features[name]
        closer = np.einsum("ij,ij->i", x[q] @ W, x[r] - x[s])
        assert np.mean(closer**2) == pytest.approx(1, abs=0.1)
        np.testing.assert_array_equal(W, W[0, 0] * np.eye(len(W), dtype=np.float32))


def test_a_start_of_equal_items_warns_and_one_without_items_is_refused():
    features, _, _ = world(6)
    model = learner(features)
    with pytest.warns(UserWarning, match="'m0': all sampled items are alike"):
        model.start({**features, "m0": np.ones((40, 7))})
    with pytest.raises(StartError, match="no item"):
        learner(features).start({name: x[:0] for name, x in features.items()})
    with pytest.raises(StartError, match="'m1': sampled items hold values that are not finite"):
        learner(features).start({**features, "m1": np.full((40, 5), np.inf)})
    with pytest.raises(NotStarted):
        _ = learner(features).metric


def test_the_metric_scores_every_item_and_has_no_embedding():
    features, init, rows = world(7)
    model = learner(features, init, dtype="float64")
    model.learn_many(rows, features)
    query = {name: x[3] for name, x in features.items()}
    expected = np.mean([query[name] @ W @ features[name].T for name, W in model.matrices.items()], axis=0)
    np.testing.assert_allclose(model.metric.score(query, features), expected)
    table = {name: x[3:4] for name, x in features.items()}
    np.testing.assert_array_equal(model.metric.score(table, features), model.metric.score(query, features))
    assert (model.metric.euclidean, model.metric.dims) == (False, {"m0": 7, "m1": 5})
    with pytest.raises(MeasureError, match="has no embedding"):
        model.metric.embed(features)
    with pytest.raises(FeedbackError, match="lack modality 'm1'"):
        model.metric.score({"m0": query["m0"]}, features)


def test_the_metric_travels_in_a_snapshot():
    features, init, _ = world(8)
    metric = learner(features, init).metric
    snapshot = Snapshot(
        model="shop", learner="oasis", version=0, generation="g", event_time=None, oldest_event_time=None, progress={},
        metric=metric,
    )  # fmt: skip
    again = Snapshot.from_bytes(snapshot.to_bytes()).metric
    assert isinstance(again, BilinearMetric)
    query = {name: x[0] for name, x in features.items()}
    np.testing.assert_array_equal(again.score(query, features), metric.score(query, features))
    for damaged in ({"a/W": np.ones((2, 3))}, {"a/W": np.ones(3)}):
        with pytest.raises(ValueError, match="expected a square"):
            BilinearMetric.from_tensors(damaged, {"modalities": ["a"]})


@pytest.mark.parametrize(
    ("option", "value"),
    [("C", 0), ("C", float("inf")), ("init", "pca"), ("init", {"b": np.eye(3)}), ("init", {"a": np.ones((3, 2))}),
     ("init", {"a": np.full((3, 3), np.nan)}), ("dtype", "float16")],
)  # fmt: skip
def test_a_hyperparameter_out_of_range_is_refused_by_name(option, value):
    with pytest.raises(ParameterError, match=option):
        OASIS(**{"dims": {"a": 3}, option: value})


def test_damaged_state_is_refused():
    features, init, rows = world(9)
    model = learner(features, init)
    model.learn_many(rows[:5], features)
    data = model.to_bytes()
    for damaged in (data[:-3], b"", data[:-9] + bytes(9)):
        with pytest.raises(CorruptError):
            OASIS.from_bytes(damaged)
