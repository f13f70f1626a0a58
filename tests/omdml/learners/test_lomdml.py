"""LOMDML against its slow twin and the golden numbers, in any chunking, to the byte."""

from __future__ import annotations

import contextlib
import copy
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import LOMDML
from omdml.engines.base import BLOCK
from omdml.errors import CorruptError, FeedbackError, NotStarted, ParameterError, StartError
from tests.naive import projections
from tests.support.deep import examples
from tests.support.learning.chunks import in_chunks

# Float64 results of the literal form, one event after the other.
GOLDEN = Path(__file__).parents[2] / "golden"


def world(seed, dims=(7, 5, 3), ranks=(3, 2, 3), items=40, events=150):
    """Items that cluster in the first modality, and triplets at random."""
    draw = np.random.default_rng(seed)
    features = {f"m{i}": draw.normal(0, 1, (items, d)) for i, d in enumerate(dims)}
    starts = {f"m{i}": draw.normal(0, 0.4, (r, d)) for i, (r, d) in enumerate(zip(ranks, dims, strict=True))}
    return features, starts, draw.integers(0, items, (events, 3)), draw


def learner(features, init, **options):
    return LOMDML(dims={name: x.shape[1] for name, x in features.items()}, init=init, **options)


@pytest.mark.parametrize("name", ["lomdml", "lomdml_pa"])
@pytest.mark.parametrize("sizes", [[0], [1000], [3, 40, 0, 7]], ids=["one by one", "all at once", "in chunks"])
def test_the_golden_numbers_are_reproduced(name, sizes):
    golden = np.load(GOLDEN / f"{name}.npz")
    features = {f"m{i}": golden[f"X{i}"] for i in range(3)}
    options = {key: float(golden[key]) for key in ("eta", "beta", "memory", "gamma")}
    step = "pa" if name.endswith("pa") else "ogd"
    model = learner(features, {f"m{i}": golden[f"W{i}"] for i in range(3)}, step=step, dtype="float64", **options)
    in_chunks(model, golden["events"], features, itertools.cycle(sizes))
    for i in range(3):
        np.testing.assert_allclose(model.matrices[f"m{i}"], golden[f"W{i}_out"], rtol=1e-9)
    np.testing.assert_allclose(list(model.weights.values()), golden["theta"], rtol=1e-9)
    assert (model.mistakes, model.updates) == (golden["mistakes"], golden["updates"])


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    dims=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    exact=st.booleans(),
    memory=st.sampled_from([0, 30, 1000]),
    gamma=st.sampled_from([0.0, 1.0, 5.0]),
)
def test_the_blocked_engine_equals_the_slow_twin(seed, dims, exact, memory, gamma):
    features, starts, rows, _ = world(seed, dims, [max(1, d // 2) for d in dims], events=60)
    options = {"eta": 0.02, "beta": 0.97, "memory": memory, "gamma": gamma}
    model = learner(features, starts, step="pa" if exact else "ogd", dtype="float64", **options)
    model.learn_many(rows, features)
    W, theta, mistakes, updates, (own, best) = projections.lomdml(rows, features, starts, exact=exact, **options)
    for name in W:
        np.testing.assert_allclose(model.matrices[name], W[name], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(list(model.weights.values()), theta, rtol=1e-9)
    assert (model.mistakes, model.updates) == (mistakes, updates)
    assert model.hedge_loss == pytest.approx(own)
    bound = (-np.log(0.97) * best + np.log(len(dims))) / 0.03
    assert model.hedge_loss_bound == pytest.approx(bound)
    assert model.hedge_loss <= bound + 1e-9


@settings(max_examples=examples(30), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    dtype=st.sampled_from(["float32", "float64"]),
    average=st.sampled_from([0, 20]),
    sizes=st.lists(st.integers(0, 40), min_size=1),
)
def test_any_chunking_gives_the_same_bytes(seed, dtype, average, sizes):
    features, starts, rows, _ = world(seed, dims=(33, 9), ranks=(11, 4))
    options = {"dtype": dtype, "average": average}
    in_one_call = learner(features, starts, **options)
    in_one_call.learn_many(rows, features)
    again = in_chunks(learner(features, starts, **options), rows, features, iter(sizes * len(rows)))
    assert again.to_bytes() == in_one_call.to_bytes()
    assert again.metric.embed(features).tobytes() == in_one_call.metric.embed(features).tobytes()


def test_state_sent_as_bytes_amid_a_block_goes_on_identically():
    features, starts, rows, _ = world(1)
    in_one_call = learner(features, starts)
    in_one_call.learn_many(rows, features)
    model = learner(features, starts)
    for row in rows:
        model = LOMDML.from_bytes(model.to_bytes())
        model.learn_one(row, features)
    assert model.to_bytes() == in_one_call.to_bytes()


def test_float64_and_fortran_order_learn_what_float32_does():
    features, starts, rows, _ = world(2)
    narrow = {name: x.astype(np.float32) for name, x in features.items()}
    wide = {name: np.asfortranarray(x.astype(np.float64)) for name, x in narrow.items()}
    first, second = learner(narrow, starts), learner(wide, starts)
    first.learn_many(rows, narrow)
    second.learn_many(rows, wide)
    assert first.to_bytes() == second.to_bytes()


def test_read_only_memory_maps_are_learned_from_as_they_are(tmp_path):
    features, starts, rows, _ = world(3)
    narrow = {name: x.astype(np.float32) for name, x in features.items()}
    for name, x in narrow.items():
        np.save(tmp_path / f"{name}.npy", x)
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in narrow}
    first, second = learner(narrow, starts), learner(narrow, starts)
    first.learn_many(rows, narrow)
    second.learn_many(rows, mapped)
    assert first.to_bytes() == second.to_bytes()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("number", [0, 7, 90, 149])
def test_a_value_not_finite_names_its_row_and_changes_no_state(value, number):
    features, starts, rows, _ = world(4)
    features["m1"][-1, 2] = value
    rows[rows == len(features["m1"]) - 1] = 0
    model = learner(features, starts)
    model.learn_many(rows[:5], features)
    before = model.to_bytes()
    rows[number, 2] = len(features["m1"]) - 1
    with pytest.raises(FeedbackError, match=f"comparison {number}: item in row 39 of modality 'm1'") as caught:
        model.learn_many(rows, features)
    assert (caught.value.row, caught.value.reason) == (number, "not_finite")
    assert model.to_bytes() == before


def test_a_rate_that_diverges_is_refused_and_leaves_the_state_unchanged():
    features, starts, rows, _ = world(5)
    model = learner(features, starts, step="ogd", eta=1e6)
    before = model.to_bytes()
    with pytest.raises(FeedbackError, match="step='ogd'") as caught:
        model.learn_many(rows, features)
    assert caught.value.reason == "diverged"
    assert model.to_bytes() == before


@pytest.mark.parametrize("eta", [1e6, 1e20, 1e38, 1e39, 1e200])
def test_a_step_that_overflows_is_refused_and_the_state_stays_readable(eta):
    features, starts, rows, _ = world(5)
    model = learner(features, starts, step="ogd", eta=eta)
    for row in rows:
        before, version = model.to_bytes(), model.version
        with contextlib.suppress(FeedbackError):
            model.learn_one(row, features)
        assert (model.to_bytes() == before) == (model.version == version)
        assert LOMDML.from_bytes(model.to_bytes()).version == model.version
        assert all(np.isfinite(w).all() for w in model.matrices.values())
    assert 0 < model.version < len(rows)


@given(eta=st.sampled_from([1e-4, 1.0, 1e3, 1e9]), scale=st.sampled_from([1e-3, 1.0, 1e3]), seed=st.integers(0, 50))
@settings(max_examples=examples(30), deadline=None)
def test_the_exact_step_never_diverges(eta, scale, seed):
    features, starts, rows, _ = world(seed)
    features = {name: x * scale for name, x in features.items()}
    model = learner(features, starts, eta=eta, dtype="float64")
    model.learn_many(np.concatenate([rows, rows[:, (0, 2, 1)]]), features)
    assert all(np.isfinite(w).all() for w in model.matrices.values())


def test_rows_out_of_range_are_refused_by_number():
    features, starts, rows, _ = world(6)
    model = learner(features, starts)
    rows[3, 1] = 40
    with pytest.raises(FeedbackError, match=r"comparison 3 names rows .*rows 0 to 39"):
        model.learn_many(rows, features)
    assert model.version == 0


def test_features_that_do_not_fit_are_refused_by_name():
    features, starts, rows, _ = world(7)
    model = learner(features, starts)
    with pytest.raises(FeedbackError, match="lack modality 'm2'"):
        model.learn_many(rows, {name: features[name] for name in ("m0", "m1")})
    with pytest.raises(FeedbackError, match=r"'m0' have shape \(40, 6\), expected \(n, 7\)"):
        model.learn_many(rows, {**features, "m0": features["m0"][:, :6]})


def test_before_the_first_call_only_a_start_given_as_arrays_can_be_asked():
    features, starts, _, _ = world(8)
    given_start = learner(features, starts)
    np.testing.assert_array_equal(given_start.matrices["m0"], starts["m0"].astype(np.float32))
    assert given_start.metric.embed(features).shape == (40, 8)
    assert LOMDML.from_bytes(given_start.to_bytes()).version == 0
    sampled = learner(features, "pca")
    for ask in (lambda: sampled.metric, lambda: sampled.matrices, lambda: sampled.weights, sampled.to_bytes):
        with pytest.raises(NotStarted, match="has not started"):
            ask()


@pytest.mark.parametrize("init", ["pca", "wpca", "gaussian", "identity"])
def test_a_start_has_unit_spread_in_every_modality(init):
    features, _, _, draw = world(9, items=400)
    features["m0"] *= 50
    model = learner(features, init, rank=2)
    model.start(features)
    left, right = draw.integers(0, 400, (2, 20_000))
    for name, W in model.matrices.items():
        difference = (features[name][left] - features[name][right]) @ W.T
        assert (difference**2).sum(axis=1).mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("init", ["pca", "wpca"])
@pytest.mark.parametrize("width", [6, 40])
def test_a_start_is_the_slow_twins_rows_in_order_up_to_one_scale(init, width):
    draw = np.random.default_rng(width)
    X = draw.normal(3, 1, (300, width)) @ draw.normal(0, 1, (width, width))
    model = LOMDML(dims={"m0": width}, rank=4, init=init, dtype="float64")
    model.start({"m0": X})
    W, rows = model.matrices["m0"], projections.start(X, 4, init)
    np.testing.assert_allclose(W / np.linalg.norm(W), rows / np.linalg.norm(rows), rtol=1e-7, atol=1e-9)


def test_a_failed_first_call_leaves_the_learner_unstarted():
    features, _, rows, _ = world(10, items=20_000)
    # With seed 0 it lies outside the start's sample; otherwise the start itself refuses.
    features["m0"][rows[4, 0]] = np.nan
    model = learner(features, "pca", rank=2)
    with pytest.raises((FeedbackError, StartError)):
        model.learn_many(rows, features)
    with pytest.raises(NotStarted):
        _ = model.metric


def test_too_few_rows_for_a_start_are_refused_with_what_to_do():
    features, _, _, _ = world(11, items=4)
    with pytest.raises(StartError, match=r"'m0': pca of rank 5 needs more than 5 rows, got 4.*init='gaussian'"):
        learner(features, "pca", rank=5).start(features)


def test_items_that_are_all_alike_start_unscaled_with_a_warning():
    features, _, _, _ = world(12)
    features["m1"][:] = 1.0
    model = learner(features, "pca", rank=2)
    with pytest.warns(UserWarning, match="modality 'm1': all sampled items are alike"):
        model.start(features)
    # Unscaled rows of a start by principal components are of length 1.
    np.testing.assert_allclose(np.linalg.norm(model.matrices["m1"], axis=1), 1.0, rtol=1e-6)
    assert np.all(np.linalg.norm(model.matrices["m0"], axis=1) < 0.9)


@pytest.mark.parametrize(
    ("option", "value"),
    [("rank", 0), ("rank", 1.5), ("eta", 0), ("eta", "fast"), ("beta", 0), ("beta", 1.1), ("memory", 0.5),
     ("gamma", float("nan")), ("step", "sgd"), ("init", "zeros"), ("average", -1), ("dtype", "float16"), ("seed", -1),
     ("dims", {})],
)  # fmt: skip
def test_a_hyperparameter_out_of_range_is_refused_by_name(option, value):
    with pytest.raises(ParameterError, match=option):
        LOMDML(**{"dims": {"a": 3}, option: value})


def test_a_clone_is_fresh_and_has_the_same_parameters():
    features, starts, rows, _ = world(13)
    model = learner(features, starts, eta=0.5)
    model.learn_many(rows, features)
    twin = model.clone()
    assert (twin.eta, twin.version) == (0.5, 0)
    np.testing.assert_array_equal(twin.matrices["m0"], starts["m0"].astype(np.float32))


def test_inputs_are_untouched():
    features, starts, rows, _ = world(14)
    before = {name: x.copy() for name, x in features.items()}
    rows_before = rows.copy()
    learner(features, starts).learn_many(rows, features)
    np.testing.assert_array_equal(rows, rows_before)
    for name, x in features.items():
        np.testing.assert_array_equal(x, before[name])


@pytest.mark.parametrize("average", [1, 7, BLOCK, 3 * BLOCK, 1000])
@pytest.mark.parametrize("events", [1, 5, BLOCK, 3 * BLOCK + 2, 6 * BLOCK])
def test_the_averaged_metric_is_the_running_mean_of_matrices_and_weights(average, events):
    features, starts, rows, _ = world(15)
    options = {"dtype": "float64", "beta": 0.9}
    plain, averaged = learner(features, starts, **options), learner(features, starts, average=average, **options)
    averaged.learn_many(rows[:events], features)
    matrices, weights = [], []
    for row in rows[:events]:
        plain.learn_one(row, features)
        matrices.append(plain.matrices["m0"])
        weights.append(np.array(list(plain.weights.values())))
    metric = averaged.metric
    np.testing.assert_allclose(metric.matrices["m0"], projections.running_means(matrices, BLOCK, average), rtol=1e-12)
    served = list(metric.weights.values())
    np.testing.assert_allclose(served, projections.running_means(weights, BLOCK, average), rtol=1e-12)
    np.testing.assert_allclose(averaged.matrices["m0"], plain.matrices["m0"])


def test_damaged_state_is_refused():
    features, starts, _, _ = world(16)
    data = learner(features, starts).to_bytes()
    for damaged in (data[:-3], data[:40], b"", data[:-9] + bytes(9), b"\x80\x04." + data):
        with pytest.raises(CorruptError):
            LOMDML.from_bytes(damaged)


def test_modalities_keep_the_order_they_were_given_in_across_bytes():
    names = ["shape", "color", *(f"x{i}" for i in range(11))]
    draw = np.random.default_rng(17)
    features = {name: draw.normal(0, 1, (40, 6)) for name in names}
    rows = draw.integers(0, 40, (100, 3))
    whole, model = learner(features, "pca", rank=2), learner(features, "pca", rank=2)
    whole.learn_many(rows, features)
    model.learn_many(rows[:50], features)
    model = LOMDML.from_bytes(model.to_bytes())
    model.learn_many(rows[50:], features)
    assert model.to_bytes() == whole.to_bytes()
    assert model.weights == whole.weights


@pytest.mark.parametrize("scale", [1e-12, 1e9, 1e15])
def test_float32_features_of_any_size_are_learned_with_the_exact_step(scale):
    features, _, rows, _ = world(18)
    features = {name: (x * scale).astype(np.float32) for name, x in features.items()}
    model = learner(features, "gaussian", eta=10.0)
    model.learn_many(rows, features)
    assert all(np.isfinite(w).all() for w in model.matrices.values())
    assert model.version == len(rows)


def test_comparisons_without_a_difference_move_nothing():
    features, starts, rows, _ = world(19)
    features = {name: x.astype(np.float32) for name, x in features.items()}
    rows[:, 2] = rows[:, 1]
    rows[::2] = rows[::2, :1]
    model = learner(features, starts, eta=1e6)
    model.learn_many(rows, features)
    for name, W in model.matrices.items():
        np.testing.assert_allclose(W, starts[name], rtol=1e-5, atol=1e-6)


def test_numpy_numbers_as_hyperparameters_travel_as_bytes():
    features, _, rows, _ = world(20)
    dims = {name: np.int64(x.shape[1]) for name, x in features.items()}
    model = LOMDML(dims=dims, rank=np.int64(2), eta=np.float32(0.01), average=np.int32(4))
    model.learn_many(rows, features)
    assert LOMDML.from_bytes(model.to_bytes()).version == len(rows)


def test_a_bad_item_is_named_by_the_row_that_was_given():
    draw = np.random.default_rng(21)
    features = {"m0": draw.normal(0, 1, (1000, 3))}
    features["m0"][900] = np.nan
    with pytest.raises(FeedbackError, match="comparison 1: item in row 900 of modality 'm0'"):
        LOMDML(dims={"m0": 3}, init={"m0": np.eye(3)}).learn_many([[1, 2, 3], [5, 900, 7]], features)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("init", 5, r"init=5: expected the name of a start, or arrays by name$"),
        ("init", {"other": [[1.0]]}, r"init of modalities=\['other'\]: expected arrays for \['any'\]$"),
        ("step", 1 << 60, r"expected 'pa' or 'ogd'$"),
    ],
)
def test_a_refused_option_is_reported_as_it_was_given_and_with_what_it_may_be(option, value, says):
    with pytest.raises(ParameterError, match=says):
        LOMDML(dims={"any": 1}, **{option: value})


def test_models_of_one_size_share_working_space_and_learn_as_if_it_was_theirs():
    features, starts, triplets, _ = world(3)
    alone = [learner(features, starts) for _ in range(2)]
    copies = [copy.deepcopy(learner(features, starts))]
    copies.append(LOMDML.from_bytes(copies[0].to_bytes()))
    assert copies[0]._engine.work is copies[1]._engine.work
    halves = triplets[:75], triplets[75:]
    for model, half in zip(alone, halves, strict=True):
        model.learn_many(half, features)
    for rows in zip(*halves, strict=True):
        for model, row in zip(copies, rows, strict=True):
            model.learn_one(row, features)
    assert [model.to_bytes() for model in copies] == [model.to_bytes() for model in alone]
