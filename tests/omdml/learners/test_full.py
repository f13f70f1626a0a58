"""OMDML and Qwise: the lazily projected engine equals a dense eigendecomposition at every update."""

from __future__ import annotations

import math
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from omdml import LOMDML, OMDML, Qwise
from omdml.engines import spectral
from omdml.errors import FeedbackError, ParameterError
from omdml.snapshot import Snapshot
from tests.naive import full as naive
from tests.support.deep import examples

GOLDEN = Path(__file__).parents[2] / "golden"


def world(seed, dims, items=40, events=60, width=4, flat=0):
    """Features, of which the last ``flat`` coordinates of each modality never differ; rows and margins."""
    draw = np.random.default_rng(seed)
    features = {f"m{i}": draw.normal(0, 1, (items, d)) / np.sqrt(2 * d) for i, d in enumerate(dims)}
    for x in features.values():
        x[:, max(1, x.shape[1] - flat) :] = 0.5
    return features, draw.integers(0, items, (events, width)), draw.uniform(0.1, 2, events)


def starts(features, seed, rank):
    """Positive semi-definite starts of this rank or less."""
    draw = np.random.default_rng(seed)
    halves = {name: draw.normal(0, 1, (min(rank, x.shape[1]), x.shape[1])) for name, x in features.items()}
    return {name: half.T @ half / len(half) for name, half in halves.items()}


def dims_of(features):
    return {name: x.shape[1] for name, x in features.items()}


def in_chunks(model, rows, features, margins, seed):
    """Learn in random chunks, through bytes after each."""
    draw, start = np.random.default_rng(seed), 0
    while start < len(rows):
        size = draw.integers(1, 40)
        model.learn_many(rows[start : start + size], features, margin=margins[start : start + size])
        model = type(model).from_bytes(model.to_bytes())
        start += size
    return model


