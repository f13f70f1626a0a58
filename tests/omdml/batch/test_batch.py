"""Batch starts: each reaches the optimum of its problem, as solvers that are not ours find it."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import LEARNERS, OMDML, Diagonal, Qwise, Signed
from omdml.batch import batch_start, fit_full, fit_pairs, fit_ranked, fit_vector
from omdml.builders import from_labels, from_ordered_pairs
from omdml.errors import FeedbackError, ParameterError, StartError
from tests.naive import batch as naive
from tests.support.deep import examples

COMPARISON_SOLVERS = [fit_full, fit_vector, fit_ranked]


def world(seed, count=40, size=4):
    """Items of which half the coordinates tell the class, and quadruplets of which a tenth contradict it."""
    draw = np.random.default_rng(seed)
    label = draw.integers(0, 3, 30)
    x = draw.normal(0, 1, (30, size)) + 2 * np.eye(3)[label][:, np.arange(size) % 3] * (np.arange(size) < size / 2)
    triplets = from_labels(label, count, seed)
    rows = triplets[:, [0, 1, 0, 2]]
    wrong = draw.random(count) < 0.1
    rows[wrong] = rows[wrong][:, [2, 3, 0, 1]]
    return rows, x, draw.choice([0.0, 0.5, 1.0, 2.0], count)


worlds = st.builds(world, st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 6))
weights = st.floats(-3, 3).map(lambda power: 10.0**power)


@given(worlds, weights, st.sampled_from([(1, 0), (0, 1), (1, 1)]))
@settings(max_examples=examples(25), deadline=None)
def test_a_full_matrix_is_as_good_as_the_interior_point_solvers(drawn, weight, kind):
    rows, x, margin = drawn
    lam, trace = weight * kind[0], weight * kind[1]
    M = fit_full(rows, {"x": x}, margin, lam=lam, trace=trace)["x"]
    best = naive.semidefinite_optimum(rows, x, margin, lam, trace)
    assert naive.full_objective(M, rows, x, margin, lam, trace) == pytest.approx(best, rel=1e-6, abs=1e-7)
    np.testing.assert_array_equal(M, M.T)
    assert np.linalg.eigvalsh(M)[0] >= -1e-12 * np.abs(M).max()


@given(worlds, weights, st.booleans(), st.sampled_from([0.01, 0.05, 0.5]))
@settings(max_examples=examples(25), deadline=None)
def test_a_vector_is_as_good_as_scipys(drawn, lam, signed, h):
    rows, x, margin = drawn
    w = fit_vector(rows, {"x": x}, margin, lam=lam, signed=signed, h=h)["x"]
    best = naive.vector_optimum(rows, x, margin, lam, h, signed)
    assert naive.vector_objective(w, rows, x, margin, lam, h, signed)[0] <= best * (1 + 1e-6) + 1e-9
    assert signed or (w >= 0).all()


@given(worlds, weights)
@settings(max_examples=examples(15), deadline=None)
def test_alike_weights_are_as_good_as_scipys(drawn, lam):
    rows, x, margin = drawn
    w = fit_ranked(rows, {"x": x}, margin, lam=lam)["x"]
    best = naive.ranked_optimum(rows, x, margin, lam)
    assert naive.ranked_objective(w, rows, x, margin, lam) <= best * (1 + 1e-6) + 1e-7
    assert (w >= 0).all()


@given(worlds, weights)
@settings(max_examples=examples(15), deadline=None)
def test_weights_from_pairs_are_as_good_as_scipys(drawn, lam):
    rows, x, _ = drawn
    pairs, similar = np.concatenate([rows[:, :2], rows[:, 2:]]), np.arange(2 * len(rows)) < len(rows)
    w = fit_pairs(pairs, {"x": x}, similar, lam=lam)["x"]
    best = naive.pairs_optimum(pairs, x, similar, lam)
    # The solver stops at a gap of 1e-8 if the objective is small.
    assert naive.pairs_objective(w, pairs, x, similar, lam) <= best * (1 + 1e-6) + 1e-8


def test_a_fantope_brings_the_rank_down_to_that_of_the_world():
    # Given distances that two of six directions make
    draw = np.random.default_rng(0)
    x, L = draw.normal(0, 1, (60, 6)), draw.normal(0, 1, (2, 6))
    rows = draw.integers(0, 60, (300, 4))
    near, far = (((x[rows[:, i]] - x[rows[:, i + 1]]) @ L.T) ** 2 for i in (0, 2))
    rows = np.where((near.sum(axis=1) > far.sum(axis=1))[:, None], rows[:, [2, 3, 0, 1]], rows)
    # If the four smallest eigenvalues are pressed down
    plain, pressed = (fit_full(rows, {"x": x}, lam=10.0, mu=mu, k=4)["x"] for mu in (0.0, 100.0))
    # I expect a rank of two, and a better objective than without
    assert np.linalg.matrix_rank(plain) > 2
    assert np.linalg.matrix_rank(pressed, tol=1e-6) == 2
    objectives = [naive.full_objective(M, rows, x, np.ones(300), 10.0, 0, 100.0, 4) for M in (plain, pressed)]
    assert objectives[1] < objectives[0]


@pytest.mark.parametrize("learner", [Qwise, OMDML])
def test_a_fantope_presses_down_all_of_a_modality_with_few_eigenvalues(learner):
    # Given a modality of three dimensions, of which more than all are to be pressed down
    rows, x, _ = world(0, size=8)
    features = {"big": x, "small": x[:, :3].copy()}
    matrices = []
    for k in (3, 5):
        small = learner(dims={"small": 3}, mu=0.01, k=k, dtype="float64")
        start = batch_start(small, rows, features)
        small.learn_many(rows, features)
        matrices.append((start["small"], small.matrices["small"]))
    # I expect what pressing down all of them gives, beside a modality that has more
    for asked, all_of_them in zip(matrices[1], matrices[0], strict=True):
        np.testing.assert_array_equal(asked, all_of_them)
    both = learner(dims={"big": 8, "small": 3}, mu=0.01, k=5)
    assert both.learn_many(rows, features).scores.size
    assert {name: M.shape for name, M in batch_start(both, rows, features).items()} == {"big": (8, 8), "small": (3, 3)}


def test_modalities_side_by_side_are_one_problem_without_terms_between_them():
    rows, x, margin = world(0, size=6)
    parts = {"one": x[:, :4], "other": x[:, 4:]}
    for solver in (fit_vector, fit_ranked):
        together = solver(rows, parts, margin)
        np.testing.assert_allclose(
            np.concatenate(list(together.values())), solver(rows, {"x": x}, margin)["x"], rtol=1e-6
        )
    matrices = fit_full(rows, parts, margin)
    assert {name: M.shape for name, M in matrices.items()} == {"one": (4, 4), "other": (2, 2)}


@pytest.mark.parametrize("solver", [fit_vector, fit_ranked])
def test_coordinates_of_a_group_share_their_weight(solver):
    rows, x, margin = world(1, size=6)
    group = np.array([0, 1, 0, 2, 2, 1])
    w = solver(rows, {"x": x}, margin, group=group)["x"]
    np.testing.assert_array_equal(w, w[[2, 5, 0, 4, 3, 1]])


@pytest.mark.parametrize("solver", COMPARISON_SOLVERS)
def test_triplets_are_quadruplets_that_share_the_query(solver):
    rows, x, margin = world(2)
    triplets = rows[rows[:, 0] == rows[:, 2]]
    margin = margin[rows[:, 0] == rows[:, 2]]
    from_triplets = solver(triplets[:, [0, 1, 3]], {"x": x}, margin)
    from_quadruplets = solver(triplets, {"x": x}, margin)
    np.testing.assert_array_equal(from_triplets["x"], from_quadruplets["x"])


@pytest.mark.parametrize("solver", COMPARISON_SOLVERS)
def test_contradictions_stay_bounded(solver):
    rows, x, _ = world(3)
    both = np.concatenate([rows, rows[:, [2, 3, 0, 1]]])
    assert np.abs(solver(both, {"x": x}, lam=1e-3)["x"]).max() < 10


@pytest.mark.parametrize("solver", COMPARISON_SOLVERS)
def test_the_same_log_gives_the_same_bytes(solver):
    rows, x, margin = world(4)
    assert solver(rows, {"x": x}, margin)["x"].tobytes() == solver(rows, {"x": x}, margin)["x"].tobytes()


@pytest.mark.parametrize("unit", [1e-6, 1e6])
@pytest.mark.parametrize("solver", COMPARISON_SOLVERS)
def test_other_units_of_the_features_scale_the_result(solver, unit):
    rows, x, margin = world(5)
    here = solver(rows, {"x": x}, margin, lam=0.1)["x"]
    there = solver(rows, {"x": unit * x}, margin, lam=0.1 * unit**4)["x"]
    np.testing.assert_allclose(there * unit**2, here, rtol=2e-3, atol=1e-4 * np.abs(here).max())


@pytest.mark.parametrize("solver", COMPARISON_SOLVERS)
def test_bad_input_is_refused_with_what_to_do(solver):
    rows, x, _ = world(6)
    with pytest.raises(StartError, match="there are no comparisons: a batch start needs at least one"):
        solver(np.empty((0, 4), int), {"x": x})
    with pytest.raises(FeedbackError, match=r"shape \(40, 2\)"):
        solver(rows[:, :2], {"x": x})
    with pytest.raises(FeedbackError, match="comparison 0 names rows"):
        solver([[0, 1, 2, 30]], {"x": x})
    with pytest.raises(FeedbackError, match=r"margin=\[1.0, 2.0\] of shape"):
        solver(rows, {"x": x}, margin=[1.0, 2.0])
    with pytest.raises(ParameterError, match="lam="):
        solver(rows, {"x": x}, lam=0.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
@pytest.mark.parametrize("solver", COMPARISON_SOLVERS)
def test_a_value_that_cannot_be_learned_from_is_named_by_its_comparison(solver, bad):
    rows, x, _ = world(7)
    x[rows[5, 0]] = bad
    first = int(np.flatnonzero((rows == rows[5, 0]).any(axis=1))[0])
    with pytest.raises(FeedbackError, match="leave it out") as caught:
        solver(rows, {"x": x})
    assert caught.value.row == first


@pytest.mark.parametrize("options", [{"k": -1}, {"mu": 1.0}, {"mu": -1.0, "k": 1}, {"trace": np.nan}])
def test_fewer_than_no_eigenvalues_and_other_nonsense_are_refused(options):
    rows, x, _ = world(8)
    with pytest.raises(ParameterError):
        fit_full(rows, {"x": x}, **options)


def test_a_dissimilar_pair_of_equal_items_is_named():
    x = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(StartError, match="pair 1 is dissimilar, but its items are the same"):
        fit_pairs([[0, 1], [1, 2]], {"x": x}, np.array([True, False]))


def test_without_clarabel_the_error_says_how_to_get_it(monkeypatch):
    def missing(name, *rest):
        if name == "clarabel":
            raise ImportError(name)
        return imported(name, *rest)

    imported = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", missing)
    rows, x, _ = world(9)
    with pytest.raises(StartError, match=r"pip install 'omdml\[batch\]'"):
        fit_ranked(rows, {"x": x})


def begun(learner, **options):
    """A learner of two modalities in other units, one without information; and one begun at its batch start."""
    rows, x, margin = world(10, count=120)
    draw = np.random.default_rng(0)
    items = {"x": 40 * x, "noise": draw.normal(0, 0.01, (30, 3))}
    plain = learner(dims={"x": 4, "noise": 3}, dtype="float64", **options)
    start = batch_start(plain, rows[:60], items, margin[:60])
    return plain, learner(dims=plain.dims, dtype="float64", init=start, **options), rows, items, margin


@pytest.mark.parametrize(
    ("learner", "options"),
    [
        (Qwise, {}),
        (Qwise, {"mu": 0.1, "k": 2, "trace": 0.001}),
        (OMDML, {}),
        (Diagonal, {}),
        (Diagonal, {"regulariser": "frobenius", "groups": {"x": 2}, "lam": 0.0}),
    ],
)
def test_a_learner_makes_fewer_mistakes_after_its_batch_start(learner, options):
    plain, started, rows, items, margin = begun(learner, **options)
    mistakes = [model.learn_many(rows[60:], items, margin=margin[60:]).mistakes for model in (plain, started)]
    assert mistakes[1] < mistakes[0]


def test_an_attribute_is_known_from_its_batch_start():
    draw = np.random.default_rng(0)
    age = draw.uniform(0, 80, 200)
    faces = {"face": np.stack([age / 80 + draw.normal(0, 0.1, 200), draw.normal(0, 1, 200)], axis=1)}
    rows, margin = from_ordered_pairs(age.round(-1), 500, seed=0)
    start = batch_start(Signed(dims={"face": 2}), rows[:200], faces, margin[:200])
    plain, begun = Signed(dims={"face": 2}), Signed(dims={"face": 2}, init=start)
    mistakes = [model.learn_many(rows[200:], faces, margin=margin[200:]).mistakes for model in (plain, begun)]
    assert mistakes[1] < mistakes[0]


@pytest.mark.parametrize("name", sorted(set(LEARNERS) - {"qwise", "omdml", "diagonal", "signed"}))
def test_a_learner_without_a_batch_form_says_so(name):
    learner = LEARNERS[name](**next(iter(LEARNERS[name]._unit_test_params())))
    with pytest.raises(StartError, match=f"{name} has no batch form"):
        batch_start(learner, [[0, 1, 2, 3]], {})


@pytest.mark.parametrize("group", [[-1, 0, 1], [0, 0, 2]], ids=str)
def test_groups_with_gaps_are_refused(group):
    with pytest.raises(StartError, match=r"expected 0, 1, \.\.\. without gaps"):
        fit_vector([[0, 1, 2]], {"x": np.eye(3)}, group=group)
