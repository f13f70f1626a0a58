"""CP-mtML and its family against slow twins and golden numbers, in any chunking, to the byte."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from omdml import LEARNERS, CPmtML, MtLMCA, StML, UtML
from omdml.errors import CorruptError, FeedbackError, NotStarted, ParameterError, StartError
from omdml.evaluate import mean_average_precision
from omdml.metrics.base import metric_from_tensors
from omdml.snapshot import Snapshot, pack, unpack
from tests.naive import coupled as naive
from tests.support.deep import examples

GOLDEN = Path(__file__).parents[2] / "golden"
FAMILY = [CPmtML, StML, UtML, MtLMCA]
TASKS = ["look", "use", "price"]
every_learner = pytest.mark.parametrize("learner", FAMILY, ids=lambda learner: learner.name)


def world(seed, dims=(7, 4), items=40, pairs=120):
    """Items of two modalities, and pairs of three tasks at random: (features, rows, columns)."""
    draw = np.random.default_rng(seed)
    features = {f"m{i}": draw.normal(0, 1 / np.sqrt(2 * sum(dims)), (items, d)) for i, d in enumerate(dims)}
    tasks = np.array(TASKS)[draw.integers(0, 3, pairs)]
    return features, draw.integers(0, items, (pairs, 2)), {"similar": draw.random(pairs) < 0.5, "task": tasks}


def fresh(learner, features, **options):
    """A learner of these features that has begun."""
    options = {"rank": 3, "init": "gaussian", "dtype": "float64", **options}
    model = learner({name: x.shape[1] for name, x in features.items()}, TASKS, **options)
    model.start(features)
    return model


def learn(model, rows, features, columns, sizes):
    """Learn in calls of these many pairs; a size of 0 means learn_one, a negative one a way through bytes."""
    start = 0
    while start < len(rows):
        size = next(sizes)
        end = start + max(1, abs(size))
        part = {name: column[start:end] for name, column in columns.items()}
        if size == 0:
            model.learn_one(rows[start], features, similar=bool(part["similar"][0]), task=str(part["task"][0]))
        else:
            model.learn_many(rows[start:end], features, **part)
        if size < 0:
            model = type(model).from_bytes(model.to_bytes())
        start = end
    return model


@pytest.fixture(params=[[0], [1000], [3, 40, 0, 7]], ids=["one by one", "all at once", "in chunks"])
def sizes(request):
    return itertools.cycle(request.param)


def golden(name, learner, init, sizes):
    """A learner that has learned a golden file's pairs at the paper's rate, and the file."""
    with np.load(GOLDEN / f"{name}.npz") as file:
        given = dict(file)
    pairs = given["pairs"] if given["pairs"].shape[1] == 4 else np.insert(given["pairs"], 0, 0, axis=1)
    columns = {"similar": pairs[:, 3] > 0, "task": np.array(["one", "two"])[pairs[:, 0]]}
    options = {rate: float(given[rate]) for rate in ("eta", "eta0") if rate in given}
    arrays = {name: given[key] for name, key in init.items()}
    tasks = ["one", "two"] if "L0" in given else ["one"]
    model = learner({"x": given["X"].shape[1]}, tasks, step="ogd", init=arrays, dtype="float64", **options)
    learn(model, pairs[:, 1:3], {"x": given["X"]}, columns, sizes)
    assert model.updates == given["updates"]
    np.testing.assert_allclose(list(model.thresholds.values()), np.atleast_1d(given["b_out"]), rtol=1e-9)
    return model, given


def test_the_golden_numbers_of_cpmtml_are_reproduced(sizes):
    model, given = golden("cpmtml", CPmtML, {"shared": "L0", "one": "L1", "two": "L2"}, sizes)
    for name, key in (("shared", "L0_out"), ("one", "L1_out"), ("two", "L2_out")):
        np.testing.assert_allclose(model.matrices[name], given[key], rtol=1e-9)


@pytest.mark.parametrize("learner", [StML, UtML])
def test_the_golden_numbers_of_stml_are_reproduced(learner, sizes):
    name = "shared" if learner is UtML else "one"
    model, given = golden("stml", learner, {name: "L"}, sizes)
    np.testing.assert_allclose(model.matrices[name], given["L_out"], rtol=1e-9)


def test_the_golden_numbers_of_mtlmca_are_reproduced(sizes):
    model, given = golden("mtlmca", MtLMCA, {"shared": "L0"}, sizes)
    for name, key in (("shared", "L0_out"), ("one", "R1_out"), ("two", "R2_out")):
        np.testing.assert_allclose(model.matrices[name], given[key], rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    learner=st.sampled_from(FAMILY),
    eta=st.sampled_from([0.05, 0.3, 10.0]),
    gamma=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_the_blocked_engine_equals_the_slow_twin(seed, learner, eta, gamma):
    features, rows, columns = world(seed, pairs=60)
    coupled = learner in (CPmtML, MtLMCA)
    step = "pa" if eta > 0.1 else "ogd"
    model = fresh(learner, features, eta=eta, step=step, **({"gamma": gamma} if coupled else {}))
    start, shares = model.matrices, [gamma, 1.0] if coupled else [1.0]
    signs = np.where(columns["similar"], 1, -1)
    tasks = np.array([TASKS.index(task) for task in columns["task"]])
    X, options = np.concatenate(list(features.values()), axis=1), {"shares": shares, "eta": eta, "exact": step == "pa"}
    if learner is MtLMCA:
        L, R, b, scores, updates = naive.mtlmca(
            rows, signs, tasks, X, start["shared"], [start[task] for task in TASKS], **options
        )
        expected = {"shared": L, **dict(zip(TASKS, R, strict=True))}
    else:
        stacks = {CPmtML: [["shared", t] for t in TASKS], StML: [[t] for t in TASKS], UtML: [["shared"]] * 3}[learner]
        tasks = tasks * (learner is not UtML)
        expected, b, scores, updates = naive.coupled(rows, signs, tasks, X, start, stacks, **options)
        b = b[:1] if learner is UtML else b
    # If a pair comes again after an exact step, rounding decides.
    assume(np.abs(scores + 1).min() > 1e-9)
    outcome = model.learn_many(rows, features, **columns)
    np.testing.assert_allclose(outcome.scores, scores, rtol=1e-6, atol=1e-8)
    for name, matrix in expected.items():
        np.testing.assert_allclose(model.matrices[name], matrix, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose([model.thresholds[t] for t in TASKS], np.broadcast_to(b, 3), rtol=1e-7)
    assert (model.updates, model.mistakes, model.version) == (updates, (scores > 0).sum(), 60)
    assert outcome.mistakes == model.mistakes


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    learner=st.sampled_from(FAMILY),
    dtype=st.sampled_from(["float32", "float64"]),
    rank=st.sampled_from([1, 5, 11]),
    sizes=st.lists(st.integers(-40, 40), min_size=1),
)
def test_any_chunking_gives_the_same_bytes(seed, learner, dtype, rank, sizes):
    features, rows, columns = world(seed, dims=(33, 9))
    in_one_call = learn(
        fresh(learner, features, dtype=dtype, rank=rank), rows, features, columns, itertools.repeat(1000)
    )
    again = learn(fresh(learner, features, dtype=dtype, rank=rank), rows, features, columns, itertools.cycle(sizes))
    assert again.to_bytes() == in_one_call.to_bytes()
    assert again.metric.embed(features, "use").tobytes() == in_one_call.metric.embed(features, "use").tobytes()


@every_learner
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("number", [0, 7, 119])
def test_a_value_not_finite_names_its_row_and_changes_no_state(learner, value, number):
    features, rows, columns = world(4)
    rows[rows == 39] = 0
    model = learn(fresh(learner, features), rows[:5], features, columns, itertools.repeat(5))
    before = model.to_bytes()
    features["m1"][-1, 2] = value
    rows[number, 1] = 39
    with pytest.raises(FeedbackError, match=f"comparison {number}: item in row 39 of modality 'm1'") as caught:
        model.learn_many(rows, features, **columns)
    assert (caught.value.row, caught.value.reason) == (number, "not_finite")
    assert model.to_bytes() == before
    assert np.isfinite(model.metric.embed(world(4)[0], "use")).all()


@every_learner
def test_a_fixed_rate_that_diverges_is_refused_and_leaves_the_state_unchanged(learner):
    features, rows, columns = world(5)
    features = {name: 30 * x for name, x in features.items()}
    model = fresh(learner, features, step="ogd", eta=1e6, dtype="float32")
    before = model.to_bytes()
    with pytest.raises(FeedbackError, match="step='ogd'") as caught:
        model.learn_many(rows, features, **columns)
    assert caught.value.reason == "diverged"
    assert model.to_bytes() == before


@every_learner
def test_what_a_diverging_rate_leaves_behind_can_still_be_saved_and_served(learner):
    features, rows, columns = world(5)
    model = fresh(learner, features, step="ogd", eta=50.0, dtype="float32")
    for index, row in enumerate(rows):
        with contextlib.suppress(FeedbackError):
            model.learn_one(row, features, **{name: column[index] for name, column in columns.items()})
    assert model.version < len(rows)
    assert type(model).from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
    assert np.isfinite(model.metric.embed(features, "use")).all()


@settings(max_examples=examples(40), deadline=None)
@given(
    learner=st.sampled_from(FAMILY),
    eta=st.sampled_from([1e-4, 1.0, 10.0, 1e9]),
    scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e3, 1e9]),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 50),
)
def test_the_capped_step_neither_diverges_nor_collapses(learner, eta, scale, dtype, seed):
    """Contradictory pairs too: each is similar once and dissimilar once."""
    features, rows, columns = world(seed)
    features = {name: x * scale for name, x in features.items()}
    model = fresh(learner, features, eta=eta, dtype=dtype)
    for similar in (columns["similar"], ~columns["similar"]):
        model.learn_many(rows, features, similar=similar, task=columns["task"])
    for task in TASKS:
        embedded = model.metric.embed(features, task)
        assert np.isfinite(embedded).all()
        assert np.linalg.matrix_rank(embedded - embedded.mean(axis=0), rtol=1e-6) >= 3
        assert abs(model.thresholds[task]) < 100


@every_learner
def test_a_capped_step_neither_passes_the_margin_nor_raises_the_loss(learner):
    features, rows, columns = world(6)
    model = fresh(learner, features, eta=10.0)
    for row, similar, task in zip(rows, columns["similar"], columns["task"], strict=True):
        before = model.learn_one(row, features, similar=bool(similar), task=str(task)).scores[0] + 1
        embedded = model.metric.embed({name: x[row] for name, x in features.items()}, str(task))
        squared = ((embedded[0] - embedded[1]) ** 2).sum()
        after = 1 - (1 if similar else -1) * (model.thresholds[task] - squared)
        assert after <= max(before, 0) + 1e-9 if before > 0 else after == pytest.approx(before)
        assert after >= min(before, 0) - 1e-9


def test_serving_only_l0_or_only_lt_does_not_change_what_is_learned():
    features, rows, columns = world(7)
    both, shared, each_task = (fresh(CPmtML, features, serve=serve) for serve in ("both", "shared", "task"))
    for model in (both, shared, each_task):
        model.learn_many(rows, features, **columns)
    np.testing.assert_array_equal(both.matrices["use"], each_task.matrices["use"])
    stacked = np.concatenate([shared.metric.embed(features, "use"), each_task.metric.embed(features, "use")], axis=1)
    np.testing.assert_allclose(both.metric.embed(features, "use"), stacked, rtol=1e-12)
    assert shared.metric.tasks == each_task.metric.tasks == both.metric.tasks == tuple(TASKS)


@pytest.mark.parametrize(("learner", "options"), [(UtML, {}), (CPmtML, {"serve": "shared"})])
def test_tasks_of_one_metric_keep_their_names_and_an_unknown_one_is_refused(learner, options):
    features, rows, columns = world(7)
    model = fresh(learner, features, **options)
    model.learn_many(rows, features, **columns)
    metric = metric_from_tensors(model.metric.kind, *model.metric.to_tensors())
    assert metric.tasks == tuple(TASKS)
    for task in TASKS:
        np.testing.assert_array_equal(metric.embed(features, task), model.metric.embed(features))
        assert metric.same_as(task) is None
    with pytest.raises(FeedbackError, match="no task 'zz'; expected one of look, use, price"):
        metric.embed(features, "zz")


def test_without_a_task_the_shared_matrix_is_served_or_else_all_side_by_side():
    features, rows, columns = world(8)
    sizes = {}
    for learner in FAMILY:
        model = fresh(learner, features)
        model.learn_many(rows, features, **columns)
        sizes[learner.name] = model.metric.embed(features).shape[1]
    assert sizes == {"cpmtml": 3, "stml": 9, "utml": 3, "mtlmca": 3}
    lone = CPmtML({"m0": 7, "m1": 4}, rank=3)
    lone.learn_many(rows, features, similar=columns["similar"])
    np.testing.assert_array_equal(lone.metric.embed(features), lone.metric.embed(features, "default"))


@every_learner
def test_a_metric_survives_its_snapshot_and_its_scores_are_its_distances(learner):
    features, rows, columns = world(9)
    model = fresh(learner, features)
    model.learn_many(rows, features, **columns)
    data = {"model": "a", "learner": learner.name, "version": 1, "generation": "", "event_time": None}
    snapshot = Snapshot(**data, oldest_event_time=None, progress={}, metric=model.metric)
    metric = Snapshot.from_bytes(snapshot.to_bytes()).metric
    assert (metric.tasks, metric.dims) == (model.metric.tasks, {"m0": 7, "m1": 4})
    for task in (None, *metric.tasks):
        embedded = metric.embed(features, task)
        np.testing.assert_array_equal(embedded, model.metric.embed(features, task))
        scores = metric.score({name: x[0] for name, x in features.items()}, features, task)
        np.testing.assert_allclose(scores, -((embedded - embedded[0]) ** 2).sum(axis=1), rtol=1e-9, atol=1e-12)


def test_a_metric_whose_tensors_do_not_fit_is_refused():
    features, _, _ = world(10)
    metric = fresh(CPmtML, features).metric
    tensors, description = metric.to_tensors()
    for damaged in ({**tensors, "use/L": tensors["use/L"][:, :3]}, {**tensors, "use/L": tensors["use/L"][0]}):
        with pytest.raises(ValueError, match="use/L is float64"):
            type(metric).from_tensors(damaged, description)
    with pytest.raises(KeyError):
        type(metric).from_tensors({}, description)
    with pytest.raises(ValueError, match="the tasks name the matrices"):
        type(metric).from_tensors(tensors, {**description, "stacks": {"use": ["other"]}})


@every_learner
def test_a_task_never_seen_is_refused_by_row_and_name(learner):
    features, rows, _ = world(11)
    model = fresh(learner, features)
    before = model.to_bytes()
    with pytest.raises(FeedbackError, match="comparison 3 is of task 'taste', expected one of look, use") as caught:
        model.learn_many(rows[:5], features, similar=True, task=["use", "use", "look", "taste", "taste"])
    assert (caught.value.row, caught.value.reason) == (3, "unknown_task")
    with pytest.raises(FeedbackError, match="task is missing"):
        model.learn_many(rows, features, similar=True)
    assert model.to_bytes() == before
    if learner is not UtML:
        with pytest.raises(FeedbackError, match="no task 'taste'; expected one of look, use, price"):
            model.metric.embed(features, "taste")


@pytest.mark.parametrize("similar", [None, [True], 0.5, ["yes"] * 120])
def test_what_is_no_judgement_is_refused(similar):
    features, rows, columns = world(12)
    with pytest.raises(FeedbackError, match="similar="):
        fresh(CPmtML, features).learn_many(rows, features, similar=similar, task=columns["task"])


def test_one_judgement_and_one_task_hold_for_all_pairs():
    features, rows, _ = world(13)
    first, second = fresh(CPmtML, features), fresh(CPmtML, features)
    first.learn_many(rows, features, similar=True, task="use")
    second.learn_many(rows, features, similar=[True] * len(rows), task=["use"] * len(rows))
    assert first.to_bytes() == second.to_bytes()
    assert first.learn_many([], features, similar=[], task=[]).mistakes == 0


@every_learner
@pytest.mark.parametrize("init", ["pca", "wpca", "gaussian", "identity"])
def test_a_start_has_unit_spread_in_every_task(learner, init):
    draw = np.random.default_rng(14)
    features = {"m0": draw.normal(0, 5, (400, 7)), "m1": draw.normal(0, 1, (400, 4))}
    model = fresh(learner, features, init=init, rank=4)
    left, right = draw.integers(0, 400, (2, 20_000))
    for task in TASKS:
        embedded = model.metric.embed(features, task)
        assert ((embedded[left] - embedded[right]) ** 2).sum(axis=1).mean() == pytest.approx(1, abs=0.05)
        assert model.thresholds[task] == 1


def test_opposed_tasks_are_both_learned():
    """Two labels an item that have nothing to do with each other, each shown by other coordinates."""
    draw = np.random.default_rng(15)
    labels = {task: draw.integers(0, 5, 300) for task in ("look", "use")}
    parts = [draw.normal(0, 1, (5, 6))[label] + draw.normal(0, 0.5, (300, 6)) for label in labels.values()]
    features = {"m0": np.concatenate([*parts, draw.normal(0, 1, (300, 8))], axis=1)}
    model = CPmtML({"m0": 20}, ["look", "use"], rank=8)
    model.start(features)
    before = [mean_average_precision(model.metric.embed(features, t), y, np.arange(300)) for t, y in labels.items()]
    for task, label in labels.items():
        near = np.array([draw.choice(np.flatnonzero(label == kind)) for kind in label])
        for _ in range(5):
            order = draw.permutation(300)
            far = draw.integers(0, 300, 300)
            model.learn_many(np.stack([order, near[order]], axis=1), features, similar=True, task=task)
            model.learn_many(np.stack([order, far], axis=1), features, similar=label[order] == label[far], task=task)
    after = [mean_average_precision(model.metric.embed(features, t), y, np.arange(300)) for t, y in labels.items()]
    assert min(np.subtract(after, before)) > 0.2


def test_too_few_rows_for_a_start_and_a_question_before_it_say_what_to_do():
    model = CPmtML({"m0": 7, "m1": 4}, rank=5)
    with pytest.raises(NotStarted):
        _ = model.thresholds
    with pytest.raises(StartError, match="'m0 \\+ m1': wpca of rank 5 needs more than 5 rows, got 4"):
        model.start({"m0": np.ones((4, 7)), "m1": np.ones((4, 4))})


@pytest.mark.parametrize(
    ("option", "value"),
    [("tasks", []), ("tasks", "look"), ("tasks", ["shared"]), ("tasks", ["a", "a"]), ("rank", 0), ("eta", 0),
     ("eta0", -1), ("gamma", 1.5), ("step", "sgd"), ("serve", "all"), ("init", "zeros"), ("init", ["pca"]),
     ("init", {"shared": np.eye(3)}), ("init", {"shared": np.eye(3), "default": np.eye(2, 3)})],
)  # fmt: skip
def test_a_hyperparameter_out_of_range_is_refused_by_name(option, value):
    with pytest.raises(ParameterError, match=option):
        CPmtML(**{"dims": {"a": 3}, option: value})
    if option == "init":
        with pytest.raises(ParameterError, match=option):
            MtLMCA({"a": 4}, init=value)


@every_learner
def test_damaged_state_is_refused(learner):
    features, rows, columns = world(16)
    model = fresh(learner, features)
    model.learn_many(rows, features, **columns)
    tensors, metadata = unpack(model.to_bytes())
    metadata = {name: metadata[name] for name in ("learner", "parameters")}
    for damage in ({"L": tensors["L"][0]}, {"used": np.array([99])}, {"task": tensors["task"] + 9}, {"b": np.ones(7)}):
        with pytest.raises(CorruptError):
            LEARNERS[learner.name].from_bytes(pack({**tensors, **damage}, metadata))
