"""DCA's refreshes after thousands of triplets, which search directions near the last rows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from omdml import DCA
from omdml.engines.second_order import experts
from omdml.engines.second_order.discriminant import discriminant_rows, rows_near_earlier
from omdml.engines.second_order.experts import LEAST_MOVE
from omdml.engines.second_order.moments import LEARNED, covariances, scales
from omdml.engines.second_order.near_last import AllPairs, scaled_covariances
from omdml.snapshot import metric_to_bytes
from tests.support.learning.dca import in_units, learner, with_pairs, world

# Refreshes up to the second one after 8,192 triplets.
LAST, EVENTS = (2757, 3309, 3971, 4766, 5720, 6864, 8237, 9885), 9_885
SEARCHES_ALL = (2757, 3309, 3971, 4766, 8237)


# With 128 numbers the sums are of items as they come, with 130 of principal coordinates.
@pytest.fixture(scope="module", params=[128, 130])
def many(request):
    """Items with enough coordinates to search near earlier rows, and triplets by their labels."""
    features, rows, _, _ = world(5, (request.param,), items=400, events=EVENTS)
    return {"m0": features["m0"].astype(np.float32)}, rows


def test_all_directions_are_searched_up_to_4096_and_then_for_each_power_of_two(many, monkeypatch):
    features, rows = many
    model, searched = learner(features), []

    def counted(*arguments):
        searched.append(model.version)
        return discriminant_rows(*arguments)

    monkeypatch.setattr(experts, "discriminant_rows", counted)
    for begin, end in itertools.pairwise((0, *LAST)):
        model.learn_many(rows[begin:end], features)
        assert model._engine.state.made[0] == end
    assert tuple(version for version in searched if version >= LAST[0]) == SEARCHES_ALL


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-3), ("float64", 1e-9)])
def test_a_refresh_between_them_searches_near_the_last_rows(many, dtype, tolerance):
    features, rows = many
    model = learner(features, dtype=dtype)
    model.learn_many(rows[:4766], features)
    state = model._engine.state
    earlier = {name: part.copy() for name, part in zip(LEARNED, state.rows, strict=True)}
    model.learn_many(rows[4766:5720], features)
    moments = state.moments.turned(state.basis) if state.sums_items else state.moments
    compared = covariances(moments, state.deviations.astype(np.float64) ** 2)
    assert len(compared.coordinates) == len(state.mean)
    in_coordinates = {name: part @ state.basis.T for name, part in earlier.items()}
    expected = rows_near_earlier(in_units(compared.near, compared.others, compared.added, dtype), in_coordinates)
    for name, part in zip(LEARNED, state.rows, strict=True):
        in_basis = part @ state.basis.T
        np.testing.assert_allclose(in_basis, expected[name], rtol=0, atol=tolerance * np.abs(expected[name]).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("far", [1.0, 0.6])
def test_one_pass_makes_the_same_bytes_of_closed_blocks_as_the_covariances(many, dtype, far):
    features, rows = many
    rows = with_pairs(rows[:700], (far, 1 - far, 0), np.random.default_rng(6))
    model = learner(features, dtype=dtype)
    model.learn_many(rows, features)
    state, variances = model._engine.state, model._engine.state.deviations.astype(np.float64) ** 2
    pairs = AllPairs.of_closed(state.moments)
    scale = scales(state.moments, pairs.diagonals()[0], variances)
    made = scaled_covariances(pairs, scale, variances, dtype)
    compared = covariances(state.moments, variances)
    expected = in_units(compared.near, compared.others, compared.added, dtype)
    assert made.added == expected.added
    assert (np.triu(made.S) == np.triu(expected.S)).all()
    for name, (other, unit) in expected.others.items():
        assert made.others[name][1] == unit
        assert (np.triu(made.others[name][0]) == np.triu(other)).all()
        alone = scaled_covariances(pairs, scale, variances, dtype, [name])
        assert list(alone.others) == [name]
        assert (np.triu(alone.others[name][0]) == np.triu(other)).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-13)])
@pytest.mark.parametrize("memory", [0, 500])
def test_one_pass_counts_the_pairs_of_the_open_block_too(many, dtype, tolerance, memory):
    features, rows = many
    rows = with_pairs(rows[:745], (0.6, 0.3, 0.1), np.random.default_rng(7))
    model = learner(features, dtype=dtype, memory=memory)
    model.learn_many(rows, features)
    engine, variances = model._engine, model._engine.state.deviations.astype(np.float64) ** 2
    pairs, whole = engine.all_pairs(), engine.moments()
    assert len(pairs.near) > 0
    made = scaled_covariances(pairs, scales(pairs.moments, pairs.diagonals()[0], variances), variances, dtype)
    compared = covariances(whole, variances)
    expected = in_units(compared.near, compared.others, compared.added, dtype)
    assert made.added == pytest.approx(expected.added, rel=1e-12)
    np.testing.assert_allclose(np.triu(made.S), np.triu(expected.S), rtol=0, atol=tolerance * np.abs(expected.S).max())
    for name, (other, unit) in expected.others.items():
        assert made.others[name][1] == pytest.approx(unit, rel=1e-12)
        exact = {"rtol": 0, "atol": tolerance * np.abs(other).max()}
        np.testing.assert_allclose(np.triu(made.others[name][0]), np.triu(other), **exact)


def test_what_is_served_searches_all_directions_if_the_last_rows_are_no_guide(many, monkeypatch):
    features, rows = many
    model, searched = learner(features), []
    model.learn_many(rows[:700], features)
    assert model.metric.experts.keys() >= set(LEARNED)

    def counted(near, others, *rest):
        searched.extend(others)
        return discriminant_rows(near, others, *rest)

    monkeypatch.setattr(experts, "discriminant_rows", counted)
    monkeypatch.setattr(experts, "rows_near_earlier", lambda compared, earlier: {})
    model.learn_many(rows[700:710], features)
    assert model.metric.experts.keys() >= set(LEARNED)
    assert searched == list(LEARNED)


def test_an_expert_of_less_weight_is_served_as_it_was_until_new_triplets_matter(many):
    features, rows = many
    model = learner(features)
    model.learn_many(rows[:2757], features)
    engine = model._engine
    at_refresh = dict(zip(LEARNED, (part.copy() for part in engine.state.rows), strict=True))
    lighter, heavier = sorted(LEARNED, key=engine._weights().get)
    weight = engine._weights()[lighter]
    # From here on, so many new triplets v have come that weight sqrt(v) / n is LEAST_MOVE.
    matters = next(n for n in range(2757, 3309) if weight * math.sqrt(n - 2757) >= LEAST_MOVE * n)
    for version, is_searched in ((2758, False), (matters - 30, False), (matters + 30, True)):
        model.learn_many(rows[model.version : version], features)
        served = model.metric.experts
        assert np.array_equal(served[lighter], at_refresh[lighter]) != is_searched
        assert not np.array_equal(served[heavier], at_refresh[heavier])
        # It follows from the state alone.
        assert metric_to_bytes(DCA.from_bytes(model.to_bytes()).metric) == metric_to_bytes(model.metric)


def test_what_forgets_searches_all_directions_at_every_refresh(many, monkeypatch):
    features, rows = many
    monkeypatch.setattr(experts, "rows_near_earlier", None)
    model = learner(features, memory=20_000)
    model.learn_many(rows, features)
    assert model._engine.state.made[0] == EVENTS


def test_a_restart_between_these_refreshes_changes_no_byte(many):
    features, rows = many
    whole, again = learner(features), learner(features)
    whole.learn_many(rows, features)
    for begin, end in itertools.pairwise((0, 5000, 5720, 5721, 7000, EVENTS)):
        again.learn_many(rows[begin:end], features)
        again = DCA.from_bytes(again.to_bytes())
    assert again.to_bytes() == whole.to_bytes()


def test_a_memory_that_is_set_later_brings_the_next_refresh_forward(many):
    features, rows = many
    faithful = learner(features)
    faithful.learn_many(rows[:5721], features)
    model = faithful.learning_on(memory=300)
    for first in range(5721, 5921, 10):
        model.learn_many(rows[first : first + 10], features)
        assert model.version - model._engine.state.made[0] < 30
        assert DCA.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