def test_the_golden_vectors_of_omdml_are_reproduced():
    with np.load(GOLDEN / "omdml.npz") as golden:
        features = {f"X{i}": golden[f"X{i}"] for i in range(3)}
        options = {name: golden[name].item() for name in ("C", "beta", "gamma", "memory")}
        init = {name: np.eye(x.shape[1]) for name, x in features.items()}
        model = OMDML(dims=dims_of(features), init=init, dtype="float64", **options)
        model.learn_many(golden["events"], features)
        for i in range(3):
            np.testing.assert_allclose(model.matrices[f"X{i}"], golden[f"M{i}_out"], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(list(model.weights.values()), golden["theta"], rtol=1e-12)
        assert (model.mistakes, model.updates) == (golden["mistakes"], golden["updates"])
        assert sum(model.bites.values()) > 0


@pytest.mark.parametrize("kind", ["plain", "fantope", "trace", "both"])
def test_the_golden_vectors_of_qwise_are_reproduced(kind):
    with np.load(GOLDEN / f"qwise_{kind}.npz") as golden:
        options = {name: golden[name].item() for name in ("eta", "mu", "k", "trace") if name in golden.files}
        quads, features = golden["quads"], {"x": golden["X"]}
        model = Qwise(dims={"x": 12}, step="ogd", init={"x": golden["M0"]}, dtype="float64", **options)
        model.learn_many(quads[:, :4].astype(int), features, margin=quads[:, 4])
        np.testing.assert_allclose(model.matrices["x"], golden["M_out"], rtol=1e-9, atol=1e-11)
        assert model.updates == golden["updates"]


@given(
    seed=st.integers(0, 1000), dims=st.lists(st.integers(4, 14), min_size=1, max_size=3), rank=st.integers(1, 14),
    C=st.sampled_from([0.01, 0.3, 100.0]), memory=st.sampled_from([0, 20]), flat=st.sampled_from([0, 2]),
    width=st.sampled_from([3, 4]), direct=st.sampled_from([0, 160]),
)  # fmt: skip
@settings(max_examples=examples(30), deadline=None)
def test_the_lazy_projection_equals_the_dense_one(seed, dims, rank, C, memory, flat, width, direct):
    features, rows, margins = world(seed, dims, width=width, flat=flat)
    init = starts(features, seed, rank)
    model = OMDML(dims_of(features), C=C, beta=0.9, memory=memory, init=init, dtype="float64")
    # Small matrices are computed in another way than large ones.
    with mock.patch.object(spectral, "DIRECT", direct):
        model.learn_many(rows, features, margin=margins)
    M, theta, mistakes, updates = naive.omdml(rows, features, init, margins, C=C, beta=0.9, memory=memory, gamma=1.0)
    for name, matrix in M.items():
        np.testing.assert_allclose(model.matrices[name], matrix, atol=1e-7 * max(1.0, np.abs(matrix).max()))
    np.testing.assert_allclose(list(model.weights.values()), theta, rtol=1e-9)
    assert (model.mistakes, model.updates) == (mistakes, updates)


@pytest.mark.parametrize("below", [0.0, 1e-9, 1e-7])
def test_a_start_that_rounding_made_negative_is_learned_from_past_a_block(below):
    features, rows, margins = world(0, [8], events=40)
    direction = np.ones(8) / np.sqrt(8)
    init = {"m0": 0.5 * np.outer(direction, direction) - below * np.eye(8)}
    model = OMDML(dims_of(features), init=init, dtype="float64")
    model.learn_many(rows, features, margin=margins)
    M, _, mistakes, updates = naive.omdml(rows, features, init, margins, C=0.1, beta=0.999, memory=10_000, gamma=1.0)
    np.testing.assert_allclose(model.matrices["m0"], M["m0"], atol=100 * below + 1e-9)
    assert (model.mistakes, model.updates) == (mistakes, updates)


@given(
    seed=st.integers(0, 1000), dims=st.lists(st.integers(6, 9), min_size=1, max_size=2),
    mu=st.sampled_from([0.0, 0.1]), trace=st.sampled_from([0.0, 0.01]), exact=st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(40), deadline=None)
def test_one_metric_on_all_modalities_equals_its_slow_twin(seed, dims, mu, trace, exact):
    features, rows, margins = world(seed, dims, events=30)
    init = {name: start + 0.1 * np.diag(np.arange(len(start))) for name, start in starts(features, seed, 20).items()}
    options = {"eta": 0.1, "mu": mu, "k": 1 if mu else 0, "trace": trace}
    model = Qwise(dims_of(features), step="pa" if exact else "ogd", init=init, dtype="float64", **options)
    model.learn_many(rows, features, margin=margins)
    try:
        M, mistakes, updates = naive.qwise(rows, features, init, margins, exact=exact, **options)
    except naive.Ambiguous:
        reject()
    for name, matrix in M.items():
        np.testing.assert_allclose(model.matrices[name], matrix, atol=1e-7 * max(1.0, np.abs(matrix).max()))
    assert (model.mistakes, model.updates) == (mistakes, updates)


@given(seed=st.integers(0, 200), dtype=st.sampled_from(["float32", "float64"]), kind=st.sampled_from(["o", "q", "qf"]),
       direct=st.sampled_from([0, 160]))  # fmt: skip
@settings(max_examples=examples(25), deadline=None)
def test_the_same_comparisons_give_the_same_bytes_however_they_were_batched(seed, dtype, kind, direct):
    features, rows, margins = world(seed, [6, 5], events=80)
    options = {"o": {"C": 1.0}, "q": {"eta": 1.0}, "qf": {"mu": 0.2, "k": 2, "trace": 0.01}}[kind]
    learner = {"o": OMDML, "q": Qwise, "qf": Qwise}[kind]
    in_one_call, single, chunked = (learner(dims_of(features), dtype=dtype, **options) for _ in range(3))
    with mock.patch.object(spectral, "DIRECT", direct):
        in_one_call.learn_many(rows, features, margin=margins)
        for row, margin in zip(rows, margins, strict=True):
            single.learn_one(row, features, margin=margin)
        chunked.start(features)
        chunked = in_chunks(chunked, rows, features, margins, seed)
    assert in_one_call.to_bytes() == single.to_bytes() == chunked.to_bytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_matrix_stays_positive_semi_definite_on_a_long_stream(dtype):
    features, _, _ = world(3, [12], flat=4)
    draw = np.random.default_rng(4)
    model = OMDML(dims_of(features), C=10.0, init=starts(features, 5, 6), dtype=dtype)
    for _ in range(40):
        model.learn_many(draw.integers(0, 40, (250, 3)), features)
        values = np.linalg.eigvalsh(model.matrices["m0"].astype(np.float64))
        assert values[0] > -1e-5 * values[-1]
    assert model.bites["m0"] > 1000


def test_contradictory_comparisons_stay_bounded():
    features, rows, _ = world(6, [8])
    model = OMDML(dims_of(features), C=1e6)
    there_and_back = np.concatenate([rows, rows[:, (2, 3, 0, 1)]])
    for _ in range(100):
        model.learn_many(there_and_back, features)
    assert np.abs(model.matrices["m0"]).max() < 1e3


def test_a_row_that_is_not_finite_leaves_the_state_unchanged():
    features, rows, margins = world(7, [6, 4], events=50)
    features["m1"] = np.vstack([features["m1"], np.full((1, 4), np.nan)])
    features["m0"] = np.vstack([features["m0"], np.zeros((1, 6))])
    model = OMDML(dims_of(features), C=1.0, init=starts(features, 1, 9))
    model.learn_many(rows[:20], features, margin=margins[:20])
    before = model.to_bytes()
    rows[37, 1] = 40
    with pytest.raises(FeedbackError, match="comparison 17: item in row 40 of modality 'm1'") as caught:
        model.learn_many(rows[20:], features, margin=margins[20:])
    assert caught.value.row == 17
    assert model.to_bytes() == before
    twin = OMDML.from_bytes(before)
    for learner in (model, twin):
        learner.learn_many(rows[20:37], features, margin=margins[20:37])
    assert model.to_bytes() == twin.to_bytes()


def test_a_margin_that_is_not_finite_is_refused_by_its_place():
    features, rows, margins = world(8, [3])
    margins[5] = np.inf
    with pytest.raises(FeedbackError, match="comparison 5 has margin inf"):
        Qwise(dims_of(features)).learn_many(rows, features, margin=margins)


@pytest.mark.parametrize(
    ("option", "value"),
    [("C", 0), ("mu", -1), ("mu", 1.0), ("k", 1.5), ("trace", -0.1), ("refresh", 0), ("rank", 0), ("init", "zeros"),
     ("init", {"a": -np.eye(3)}), ("init", {"a": np.triu(np.ones((3, 3)))}), ("init", {"a": np.ones((2, 3))})],
)  # fmt: skip
def test_a_hyperparameter_out_of_range_is_refused_by_name(option, value):
    with pytest.raises(ParameterError, match="k=0" if option == "mu" and value == 1.0 else option):
        OMDML(**{"dims": {"a": 3}, option: value})


@pytest.mark.parametrize("learner", [OMDML, Qwise])
def test_a_snapshot_embeds_to_the_learned_distance(learner):
    features, rows, margins = world(9, [7, 4])
    model = learner(dims_of(features), dtype="float64")
    model.learn_many(rows, features, margin=margins)
    sent = Snapshot(
        model="shop", learner=model.name, version=model.version, generation="g", event_time=None,
        oldest_event_time=None, progress={}, metric=model.metric,
    )  # fmt: skip
    metric = Snapshot.from_bytes(sent.to_bytes()).metric
    embedded = metric.embed(features)
    weights = getattr(model, "weights", dict.fromkeys(features, 1.0))
    for p, q in rows[:, :2]:
        difference = {name: x[p] - x[q] for name, x in features.items()}
        distance = sum(weights[name] * d @ model.matrices[name] @ d for name, d in difference.items())
        assert np.sum((embedded[p] - embedded[q]) ** 2) == pytest.approx(distance, rel=1e-5, abs=1e-9)


def test_a_fantope_drives_the_rank_down():
    draw = np.random.default_rng(11)
    x = draw.uniform(0, 1, (300, 10))
    rows = draw.integers(0, 300, (3000, 4))
    target = np.diag([1.0] * 3 + [0.0] * 7)
    a, b = x[rows[:, 0]] - x[rows[:, 1]], x[rows[:, 2]] - x[rows[:, 3]]
    wrong = np.einsum("ti,ij,tj->t", a, target, a) > np.einsum("ti,ij,tj->t", b, target, b)
    rows[wrong] = rows[wrong][:, (2, 3, 0, 1)]
    ranks = {}
    for mu in (0.0, 1.0):
        model = Qwise({"x": 10}, mu=mu, k=7 if mu else 0, init="pca", rank=3, dtype="float64")
        model.learn_many(rows, {"x": x})
        values = np.linalg.eigvalsh(model.matrices["x"])
        ranks[mu] = int((values > 1e-6 * values[-1]).sum())
    assert ranks[1.0] == 3 < ranks[0.0]


@pytest.mark.parametrize("options", [{}, {"trace": 1e9}, {"mu": 1.0, "k": 2}], ids=["plain", "trace", "fantope"])
@pytest.mark.parametrize("eta", [1e20, 1e38, 1e300])
def test_what_a_diverging_rate_leaves_behind_can_be_read_again(eta, options):
    features, rows, margins = world(3, [5], events=40)
    model = Qwise(dims_of(features), step="ogd", eta=eta, **options)
    model.start(features)
    refused = set()
    for row, margin in zip(rows, margins, strict=True):
        try:
            model.learn_many(row[None], features, margin=[margin])
        except FeedbackError as error:
            refused.add(error.reason)
        Qwise.from_bytes(model.to_bytes())
    assert refused == {"diverged"}


@pytest.mark.parametrize("size", [12, 170], ids=["lapack", "block"])
def test_what_stops_a_projection_half_way_leaves_nothing_behind(size, monkeypatch):
    features, rows, margins = world(5, [size], width=3)
    model, twin = (OMDML(dims_of(features), C=10.0, init="pca", rank=5, dtype="float64") for _ in range(2))
    for learner in (model, twin):
        learner.learn_many(rows[:20], features, margin=margins[:20])
    calls, lowest = [], spectral.BlockSpectrum.lowest

    def interrupted(*arguments):
        calls.append(lowest(*arguments))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return calls[-1]

    with monkeypatch.context() as broken:
        broken.setattr(spectral.BlockSpectrum, "lowest", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.learn_many(rows[20:30], features, margin=margins[20:30])
    assert model.to_bytes() == twin.to_bytes()
    for learner in (model, twin):
        learner.learn_many(rows[30:], features, margin=margins[30:])
    assert model.to_bytes() == twin.to_bytes()


@pytest.mark.parametrize("learner", [LOMDML, OMDML])
@pytest.mark.parametrize("changed", [{"beta": 0.5, "memory": 50}, {"beta": 0.999, "memory": 40}])
def test_a_changed_discount_leaves_no_bound_until_what_came_before_has_faded(learner, changed):
    # One modality is always right, the other one always wrong.
    features = {"right": np.array([[0.0], [0.0], [1.0]]), "wrong": np.array([[0.0], [1.0], [0.0]])}
    init, rows = {name: np.eye(1) for name in features}, np.tile([0, 1, 2], (300, 1))
    before = learner(dims_of(features), init=init, beta=0.999, memory=50)
    before.learn_many(rows, features)
    assert before.hedge_loss <= before.hedge_loss_bound < math.inf
    model = before.learning_on(init=init, **changed)
    assert model.hedge_loss == before.hedge_loss
    assert model.hedge_loss_bound == math.inf
    for count in (1, 100):
        model.learn_many(rows[:count], features)
        assert type(model).from_bytes(model.to_bytes()).hedge_loss_bound == math.inf
    model.learn_many(np.tile(rows, (4, 1)), features)
    assert model.hedge_loss <= model.hedge_loss_bound < math.inf
