"""SetNet: the kernel equals the literal network, its slopes are the loss's, no rate makes it diverge."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import SetNet
from omdml.comparisons import Judgement
from omdml.errors import CorruptError, FeedbackError, NotStarted, ParameterError, StartError
from omdml.evaluate import ndcg, rank_by_score
from omdml.kernels import netvlad as kernel
from omdml.kernels.matching import greedy_matches
from omdml.kernels.sets import judge
from omdml.metrics import SetMetric
from omdml.pooling import mean_pooling
from omdml.snapshot import Snapshot
from tests import naive_sets as naive

GOLDEN = Path(__file__).parent / "golden"
DIMS = {"a": 3, "b": 2}
ITEMS = 40


def features(seed=0, items=ITEMS, dims=DIMS):
    draw = np.random.default_rng(seed)
    return {name: draw.normal(0, 1, (items, d)) for name, d in dims.items()}


def arrays(seed=0, clusters=2, rank=3, dims=DIMS, scale=(1.0, 2.0)):
    """Parameters at random."""
    draw, size = np.random.default_rng(seed), sum(dims.values())
    return {
        "A": draw.normal(0, 1, (clusters, size)),
        "bias": draw.normal(0, 1, clusters),
        "c": draw.normal(0, 1, (clusters, size)),
        "P": draw.normal(0, 1, (rank, clusters * size)),
        "p0": draw.normal(0, 0.1, rank),
        "w": np.array(5.0),
        "b": np.array(-1.0),
        "scale": np.array(scale),
    }


def side_by_side(items, scale=(1.0, 2.0)):
    """Elements as the network sees them."""
    return np.concatenate([x * factor for x, factor in zip(items.values(), scale, strict=True)], axis=1)


def judgements(count, seed=0, items=ITEMS):
    """Queries of one or two elements, one to three sets of one to four on either side."""
    draw = np.random.default_rng(seed)

    def sets():
        return tuple(draw.choice(items, draw.integers(1, 5), replace=False) for _ in range(draw.integers(1, 4)))

    return [Judgement(draw.choice(items, draw.integers(1, 3), replace=False), sets(), sets()) for _ in range(count)]


def labelled(seed=0, labels=12, each=20):
    """Items of many labels, which some directions tell and more do not; the label of each."""
    draw = np.random.default_rng(seed)
    label = np.repeat(np.arange(labels), each)
    told = draw.normal(0, 1, (labels, 6))[label] + draw.normal(0, 0.4, (labels * each, 6))
    return {"told": told, "noise": draw.normal(0, 1.5, (labels * each, 10))}, label


def judged_by_label(label, count, seed=0):
    """One query element; a set with its label is relevant, three without are not."""
    draw = np.random.default_rng(seed)

    def some_set(first):
        others = draw.choice(np.flatnonzero(label != label[first]), 2, replace=False)
        return np.array([first, *others])

    made = []
    while len(made) < count:
        q, r = draw.integers(0, len(label), 2)
        if label[q] == label[r] and q != r:
            others = draw.choice(np.flatnonzero(label != label[q]), (3, 3))
            made.append(Judgement(np.array([q]), (some_set(r),), tuple(others)))
    return made


# The golden numbers and the slow twin


def golden():
    with np.load(GOLDEN / "netvlad.npz") as file:
        return dict(file)


def test_vectors_of_sets_and_of_elements_are_the_golden_ones():
    told = golden()
    init = {name: told[name] for name in ("A", "bias", "c", "P", "p0", "w", "b")} | {"scale": np.ones(1)}
    metric = SetNet(dims={"x": 10}, init=init, dtype="float64").metric
    sets = [np.flatnonzero(told["owner"] == one) for one in range(8)]
    items = {"x": told["elements"]}
    np.testing.assert_allclose(metric.embed_sets(items, sets), told["v_set"], rtol=1e-9)
    np.testing.assert_allclose(metric.embed(items), told["v_element"], rtol=1e-9)
    net = kernel.Net(*(np.atleast_2d(told[name]) for name in ("A", "bias", "c", "P", "p0")), np.zeros((1, 2)))
    order = np.concatenate(sets)
    pooled = kernel.forward(told["elements"][order], np.cumsum([len(one) for one in sets]), net)
    np.testing.assert_allclose(pooled.v[:8], told["v_set"], rtol=1e-9)


def test_the_loss_of_a_set_whose_elements_are_relevant_is_the_golden_one():
    told = golden()
    for one, expected in enumerate(told["loss"]):
        own = told["owner"] == one
        v = np.concatenate([told["v_set"][[one]], told["v_element"][own], told["v_element"][~own]])
        logistic, slope = np.array([told["w"], told["b"]]), np.zeros(2)
        loss, _ = judge(v, len(v), 1, own.sum(), logistic, np.zeros_like(v), slope)
        assert loss == pytest.approx(expected, rel=1e-9)


def test_greedy_matching_gives_the_golden_totals():
    with np.load(GOLDEN / "greedy_match.npz") as told:
        for scores, total in zip(told["scores"], told["total"], strict=True):
            assert greedy_matches(scores, np.array([0, scores.shape[1]]))[0] == pytest.approx(total, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5), queries=st.integers(1, 4)
)
def test_greedy_matching_takes_pairs_in_falling_order_each_side_once(seed, sizes, queries):
    scores = np.random.default_rng(seed).normal(0, 1, (queries, sum(sizes)))
    begins = np.concatenate([[0], np.cumsum(sizes)])
    expected = [naive.greedy(scores[:, begin:end]) for begin, end in itertools.pairwise(begins)]
    np.testing.assert_allclose(greedy_matches(scores, begins), expected)


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    clusters=st.integers(1, 3),
    rank=st.integers(1, 4),
    step=st.sampled_from(["pa", "ogd"]),
    eta=st.sampled_from([0.01, 0.3]),
)
def test_the_walk_equals_the_slow_twin_whose_slopes_are_finite_differences(seed, clusters, rank, step, eta):
    init, items, told = arrays(seed, clusters, rank), features(seed), judgements(4, seed)
    model = SetNet(dims=DIMS, init=init, eta=eta, step=step, dtype="float64")
    outcome = model.learn_many(told, items)
    net = {name: array for name, array in init.items() if name != "scale"}
    expected, scores = naive.setnet(
        told, side_by_side(items), net, eta=eta, momentum=0.9, decay=0.001, exact=step == "pa"
    )
    for name, array in expected.items():
        np.testing.assert_allclose(model.matrices[name], array, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outcome.scores, scores, rtol=1e-5, atol=1e-6)
    assert (model.mistakes, model.updates, model.version) == ((outcome.scores > 0).sum(), 4, 4)


# Learning


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    dtype=st.sampled_from(["float32", "float64"]),
    whiten=st.booleans(),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=10),
)
def test_any_chunking_gives_the_same_bytes_also_across_a_restart(seed, dtype, whiten, sizes):
    items, told = features(seed), judgements(30, seed)
    whole, parts = (SetNet(dims=DIMS, clusters=3, rank=4, dtype=dtype, whiten=whiten) for _ in range(2))
    whole.learn_many(told, items)
    at = 0
    for size in [*sizes, 1, 30]:
        parts.learn_many(told[at : at + size], items) if size > 1 else [
            parts.learn_one(one, items) for one in told[at : at + 1]
        ]
        parts = SetNet.from_bytes(parts.to_bytes())
        at += size
    assert parts.to_bytes() == whole.to_bytes()


def test_judged_sets_are_ranked_better_than_by_mean_pooling():
    items, label = labelled()
    model = SetNet(dims={"told": 6, "noise": 10}, rank=32)
    model.learn_many(judged_by_label(label, 1500), items)
    draw = np.random.default_rng(5)
    sets = [draw.choice(len(label), 3, replace=False) for _ in range(400)]
    queries = draw.choice(len(label), 60, replace=False)
    relevance = np.array([[(label[one] == label[q]).any() for one in sets] for q in queries])

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
    for one in judgements(200):
        model.learn_many([one, Judgement(one.query, one.irrelevant, one.relevant)], items)
        model.learn_one(Judgement(one.query, one.relevant, one.relevant), items)
    assert all(np.abs(array).max() < 1e3 for array in model.matrices.values())


def test_the_papers_rate_can_diverge_and_then_nothing_is_learned():
    model, items = SetNet(dims=DIMS, clusters=3, rank=4, step="ogd", eta=1e30), features()
    model.start(items)
    before = model.to_bytes()
    with pytest.raises(FeedbackError, match="use step='pa'") as caught:
        model.learn_many(judgements(50), items)
    assert caught.value.reason == "diverged"
    assert model.to_bytes() == before


def test_where_elements_lie_in_a_set_and_beside_which_rows_does_not_matter():
    items, told = features(), judgements(20)
    turned = [
        Judgement(one.query, tuple(s[::-1] for s in one.relevant), tuple(s[::-1] for s in one.irrelevant))
        for one in told
    ]
    one, other = (SetNet(dims=DIMS, clusters=3, rank=4, dtype="float64") for _ in range(2))
    one.learn_many(told, items)
    other.learn_many(turned, items)
    np.testing.assert_allclose(one.matrices["P"], other.matrices["P"], rtol=1e-9)


# What is refused


@pytest.mark.parametrize(
    ("judgement", "reason", "told"),
    [
        (Judgement([0], ([1],), ([],)), "empty_list", "judgement 2: irrelevant set 0 has no elements"),
        (Judgement([0], ([1], []), ([2],)), "empty_list", "judgement 2: relevant set 1 has no elements"),
        (Judgement([], ([1],), ([2],)), "empty_list", "judgement 2: query has no elements"),
        (Judgement([0], (), ([2],)), "empty_list", "judgement 2: has no relevant set"),
        (Judgement([0], ([1],), ()), "empty_list", "judgement 2: has no irrelevant set"),
        (Judgement([0], ([1],), ([ITEMS],)), "unknown_item", r"names rows \[40\], the features have rows 0 to 39"),
        (Judgement([-1], ([1],), ([2],)), "unknown_item", r"names rows \[-1\]"),
        (Judgement([0.5], ([1],), ([2],)), "invalid", r"query is float64 of shape \(1,\), expected row numbers"),
        (Judgement([[0]], ([1],), ([2],)), "invalid", r"of shape \(1, 1\)"),
    ],
)
def test_a_judgement_that_makes_no_sense_is_named_and_changes_nothing(judgement, reason, told):
    model, items = SetNet(dims=DIMS, clusters=3, rank=4), features()
    model.learn_many(judgements(5), items)
    before = model.to_bytes()
    with pytest.raises(FeedbackError, match=told) as caught:
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
        [] if alone else [one for one in judgements(60) if 7 not in np.concatenate([one.query, *one[1], *one[2]])][:3]
    )
    with pytest.raises(FeedbackError) as caught:
        model.learn_many([*sound, Judgement(np.array([7]), (np.array([3]),), (np.array([4]),))], items)
    assert caught.value.row == len(sound)
    assert model.to_bytes() == before


@pytest.mark.parametrize(
    ("items", "told"),
    [
        (features(items=4), "need more than 4 items, got 4"),
        ({name: np.ones((50, d)) for name, d in DIMS.items()}, "3 clusters needs as many different items"),
        (
            {"a": features()["a"], "b": np.full((ITEMS, 2), np.nan)},
            "row 0 of modality 'b' holds values that are not finite",
        ),
    ],
)
def test_a_start_from_too_little_says_what_is_missing(items, told):
    model = SetNet(dims=DIMS, clusters=3, rank=4)
    with pytest.raises(StartError, match=told):
        model.learn_many(judgements(1, items=4), items)
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


def test_a_start_has_soft_assignments_centred_vectors_of_mean_square_one_and_the_same_bytes_again():
    items = features(items=500)
    model = SetNet(dims=DIMS, clusters=4, rank=6, dtype="float64")
    model.start(items)
    found = model.matrices
    x = side_by_side(items, found["scale"])
    logits = np.sort(x @ found["A"].T + found["bias"], axis=1)
    assert np.median(np.exp(logits[:, -1] - logits[:, -2])) == pytest.approx(2.0, rel=0.05)
    blocks = kernel.forward(x, np.arange(1, 501), kernel.Net(
        found["A"], found["bias"][None], found["c"], found["P"], found["p0"][None], np.zeros((1, 2))
    )).V[:500]  # fmt: skip
    y = blocks @ found["P"].T + found["p0"]
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


# What is served


def sent(model):
    """The metric, after its way through bytes."""
    snapshot = Snapshot(
        model="m", learner="setnet", version=1, generation="g", event_time=None, oldest_event_time=None, progress={},
        metric=model.metric,
    )  # fmt: skip
    return Snapshot.from_bytes(snapshot.to_bytes()).metric


@pytest.mark.parametrize("whiten", [True, False])
def test_a_snapshot_scores_sets_as_the_learner_judges_them(whiten):
    items, (*told, last) = features(), judgements(40)
    model = SetNet(dims=DIMS, clusters=3, rank=4, dtype="float64", whiten=whiten)
    model.learn_many(told, items)
    metric = sent(model)
    asked, relevant, irrelevant = (metric.embed_sets(items, rows) for rows in (last.query[:, None], *last[1:]))
    np.testing.assert_allclose(np.linalg.norm(relevant, axis=1), 1)
    np.testing.assert_allclose(metric.score_sets(asked, relevant), metric.similarities(asked, relevant).sum(axis=0))
    if not whiten:
        expected = metric.similarities(asked, irrelevant).mean() - metric.similarities(asked, relevant).mean()
        assert model.learn_one(last, items).scores[0] == pytest.approx(expected, rel=1e-9)


def test_whitened_vectors_of_judged_sets_are_uncorrelated():
    items, told = features(items=400), judgements(3000, items=400)
    model = SetNet(dims=DIMS, clusters=3, rank=4, dtype="float64", whiten=True, eta=1e-12, step="ogd")
    model.start(items)
    plain = SetMetric(model.dims, model.matrices)
    assert sent(model).whitening is not None
    model.learn_many(told, items)
    vectors = plain.embed_sets(items, [rows for one in told for rows in (*one.relevant, *one.irrelevant)])
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
    model._begin(model._blank(tensors)).restore(tensors)


def test_a_state_of_other_sizes_is_corrupt():
    model = SetNet(dims=DIMS, clusters=3, rank=4)
    model.start(features())
    tensors = model._engine.to_tensors()
    for damage in ({"sizes": np.array([3, 5])}, {"sizes": np.zeros(3)}, {"theta": np.zeros(5)}):
        with pytest.raises(CorruptError):
            resumed(model, {**tensors, **damage})


def test_matching_takes_each_element_once_and_equals_the_sum_for_sets_of_one():
    items, metric = features(), SetMetric(DIMS, arrays())
    vectors = metric.embed(items)
    query = vectors[[0, 1]]
    alone = metric.match(query[:1], vectors[5:9], np.ones(4, np.int64))
    np.testing.assert_allclose(alone, metric.score_sets(query[:1], vectors[5:9]))
    scores = metric.similarities(query, vectors[5:9])
    np.testing.assert_allclose(metric.match(query, vectors[5:9], np.array([1, 3])), [
        naive.greedy(scores[:, :1]), naive.greedy(scores[:, 1:])
    ])  # fmt: skip
