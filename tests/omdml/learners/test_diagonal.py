"""One weight a coordinate, free of sign or not: equal to the slow twins in any chunking, to the byte."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import Diagonal, Learner, Signed
from omdml.builders import from_order, from_ordered_pairs, from_ties
from omdml.errors import CorruptError, FeedbackError, MeasureError, ParameterError
from omdml.metrics import DiagonalMetric, SignedMetric
from omdml.snapshot import Snapshot
from tests.naive import diagonal as naive
from tests.support.deep import examples

GOLDEN = Path(__file__).parents[2] / "golden"
LEARNERS = {"diagonal": Diagonal, "signed": Signed}


def world(seed, dims=(7, 5), items=40, events=80):
    """Features, weights to start from, quadruplets and margins."""
    draw = np.random.default_rng(seed)
    features = {f"m{i}": draw.normal(0, 1, (items, d)) for i, d in enumerate(dims)}
    init = {f"m{i}": draw.uniform(0, 1, d) / d for i, d in enumerate(dims)}
    return features, init, draw.integers(0, items, (events, 4)), draw.uniform(-0.5, 2, events)


def learner(kind, features, **options):
    return LEARNERS[kind](dims={name: x.shape[1] for name, x in features.items()}, **options)


def in_chunks(model, rows, features, margins, sizes):
    """Learn in calls of these many events; a size of 0 means learn_one, and a way through bytes."""
    start = 0
    while start < len(rows):
        size = next(sizes)
        if size == 0:
            model = Learner.from_bytes(model.to_bytes())
            model.learn_one(rows[start], features, margin=margins[start])
        else:
            model.learn_many(rows[start : start + size], features, margin=margins[start : start + size])
        start += max(1, size)
    return model


@pytest.mark.parametrize("name", ["diagonal_variance", "diagonal_frobenius", "signed"])
@pytest.mark.parametrize("sizes", [[0], [1000], [3, 40, 0, 7]], ids=["one by one", "all at once", "in chunks"])
def test_the_golden_numbers_are_reproduced(name, sizes):
    kind, _, regulariser = name.partition("_")
    with np.load(GOLDEN / f"{name}.npz") as golden:
        options = {key: golden[key].item() for key in ("eta", "lam")} | (
            {"regulariser": regulariser} if regulariser else {}
        )
        features, quads = {"x": golden["X"]}, golden["quads"]
        model = learner(kind, features, step="ogd", init={"x": golden["w0"]}, dtype="float64", **options)
        model = in_chunks(model, quads[:, :4].astype(int), features, quads[:, 4], itertools.cycle(sizes))
        np.testing.assert_allclose(model.matrices["x"], golden["w_out"], rtol=1e-9, atol=1e-15)
        assert model.updates == golden["updates"]


options = st.fixed_dictionaries(
    {
        "eta": st.sampled_from([0.01, 0.3, 50.0]),
        "lam": st.sampled_from([0.0, 0.01]),
        "step": st.sampled_from(["pa", "ogd"]),
    }
)


@settings(max_examples=examples(30), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    dims=st.lists(st.integers(2, 20), min_size=1, max_size=3),
    regulariser=st.sampled_from(["variance", "frobenius"]),
    grouped=st.booleans(),
    chosen=options,
)
def test_the_diagonal_kernel_equals_its_slow_twin(seed, dims, regulariser, grouped, chosen):
    features, init, rows, margins = world(seed, dims)
    group, groups = np.arange(sum(dims)), None
    if grouped:
        # This is every second coordinate of the first modality.
        group[: dims[0]] = -1 - np.arange(dims[0]) % 2
        groups, init["m0"] = {"m0": group[: dims[0]].tolist()}, np.full(dims[0], 0.25)
    model = learner("diagonal", features, regulariser=regulariser, groups=groups, init=init, dtype="float64", **chosen)
    outcome = model.learn_many(rows, features, margin=margins)
    x, w = (np.concatenate(list(parts.values()), axis=-1) for parts in (features, init))
    exact = chosen.pop("step") == "pa"
    w, scores, updates = naive.diagonal(
        rows, margins, x, w, group=group, regulariser=regulariser, exact=exact, **chosen
    )
    np.testing.assert_allclose(np.concatenate(list(model.matrices.values())), w, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(outcome.scores, scores, rtol=1e-8, atol=1e-8)
    assert (model.updates, model.mistakes, model.version) == (updates, (outcome.scores > 0).sum(), len(rows))


@settings(max_examples=examples(20), deadline=None)
@given(seed=st.integers(0, 10_000), chosen=options)
def test_the_signed_kernel_equals_its_slow_twin(seed, chosen):
    features, init, rows, margins = world(seed)
    model = learner("signed", features, init=init, dtype="float64", **chosen)
    outcome = model.learn_many(rows, features, margin=margins)
    x, w = (np.concatenate(list(parts.values()), axis=-1) for parts in (features, init))
    exact = chosen.pop("step") == "pa"
    w, scores, updates = naive.signed(rows, margins, x, w, exact=exact, **chosen)
    np.testing.assert_allclose(np.concatenate(list(model.matrices.values())), w, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(outcome.scores, scores, rtol=1e-8, atol=1e-8)
    assert model.updates == updates


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["diagonal", "signed"]),
    dtype=st.sampled_from(["float32", "float64"]),
    sizes=st.lists(st.integers(0, 40), min_size=1),
)
def test_any_chunking_gives_the_same_bytes(seed, kind, dtype, sizes):
    features, init, rows, margins = world(seed, dims=(33, 9))
    groups = {"groups": {"m1": np.repeat([2, 0, 1], 3)}, "init": "unit"} if kind == "diagonal" else {"init": init}
    in_one_call, again = (learner(kind, features, dtype=dtype, **groups) for _ in range(2))
    in_one_call.learn_many(rows, features, margin=margins)
    again.start(features)
    again = in_chunks(again, rows, features, margins, itertools.cycle(sizes))
    assert again.to_bytes() == in_one_call.to_bytes()


def test_triplets_are_quadruplets_that_share_their_query():
    features, init, rows, _ = world(1)
    rows[:, 2] = rows[:, 0]
    first, second = (learner("diagonal", features, init=init) for _ in range(2))
    first.learn_many(rows[:, (0, 1, 3)], features)
    second.learn_many(rows, features)
    assert first.to_bytes() == second.to_bytes()
    with pytest.raises(FeedbackError, match=r"shape \(80, 3\).*expected integers \(T, 4\)"):
        learner("signed", features).learn_many(rows[:, :3], features)


@pytest.mark.parametrize("kind", ["diagonal", "signed"])
@pytest.mark.parametrize("number", [0, 21, 79])
def test_a_value_not_finite_names_its_row_and_changes_no_state(kind, number):
    features, init, rows, margins = world(2)
    rows[rows == 39] = 0
    features["m1"][39, 2] = np.nan
    model = learner(kind, features, init=init)
    model.learn_many(rows[:5], features)
    before = model.to_bytes()
    rows[number, 3] = 39
    with pytest.raises(FeedbackError, match=f"comparison {number}: item in row 39 of modality 'm1'") as caught:
        model.learn_many(rows, features, margin=margins)
    assert (caught.value.row, caught.value.reason) == (number, "not_finite")
    margins[7] = np.inf
    with pytest.raises(FeedbackError, match="comparison 7 has margin inf"):
        model.learn_many(rows, features, margin=margins)
    assert model.to_bytes() == before


def test_a_fixed_rate_that_diverges_is_refused_and_leaves_the_state_unchanged():
    features, init, rows, _ = world(3)
    model = learner("signed", features, init=init, step="ogd", eta=1e30, lam=10.0)
    before = model.to_bytes()
    with pytest.raises(FeedbackError, match="step='ogd'") as caught:
        model.learn_many(rows, features)
    assert caught.value.reason == "diverged"
    assert model.to_bytes() == before


@pytest.mark.parametrize("kind", ["diagonal", "signed"])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e15])
@pytest.mark.parametrize(("eta", "lam"), [(1e-12, 0.0), (1e9, 0.0), (1e9, 1e9), (1e-3, 1e-3)])
def test_no_rate_and_no_size_of_features_makes_it_diverge(kind, scale, eta, lam):
    features, _, rows, _ = world(4)
    features = {name: (x * scale).astype(np.float32) for name, x in features.items()}
    model = learner(kind, features, eta=eta, lam=lam)
    # Each of these comparisons is contradicted by another one.
    model.learn_many(np.concatenate([rows, rows[:, (2, 3, 0, 1)]] * 5), features)
    assert all(np.isfinite(w).all() for w in model.matrices.values())


def test_a_step_never_passes_its_margin_nor_makes_a_weight_negative():
    features, init, rows, margins = world(5)
    model = learner("diagonal", features, init=init, eta=1e9, lam=0.0, dtype="float64")
    for row, margin in zip(rows, margins, strict=True):
        before = model.learn_one(row, features, margin=margin).scores[0]
        embedded = model.metric.embed(features)[row]
        near, far = ((embedded[i] - embedded[i + 1]) @ (embedded[i] - embedded[i + 1]) for i in (0, 2))
        assert near - far + margin >= min(0, before + margin) - 1e-9
        assert all((w >= 0).all() for w in model.matrices.values())


@pytest.mark.parametrize(("regulariser", "ends"), [("variance", 1.0), ("frobenius", 0.0)])
def test_the_regulariser_draws_the_weights_at_every_comparison(regulariser, ends):
    features, _, rows, _ = world(6)
    init = {"m0": np.array([0, 0, 0, 0, 0, 5, 5.0]), "m1": np.array([2, 0, 0, 0, 0.0])}
    model = learner("diagonal", features, regulariser=regulariser, init=init, eta=1.0, lam=0.2)
    # Four times the same item: such a comparison says nothing.
    model.learn_many(np.repeat(rows[:, :1], 4, axis=1), features)
    for w in model.matrices.values():
        np.testing.assert_allclose(w, ends, atol=1e-4)


def test_regions_that_tell_nothing_lose_their_weight():
    draw = np.random.default_rng(7)
    label = draw.integers(0, 4, 400)
    informative, noise = draw.normal(0, 1, (4, 5))[label] + draw.normal(0, 0.3, (400, 5)), draw.normal(0, 1, (400, 10))
    features = {"regions": np.hstack([noise[:, :5], informative, noise[:, 5:]])}
    same, other = (
        np.array([draw.choice(np.flatnonzero(test(label, c))) for c in label]) for test in (np.equal, np.not_equal)
    )
    model = learner("diagonal", features, groups={"regions": 3})
    for _ in range(5):
        model.learn_many(np.stack([np.arange(400), same, other], axis=1), features)
    first, second, third = model.matrices["regions"].reshape(3, 5)
    assert len({*first, *second, *third}) == 3
    assert second[0] > 3 * max(first[0], third[0])


def test_the_start_has_unit_spread_evenly_over_the_modalities():
    features, _, _, draw = *world(8, items=400)[:3], np.random.default_rng(0)
    features["m0"] *= 50
    model = learner("diagonal", features)
    model.start(features)
    left, right = draw.integers(0, 400, (2, 20_000))
    for name, w in model.matrices.items():
        assert ((features[name][left] - features[name][right]) ** 2 @ w).mean() == pytest.approx(0.5, abs=0.05)


def test_the_diagonal_metric_embeds_to_its_own_distance_and_travels():
    features, init, rows, _ = world(9)
    model = learner("diagonal", features, init=init, dtype="float64")
    model.learn_many(rows, features)
    again = travelled(model.metric)
    assert isinstance(again, DiagonalMetric)
    embedded, query = again.embed(features), {name: x[3] for name, x in features.items()}
    expected = sum((features[name] - query[name]) ** 2 @ w for name, w in model.matrices.items())
    np.testing.assert_allclose(((embedded - embedded[3]) ** 2).sum(axis=1), expected, atol=1e-12)
    np.testing.assert_allclose(again.score(query, features), -expected, atol=1e-12)
    assert (again.euclidean, again.dims) == (True, {"m0": 7, "m1": 5})
    with pytest.raises(ValueError, match="below 0"):
        DiagonalMetric.from_tensors({"a/w": np.array([1.0, -1])}, {"modalities": ["a"]})
    with pytest.raises(ValueError, match="expected a vector for each modality"):
        SignedMetric.from_tensors({"a/w": np.eye(2)}, {"modalities": ["a"]})


def test_the_signed_metric_says_how_much_more_of_the_attribute_an_item_has():
    features, init, rows, _ = world(10)
    model = learner("signed", features, init=init, dtype="float64")
    model.learn_many(rows, features)
    again = travelled(model.metric)
    query = {name: x[3:4] for name, x in features.items()}
    expected = sum((features[name] - query[name]) @ w for name, w in model.matrices.items())
    np.testing.assert_allclose(again.score(query, features), expected, atol=1e-12)
    with pytest.raises(MeasureError, match="signed metric has no embedding"):
        again.embed(features)


def travelled(metric):
    """The metric after a journey in a snapshot."""
    snapshot = Snapshot(
        model="m", learner="l", version=0, generation="g", event_time=None, oldest_event_time=None, progress={},
        metric=metric,
    )  # fmt: skip
    return Snapshot.from_bytes(snapshot.to_bytes()).metric


@pytest.mark.parametrize("build", [from_ordered_pairs, from_order, from_ties])
def test_an_attribute_is_learned_from_ordered_items(build):
    draw = np.random.default_rng(11)
    age = draw.uniform(0, 1, 400)
    features = {"face": np.column_stack([age + draw.normal(0, 0.05, 400), draw.normal(0, 1, (400, 4))])}
    rows, margin = build((5 * age).astype(int), 1000, seed=0, among=np.arange(200))
    model = learner("signed", features, eta=0.1)
    model.learn_many(rows, features, margin=margin)
    scores = model.metric.score({"face": features["face"][0]}, features)
    assert np.corrcoef(scores[200:], age[200:])[0, 1] > 0.9


@pytest.mark.parametrize(
    ("option", "value"),
    [("eta", 0), ("lam", -1), ("regulariser", "trace"), ("step", "sgd"), ("init", "pca"), ("init", {"a": np.ones(2)}),
     ("init", {"a": [1, -1, 1, 1]}), ("groups", {"b": 2}), ("groups", {"a": 3}), ("groups", {"a": [0, 1]}),
     ("groups", 2), ("groups", {"a": [0.5, 1, 1, 1]})],
)  # fmt: skip
def test_a_hyperparameter_out_of_range_is_refused_by_name(option, value):
    with pytest.raises(ParameterError, match=option):
        Diagonal(**{"dims": {"a": 4}, option: value})


def test_a_start_that_differs_within_a_group_is_refused():
    with pytest.raises(ParameterError, match="equal weights within a group"):
        Diagonal(dims={"a": 4}, groups={"a": 2}, init={"a": [1, 1, 1, 2]})


def test_damaged_state_is_refused():
    features, init, _, _ = world(12)
    data = learner("diagonal", features, init=init).to_bytes()
    for damaged in (data[:-3], b"", data[:-9] + bytes(9)):
        with pytest.raises(CorruptError):
            Diagonal.from_bytes(damaged)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_that_grow_beyond_their_type_are_refused_at_their_event(dtype):
    draw = np.random.default_rng(0)
    items, rows = {"x": draw.normal(0, 1, (50, 4))}, draw.integers(0, 50, (400, 4))
    model = LEARNERS["signed"](dims={"x": 4}, step="ogd", lam=1e6, dtype=dtype)

    def learn():
        for row in rows:
            model.learn_one(row, items)

    with pytest.raises(FeedbackError, match="overflow"):
        learn()
    assert np.isfinite(model.matrices["x"]).all()
    assert type(model).from_bytes(model.to_bytes()).version == model.version
