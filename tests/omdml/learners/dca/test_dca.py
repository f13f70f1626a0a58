"""DCA against its slow twin, its closed form and the golden numbers, in any chunking, to the byte; what it refuses."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import DCA
from omdml.comparisons import weights
from omdml.engines.second_order import experts
from omdml.engines.second_order.discriminant import discriminant_rows, rows_near_earlier
from omdml.engines.second_order.refresh_schedule import next_refresh
from omdml.errors import CorruptError, FeedbackError, ParameterError, StartError
from omdml.initial import coordinates_start, principal_start
from omdml.snapshot import pack, unpack
from tests.naive import dca as naive
from tests.support.deep import examples
from tests.support.learning.dca import assert_serves, centred, in_chunks, in_units, learner, served, with_pairs, world

GOLDEN = Path(__file__).parents[3] / "golden"


def opinions(events, draw):
    """What each of these triplets counts for, if they come from searches of 1 to 30 triplets."""
    counts = draw.integers(1, 31, events)
    return np.repeat(weights(counts), counts)[:events]


@settings(max_examples=examples(20), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    dims=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    rank=st.sampled_from([2, 7, 512]),
    memory=st.sampled_from([0, 30, 1000]),
    mixed=st.sampled_from([(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0.5, 0.5), (0, 0.1, 0.9), (0.4, 0.3, 0.3)]),
)
def test_the_engine_equals_the_slow_twin(seed, dims, rank, memory, mixed):
    features, rows, _, draw = world(seed, dims)
    rows, counts = with_pairs(rows, mixed, draw), opinions(len(rows), draw)
    model = learner(features, rank=rank, memory=memory, dtype="float64")
    result = model.learn_many(rows, features, weight=counts).scores
    scores, N, n, experts, shares = naive.dca(rows, *centred(model, features), memory, counts=counts)
    np.testing.assert_allclose(result, scores, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.matrices["near"], N / (n or 1), rtol=1e-9, atol=1e-9)
    assert_serves(model, experts, shares, rtol=1e-6, atol=1e-8)
    assert model.mistakes == (result > 0).sum()


@pytest.mark.parametrize("sizes", [[1], [1000], [3, 40, 0, 7]], ids=["one by one", "all at once", "in chunks"])
def test_the_golden_numbers_are_reproduced(sizes):
    golden = np.load(GOLDEN / "dca.npz")
    features = {f"m{i}": golden[f"X{i}"] for i in range(2)}
    init = {name: golden[name] for name in ("mean", "basis", "deviations")}
    model = learner(features, init=init, memory=float(golden["memory"]), dtype="float64")
    model = in_chunks(model, golden["events"], features, itertools.cycle(sizes))
    np.testing.assert_allclose(model.matrices["near"], golden["near"], rtol=1e-9, atol=1e-12)
    experts, names = ({name: golden[name] for name in ("items", "far")}, ("plain", "items", "far"))
    assert_serves(model, experts, dict(zip(names, golden["shares"], strict=True)), rtol=1e-7, atol=1e-10)
    assert model.mistakes == golden["mistakes"]


@pytest.mark.parametrize("d", [1, 5, 40])
def test_the_rows_are_a_root_of_the_closed_form(d):
    draw = np.random.default_rng(d)
    x = draw.normal(0, 1, (3 * d, d)) * 0.4
    y = draw.normal(0, 1, (3 * d, d))
    near, everything = x.T @ x / len(x), y.T @ y / len(y)
    others = {"one": np.triu(everything), "less": np.triu(0.8 * everything), "none": 1e-3 * np.eye(d)}
    results = discriminant_rows(np.triu(near), others, 0.05)
    assert "none" not in results
    for name, size in (("one", 1.0), ("less", 0.8)):
        rows, M = results[name], naive.closed_form(near + 0.05 * np.eye(d), size * everything)
        assert np.linalg.matrix_rank(M, tol=1e-9) == len(rows) > 0
        np.testing.assert_allclose(rows.T @ rows, M, rtol=1e-8, atol=1e-10)
        assert (rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)] > 0).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-8), (np.float32, 1e-4)])
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15])
def test_rows_near_earlier_ones_are_those_of_one_step_of_subspace_iteration(dtype, tolerance, scale):
    draw = np.random.default_rng(0)
    d, k = 150, 12
    near, other = (x.T @ x / len(x) for x in (draw.normal(0, 0.9, (400, d)), draw.normal(0, 1, (400, d))))
    S, earlier = near + 0.05 * np.eye(d), draw.normal(0, 1, (k, d))
    X = np.linalg.solve(S, other @ earlier.T)
    b, V = scipy.linalg.eigh(X.T @ other @ X, X.T @ S @ X)
    gains = np.where(b > 1, b - 1, 0.0)
    large = gains.cumsum() > 0.005 * gains.sum()
    expected = X @ V[:, large] @ np.diag(1 - 1 / b[large]) @ V[:, large].T @ X.T

    scaled = in_units(np.triu(near) * scale**2, {"one": np.triu(other) * scale**2}, 0.05 * scale**2, dtype)
    near_rows = rows_near_earlier(scaled, {"one": earlier / scale})["one"].astype(float) * scale

    assert 0 < len(near_rows) == large.sum() <= k
    np.testing.assert_allclose(near_rows.T @ near_rows, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("rows", [0, 12, 70])
def test_a_name_is_left_out_if_its_earlier_rows_are_no_guide(rows):
    draw = np.random.default_rng(1)
    d = 130
    near = (x := draw.normal(0, 0.9, (400, d))).T @ x / len(x)
    # Two directions are left: twelve earlier ones lead to hardly more than these. 70 are too many to save time.
    other = 3 * np.diag([1.0, 1.0] + [1e-3] * (d - 2)) if rows == 12 else 1.5 * np.eye(d)
    earlier = draw.normal(0, 1, (rows, d)).astype(np.float32)
    compared = in_units(np.triu(near), {"one": other}, 0.05)
    assert rows_near_earlier(compared, {"one": earlier} if rows else {}) == {}


def test_a_name_is_left_out_if_its_earlier_rows_lead_to_no_direction():
    near, other, d = np.diag([9.0] + [1.0] * 127), np.diag([5.0, 3.0] + [0.5] * 126), 128
    assert rows_near_earlier(in_units(near, {"one": other}, 0.05), {"one": np.eye(1, d)}) == {}


def test_what_is_served_is_nearer_to_the_next_refresh_than_the_last_one_is():
    draw = np.random.default_rng(4)
    features = {"x": draw.normal(0, 1, (400, 160)) + 3 * np.eye(160)[draw.integers(0, 4, 400)]}
    label = features["x"][:, :4].argmax(axis=1)
    rows = np.array([[q, *(draw.choice(np.flatnonzero(test(label, label[q]))) for test in (np.equal, np.not_equal))]
                     for q in draw.integers(0, 400, 1100)])  # fmt: skip
    model = learner(features)
    # There is a refresh at 922; the next one is at 1,107.
    model.learn_many(rows[:922], features)
    earlier = served(model)
    model.learn_many(rows[922:], features)
    between = served(model)
    model._engine._flush()
    model._engine.refresh()
    model._newest = None

    for name, exact in served(model).items():
        assert off(between[name], exact) < 0.25 * off(earlier[name], exact)


def off(M, exact):
    """How far off the direction of a metric is: one less the cosine."""
    return 1 - np.vdot(M, exact) / np.linalg.norm(M) / np.linalg.norm(exact)


@settings(max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    dtype=st.sampled_from(["float32", "float64"]),
    dims=st.sampled_from([(33, 9), (301,), (2,)]),
    memory=st.sampled_from([0, 50]),
    mixed=st.sampled_from([(1, 0, 0), (0, 0.5, 0.5), (0.4, 0.3, 0.3)]),
    sizes=st.lists(st.integers(0, 90), min_size=1),
)
def test_any_chunking_and_any_restart_give_the_same_bytes(seed, dtype, dims, memory, mixed, sizes):
    features, rows, _, draw = world(seed, dims, events=300)
    rows, counts = with_pairs(rows, mixed, draw), opinions(len(rows), draw)
    in_one_call, again = (learner(features, dtype=dtype, memory=memory) for _ in range(2))
    scores = in_one_call.learn_many(rows, features, weight=counts).scores
    again = in_chunks(again, rows, features, iter(sizes * len(rows)), counts)
    assert again.to_bytes() == in_one_call.to_bytes()
    assert again.metric.embed(features).tobytes() == in_one_call.metric.embed(features).tobytes()
    single = learner(features, dtype=dtype, memory=memory)
    each = zip(rows[:100], counts, strict=False)
    assert [single.learn_one(row, features, weight=w).scores[0] for row, w in each] == scores[:100].tolist()


def test_what_is_served_knows_every_triplet_and_scores_change_at_due_versions():
    features, rows, _, _ = world(3, events=60)
    model, served, scored = learner(features), [], []
    for version, row in enumerate(rows, 1):
        model.start(features)
        embedded, rows_before = model.metric.embed(features).tobytes(), used(model)
        model.learn_one(row, features)
        served += [version] * (model.metric.embed(features).tobytes() != embedded)
        scored += [version] * (used(model) != rows_before)
    assert served == list(range(1, 61))
    assert scored == list(itertools.takewhile(lambda version: version <= 60, iterated(next_refresh, 1)))
    assert scored[:11] == [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18]


def used(model):
    """Bytes of the learned rows that score."""
    return model._engine.to_tensors()["W"].tobytes()


def iterated(function, value):
    """A value, what a function makes of it, what it makes of that, and so on."""
    while True:
        yield value
        value = function(value)


def test_features_that_are_principal_coordinates_need_no_basis():
    features, rows, _, _ = world(25, dims=(20,), items=300, events=400)
    identity = learner(features, init="coordinates", dtype="float64")
    identity.learn_many(rows, features)
    state = identity._engine.state
    assert state.basis.shape == (0, 20)
    start = {"mean": state.mean, "basis": np.eye(20), "deviations": state.deviations}
    written_out = learner(features, init=start, dtype="float64")
    written_out.learn_many(rows, features)
    embedded = [model.metric.embed(features) for model in (identity, written_out)]
    np.testing.assert_allclose(embedded[0] @ embedded[0].T, embedded[1] @ embedded[1].T, atol=1e-7)
    assert len(identity.to_bytes()) < len(written_out.to_bytes())
    assert DCA.from_bytes(identity.to_bytes()).to_bytes() == identity.to_bytes()
    first = coordinates_start(features, 5, seed=0)
    np.testing.assert_array_equal(first["basis"], np.eye(5, 20))
    np.testing.assert_allclose(first["deviations"], features["m0"].std(axis=0)[:5])


@pytest.mark.parametrize("version", [14, 900])
def test_what_stops_a_refresh_half_way_leaves_nothing_behind(version, monkeypatch):
    features, rows, _, _ = world(20, events=1400)
    model, twin = learner(features), learner(features)
    for each_model in (model, twin):
        each_model.learn_many(rows[:version], features)
    with monkeypatch.context() as broken:
        broken.setattr(experts, "discriminant_rows", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.learn_many(rows[version:], features)
    assert model.to_bytes() == twin.to_bytes()
    for each_model in (model, twin):
        each_model.learn_many(rows[version:], features)
    assert model.to_bytes() == twin.to_bytes()


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("version", "events"), [(14, 5), (1210, 64), (1320, 40)])
def test_a_bad_row_behind_a_refresh_or_a_closed_block_changes_nothing(version, events):
    features, rows, _, _ = world(21, events=1400)
    model, twin = learner(features), learner(features)
    for each_model in (model, twin):
        each_model.learn_many(rows[:version], features)
    broken = {name: np.concatenate([x, np.full((1, x.shape[1]), np.nan)]) for name, x in features.items()}
    bad = rows[version : version + events].copy()
    bad[-1, 2] = len(features["m0"])
    with pytest.raises(FeedbackError) as caught:
        model.learn_many(bad, broken)
    assert caught.value.row == events - 1
    assert model.to_bytes() == twin.to_bytes()


@pytest.mark.parametrize("exponent", [-150, -158, -160, -161, -161.5, -200, -310])
@pytest.mark.parametrize("events", [1, 2, 3, 5, 20])
def test_what_was_learned_of_items_too_small_to_be_squared_can_be_read_again(exponent, events):
    features, rows, _, _ = world(3)
    small = {name: x * 10.0**exponent for name, x in features.items()}
    model = learner(small, dtype="float64")
    model.learn_many(rows[:events], small)
    assert np.isfinite(model.metric.embed(small)).all()
    assert DCA.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_item_too_large_to_be_squared_is_refused_and_nothing_is_learned(dtype):
    features, rows, _, _ = world(14, events=300)
    features = {name: x.astype(dtype) for name, x in features.items()}
    model, twin = learner(features, dtype=dtype), learner(features, dtype=dtype)
    for each_model in (model, twin):
        each_model.learn_many(rows[:100], features)
    broken = {name: x.copy() for name, x in features.items()}
    broken["m0"][rows[250, 2]] = 1e30 if dtype == "float32" else 1e200
    first = 100 + int(np.flatnonzero((rows[100:] == rows[250, 2]).any(axis=1))[0])
    with pytest.raises(FeedbackError, match="would overflow") as caught:
        model.learn_many(rows[100:], broken)
    assert caught.value.row == first - 100
    assert model.to_bytes() == twin.to_bytes()
    for each_model in (model, twin):
        each_model.learn_many(rows[100:], features)
    assert model.to_bytes() == twin.to_bytes()


@pytest.mark.parametrize(
    ("option", "value"),
    [("rank", 0), ("rank", 5000), ("rank", 2.5), ("memory", 0.5), ("memory", -1), ("memory", np.nan), ("init", "wpca"),
     ("init", 5), ("init", None),
     ("dtype", "float16"), ("seed", -1)],
)  # fmt: skip
def test_bad_parameters_are_refused(option, value):
    with pytest.raises(ParameterError, match=option):
        DCA(**{"dims": {"a": 3}, option: value})


@pytest.mark.parametrize(
    "change",
    [{"mean": np.zeros(3)}, {"basis": np.eye(5)}, {"deviations": np.ones(3)},
     {"deviations": np.array([1.0, -1])}, {"deviations": np.float64(2)}, {"basis": np.zeros((0, 4))},
     {"basis": 2 * np.eye(2, 4)}, {"basis": np.full((2, 4), 1e300)}, {"deviations": np.array([1e200, 1.0])}],
)  # fmt: skip
def test_a_start_that_does_not_fit_is_refused(change):
    start = {"mean": np.zeros(4), "basis": np.eye(2, 4), "deviations": np.array([2.0, 1.0])}
    assert DCA(dims={"a": 4}, init=start).version == 0
    with pytest.raises(ParameterError, match="init"):
        DCA(dims={"a": 4}, init={**start, **change})


@pytest.mark.parametrize(
    ("basis", "product"),
    [([[1, 0], [0.05, 1]], "row 0 and row 1 is 0.05, expected 0"),
     (np.full((2, 2), 0.5**0.5), "row 0 and row 1 is 1, expected 0"),
     ([[1, 0], [0, 0]], "row 1 and row 1 is 0, expected 1")],
)  # fmt: skip
def test_directions_that_are_not_orthonormal_are_refused(basis, product):
    start = {"mean": np.zeros(2), "deviations": np.ones(2)}
    rounded = np.linalg.qr(np.random.default_rng(0).normal(size=(2, 2)))[0].astype(np.float16)
    assert DCA(dims={"a": 2}, init={**start, "basis": rounded}).version == 0
    with pytest.raises(ParameterError, match=f"init: rows of basis are not orthonormal.*{product}.*numpy.linalg.qr"):
        DCA(dims={"a": 2}, init={**start, "basis": basis})


@pytest.mark.parametrize(
    ("part", "value"),
    [("used", np.array([99, 0])), ("used", np.array([-1, 2])), ("share", np.array([1.5])), ("next", np.array([1])),
     ("near", np.zeros(3)), ("far", np.zeros(3)), ("middle", np.zeros(3)), ("seen", np.zeros(3, np.uint8)),
     ("Q", np.zeros((1, 12), np.float32)), ("R", np.zeros((1, 12), np.float32)), ("S", np.zeros((1, 12), np.float32)),
     ("weights", np.ones(1)), ("weights", np.full(22, 1.5)), ("weights", np.zeros(22)),
     ("W", np.zeros((1, 12), np.float32)), ("hedge", np.full(5, -1.0)), ("basis", np.zeros((3, 12), np.float32)),
     ("basis", np.zeros(12, np.float32)), ("deviations", np.zeros(0)), ("hedge", np.zeros(4)),
     ("made", np.array([151])),
     ("next", np.array([2**60])), ("hedge", np.array([9.0, 9, 9, 151, 0])),
     ("hedge", np.array([9.0, 9, 9, 8, 0])), ("sums", np.array([-5.0, -5, -5])), ("sums", np.array([145.0, -5, 145])),
     ("sums", np.array([145.0, 0, 145])), ("sums", np.array([151.0, 145, 145])), ("sums", np.array([145.0, 145, 151])),
     ("near", np.full(78, -1.0)), ("near", np.ones(78) - 2 * np.eye(1, 78, 1)[0]), ("far", np.full(78, 1e300)),
     ("middle", np.zeros(78) + 1e300 * np.eye(1, 78, 1)[0]), ("centre", np.full(12, 1e300)),
     ("basis", np.full((12, 12), 3e38, np.float32)), ("deviations", np.full(12, -1, np.float32)),
     ("Q", np.full((5, 12), 1e38, np.float32)), ("mean", np.full(12, np.nan, np.float32)),
     ("asked", np.zeros(64, np.int64)), ("asked", np.zeros(63, np.uint64))],
)  # fmt: skip
def test_a_state_of_another_shape_is_refused(part, value):
    features, rows, _, _ = world(15)
    model = learner(features)
    model.learn_many(rows, features)
    tensors, described = unpack(model.to_bytes())
    description = {name: described[name] for name in ("learner", "parameters")}
    with pytest.raises(CorruptError):
        DCA.from_bytes(pack({**tensors, part: value}, description))


def test_a_state_of_more_triplets_than_can_be_counted_is_refused():
    features, rows, _, _ = world(15)
    model = learner(features)
    model.learn_many(rows, features)
    tensors, described = unpack(model.to_bytes())
    many = {"counts": np.array([5, 2**63 - 2, 0, 0]), "made": np.array([2**63 - 2]), "next": np.array([2**63 - 1])}
    with pytest.raises(CorruptError, match="counts are"):
        DCA.from_bytes(pack({**tensors, **many}, {name: described[name] for name in ("learner", "parameters")}))


@pytest.mark.parametrize("items", [200, 20])
def test_the_start_is_the_principal_coordinates_of_all_modalities_together(items):
    features, _, _, _ = world(16, dims=(30, 20), items=items)
    start = principal_start(features, 10, seed=0)
    x = np.concatenate(list(features.values()), axis=1)
    np.testing.assert_allclose(start["mean"], x.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(start["basis"] @ start["basis"].T, np.eye(10), atol=1e-9)
    values, vectors = np.linalg.eigh(np.cov(x.T, ddof=0))
    np.testing.assert_allclose(start["deviations"] ** 2, values[::-1][:10], rtol=1e-9)
    overlaps = np.abs(np.einsum("ij,ji->i", start["basis"], vectors[:, ::-1][:, :10]))
    np.testing.assert_allclose(overlaps, 1, atol=1e-6)
    features["m1"][3, 2] = np.nan
    with pytest.raises(StartError, match=r"row 3 of modality 'm1'.*column 2"):
        principal_start(features, 10, seed=0)
