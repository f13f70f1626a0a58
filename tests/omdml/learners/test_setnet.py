"""SetNet: the kernel equals the literal network, its slopes are the loss's, no rate makes it diverge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import SetNet
from omdml.comparisons import Judgement
from omdml.errors import FeedbackError, NotStarted, ParameterError, StartError
from omdml.evaluate import ndcg, rank_by_score
from omdml.kernels.sets import netvlad as kernel
from omdml.kernels.sets.walk import judge
from omdml.pooling import mean_pooling
from tests.naive import sets as naive
from tests.support.deep import examples
from tests.support.learning.judged import (
    DIMS,
    ITEMS,
    arrays,
    features,
    judged_by_label,
    judgements,
    labelled,
    side_by_side,
)

GOLDEN = Path(__file__).parents[2] / "golden"


# The golden numbers and the slow twin


def golden():
    with np.load(GOLDEN / "netvlad.npz") as file:
        return dict(file)


def test_vectors_of_sets_and_of_elements_are_the_golden_ones():
    stored = golden()
    init = {name: stored[name] for name in ("A", "bias", "c", "P", "p0", "w", "b")} | {"scale": np.ones(1)}
    metric = SetNet(dims={"x": 10}, init=init, dtype="float64").metric
    sets = [np.flatnonzero(stored["owner"] == number) for number in range(8)]
    items = {"x": stored["elements"]}
    np.testing.assert_allclose(metric.embed_sets(items, sets), stored["v_set"], rtol=1e-9)
    np.testing.assert_allclose(metric.embed(items), stored["v_element"], rtol=1e-9)
    net = kernel.Net(*(np.atleast_2d(stored[name]) for name in ("A", "bias", "c", "P", "p0")), np.zeros((1, 2)))
    order = np.concatenate(sets)
    pooled = kernel.forward(stored["elements"][order], np.cumsum([len(members) for members in sets]), net)
    np.testing.assert_allclose(pooled.v[:8], stored["v_set"], rtol=1e-9)


def test_the_loss_of_a_set_whose_elements_are_relevant_is_the_golden_one():
    stored = golden()
    for index, expected in enumerate(stored["loss"]):
        relevant = stored["owner"] == index
        v = np.concatenate([stored["v_set"][[index]], stored["v_element"][relevant], stored["v_element"][~relevant]])
        logistic, slope = np.array([stored["w"], stored["b"]]), np.zeros(2)
        loss, _ = judge(v, len(v), 1, relevant.sum(), logistic, np.zeros_like(v), slope)
        assert loss == pytest.approx(expected, rel=1e-9)


@settings(max_examples=examples(10), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    clusters=st.integers(1, 3),
    rank=st.integers(1, 4),
    step=st.sampled_from(["pa", "ogd"]),
    eta=st.sampled_from([0.01, 0.3]),
)
def test_the_walk_equals_the_slow_twin_whose_slopes_are_finite_differences(seed, clusters, rank, step, eta):
    init, items, judged = arrays(seed, clusters, rank), features(seed), judgements(4, seed)
    model = SetNet(dims=DIMS, init=init, eta=eta, step=step, dtype="float64")
    outcome = model.learn_many(judged, items)
    net = {name: array for name, array in init.items() if name != "scale"}
    expected, scores = naive.setnet(
        judged, side_by_side(items), net, eta=eta, momentum=0.9, decay=0.001, exact=step == "pa"
    )
    for name, array in expected.items():
        np.testing.assert_allclose(model.matrices[name], array, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outcome.scores, scores, rtol=1e-5, atol=1e-6)
    assert (model.mistakes, model.updates, model.version) == ((outcome.scores > 0).sum(), 4, 4)


# Learning


@settings(max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    dtype=st.sampled_from(["float32", "float64"]),
    whiten=st.booleans(),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=10),
)
def test_any_chunking_gives_the_same_bytes_also_across_a_restart(seed, dtype, whiten, sizes):
    items, judged = features(seed), judgements(30, seed)
    in_one_call, parts = (SetNet(dims=DIMS, clusters=3, rank=4, dtype=dtype, whiten=whiten) for _ in range(2))
    in_one_call.learn_many(judged, items)
    start = 0
    for size in [*sizes, 1, 30]:
        parts.learn_many(judged[start : start + size], items) if size > 1 else [
            parts.learn_one(judgement, items) for judgement in judged[start : start + 1]
        ]
        parts = SetNet.from_bytes(parts.to_bytes())
        start += size
    assert parts.to_bytes() == in_one_call.to_bytes()


def test_judged_sets_are_ranked_better_than_by_mean_pooling():
    items, label = labelled()
    model = SetNet(dims={"signal": 6, "noise": 10}, rank=32)
    model.learn_many(judged_by_label(label, 1500), items)
    draw = np.random.default_rng(5)
    sets = [draw.choice(len(label), 3, replace=False) for _ in range(400)]
    queries = draw.choice(len(label), 60, replace=False)
    relevance = np.array([[(label[members] == label[q]).any() for members in sets] for q in queries])

    def measured(scores):
        return ndcg(np.take_along_axis(relevance, rank_by_score(scores), axis=1), 10).mean()

    elements = np.concatenate(list(items.values()), axis=1)
    pooled, single = (mean_pooling(elements, rows) for rows in (sets, list(queries[:, None])))
    vectors, metric = model.metric.embed_sets(items, sets), model.metric
    learned = metric.similarities(metric.embed({name: x[queries] for name, x in items.items()}), vectors)
    assert measured(learned) > measured(single @ pooled.T) + 0.1


@pytest.mark.parametrize(
    "options", [{"eta": 1e300}, {"eta": 1e300, "decay": 1e300}, {"eta": 1e-300, "momentum": 0.999}]
)
def test_no_rate_makes_a_capped_step_diverge(options):
    model = SetNet(dims=DIMS, clusters=3, rank=4, **options)
    model.learn_many(judgements(500), features())
    assert all(np.isfinite(array).all() for array in model.matrices.values())


def test_contradictory_judgements_stay_bounded():
    model, items = SetNet(dims=DIMS, clusters=3, rank=4, eta=1e300), features()
    for judgement in judgements(200):
        model.learn_many([judgement, Judgement(judgement.query, judgement.irrelevant, judgement.relevant)], items)
        model.learn_one(Judgement(judgement.query, judgement.relevant, judgement.relevant), items)
    assert all(np.abs(array).max() < 1e3 for array in model.matrices.values())


def test_the_papers_rate_can_diverge_and_then_nothing_is_learned():
    model, items = SetNet(dims=DIMS, clusters=3, rank=4, step="ogd", eta=1e30), features()
    model.start(items)
    before = model.to_bytes()
    with pytest.raises(FeedbackError, match="step='ogd'") as caught:
        model.learn_many(judgements(50), items)
    assert caught.value.reason == "diverged"
    assert model.to_bytes() == before


def test_what_a_diverging_rate_leaves_behind_can_be_read_again():
    model, items = SetNet(dims=DIMS, clusters=3, rank=4, step="ogd", eta=10.0, momentum=0.99, decay=1.0), features()
    refused = 0
    for judgement in judgements(100):
        try:
            model.learn_one(judgement, items)
        except FeedbackError:
            refused += 1
        SetNet.from_bytes(model.to_bytes())
    assert 0 < refused < 100


def test_the_order_of_the_elements_of_a_set_does_not_matter():
    items, judged = features(), judgements(20)
    turned = [
        Judgement(entry.query, tuple(s[::-1] for s in entry.relevant), tuple(s[::-1] for s in entry.irrelevant))
        for entry in judged
    ]
    model, turned_model = (SetNet(dims=DIMS, clusters=3, rank=4, dtype="float64") for _ in range(2))
    model.learn_many(judged, items)
    turned_model.learn_many(turned, items)
    for name, matrix in model.matrices.items():
        np.testing.assert_allclose(matrix, turned_model.matrices[name], rtol=1e-9, atol=1e-12)


# What is refused


@pytest.mark.parametrize(
    ("judgement", "reason", "expected"),
    [
        (Judgement([0], ([1],), ([],)), "empty_list", "judgement 2: irrelevant set 0 has no elements"),
        (Judgement([0], ([1], []), ([2],)), "empty_list", "judgement 2: relevant set 1 has no elements"),
        (Judgement([], ([1],), ([2],)), "empty_list", "judgement 2: query has no elements"),
        (Judgement([0], (), ([2],)), "empty_list", "judgement 2: has no relevant set"),
        (Judgement([0], ([1],), ()), "empty_list", "judgement 2: has no irrelevant set"),
        (Judgement([0], ([1],), ([ITEMS],)), "unknown_item", "names row 40, the features have rows 0 to 39"),
        (Judgement([-1], ([1],), ([2],)), "unknown_item", "names row -1"),
        (Judgement([0.5], ([1],), ([2],)), "invalid", r"query is float64 of shape \(1,\), expected row numbers"),
        (Judgement([[0]], ([1],), ([2],)), "invalid", r"of shape \(1, 1\)"),
    ],
)
def test_a_judgement_that_makes_no_sense_is_named_and_changes_nothing(judgement, reason, expected):
    model, items = SetNet(dims=DIMS, clusters=3, rank=4), features()
    model.learn_many(judgements(5), items)
    before = model.to_bytes()
    with pytest.raises(FeedbackError, match=expected) as caught:
        model.learn_many([*judgements(2), judgement], items)
    assert (caught.value.reason, caught.value.row) == (reason, 2)
    assert model.to_bytes() == before


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
@pytest.mark.parametrize("alone", [True, False])
def test_a_value_that_cannot_be_learned_leaves_the_state_unchanged(value, alone):
    model, items = SetNet(dims=DIMS, clusters=3, rank=4, dtype="float64"), features()
    model.learn_many(judgements(5), items)
    before = model.to_bytes()
    items["b"][7] = value
    sound = (
        []
        if alone
        else [
            judgement
            for judgement in judgements(60)
            if 7 not in np.concatenate([judgement.query, *judgement[1], *judgement[2]])
        ][:3]
    )
    with pytest.raises(FeedbackError) as caught:
        model.learn_many([*sound, Judgement(np.array([7]), (np.array([3]),), (np.array([4]),))], items)
    assert caught.value.row == len(sound)
    assert model.to_bytes() == before


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (features(items=4), "need more than 4 items, got 4"),
        ({name: np.ones((50, d)) for name, d in DIMS.items()}, "3 clusters needs as many different items"),
        (
            {"a": features()["a"], "b": np.full((ITEMS, 2), np.nan)},
            "row 0 of modality 'b' holds values that are not finite",
        ),
        ({"a": 1e300 * features()["a"], "b": features()["b"]}, "modality 'a' holds values .* too large for a start"),
    ],
)
def test_a_start_from_too_little_says_what_is_missing(items, expected):
    model = SetNet(dims=DIMS, clusters=3, rank=4)
    with pytest.raises(StartError, match=expected):
        model.start(items)
    with pytest.raises(NotStarted):
        model.to_bytes()


@pytest.mark.parametrize(
    "options",
    [
        {"clusters": 0}, {"rank": 0}, {"rank": 2.5}, {"eta": 0}, {"momentum": 1}, {"momentum": -0.1}, {"decay": -1},
        {"step": "adam"}, {"init": "pca"}, {"whiten": 1}, {"init": {"A": np.eye(5)}},
        {"init": {**arrays(), "P": np.eye(3)}}, {"init": {**arrays(), "w": np.array(np.nan)}},
    ],
)  # fmt: skip
def test_hyperparameters_out_of_range_are_refused(options):
    with pytest.raises(ParameterError):
        SetNet(dims=DIMS, **options)


# The start


def test_a_start_is_soft_centred_of_mean_square_one_and_reproducible():
    items = features(items=500)
    model = SetNet(dims=DIMS, clusters=4, rank=6, dtype="float64")
    model.start(items)
    matrices = model.matrices
    x = side_by_side(items, matrices["scale"])
    logits = np.sort(x @ matrices["A"].T + matrices["bias"], axis=1)
    assert np.median(np.exp(logits[:, -1] - logits[:, -2])) == pytest.approx(2.0, rel=0.05)
    blocks = kernel.forward(x, np.arange(1, 501), kernel.Net(
        matrices["A"], matrices["bias"][None], matrices["c"], matrices["P"], matrices["p0"][None], np.zeros((1, 2))
    )).V[:500]  # fmt: skip
    y = blocks @ matrices["P"].T + matrices["p0"]
    np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(y.T @ y / 500, np.eye(6) / 6, atol=1e-12)
    twin = SetNet(dims=DIMS, clusters=4, rank=6, dtype="float64")
    twin.start(items)
    assert twin.to_bytes() == model.to_bytes()


def test_modalities_start_at_equal_spread_whatever_their_units():
    items = features(items=300)
    model = SetNet(dims=DIMS, clusters=3, rank=4, dtype="float64")
    model.start({"a": items["a"] * 1e6, "b": items["b"]})
    x = side_by_side({"a": items["a"] * 1e6, "b": items["b"]}, model.matrices["scale"])
    for part in (x[:, :3], x[:, 3:]):
        assert 2 * part.var(axis=0).sum() == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("judgement", [7, (1, 2), ([0], 3, [[5]]), ([0], [[1, [2]]], [[5]])], ids=str)
def test_what_is_no_judgement_is_named_as_such(judgement):
    model = SetNet(dims={"x": 3}, clusters=1, rank=2)
    with pytest.raises(FeedbackError, match=r"judgement 0: .*expected .*row numbers"):
        model.learn_many([judgement], {"x": np.eye(9, 3)})
    with pytest.raises(FeedbackError, match="judgements are 7, expected a sequence"):
        model.learn_many(7, {"x": np.eye(9, 3)})


def test_sets_may_be_the_rows_of_a_matrix():
    features = {"x": np.random.default_rng(0).normal(0, 1, (30, 3))}
    lists, matrices = (SetNet(dims={"x": 3}, clusters=2, rank=2) for _ in range(2))
    lists.learn_many([Judgement([0], [[1, 2], [3, 4]], [[5, 6]])], features)
    matrices.learn_many([Judgement(np.array([0]), np.array([[1, 2], [3, 4]]), np.array([[5, 6]]))], features)
    assert lists.to_bytes() == matrices.to_bytes()
