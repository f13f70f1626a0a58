"""DCA's sums of items as they come, which are turned to principal coordinates only for a metric."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest

from omdml import DCA
from omdml.engines.second_order import state
from omdml.learners import Learner
from omdml.learners.dca_parts import merge
from tests.formats.samples import HERE
from tests.support.learning.dca import in_chunks, learner, world

SUMS = ("near", "far", "middle", "centre", "sums")


def as_principal(monkeypatch):
    """From now on, have learners keep sums of principal coordinates only."""
    monkeypatch.setattr(state, "TURNED", 0)


@pytest.mark.parametrize(
    ("dims", "rank", "init", "of_items"),
    [((7, 5), 12, "pca", True), ((7, 5), 11, "pca", False), ((7, 5), 12, "coordinates", False),
     ((128,), 128, "pca", True), ((129,), 129, "pca", False)],
)  # fmt: skip
def test_sums_are_of_items_if_the_basis_is_square_and_small(dims, rank, init, of_items):
    features, rows, *_ = world(40, dims, items=200, events=2)
    model = learner(features, rank=rank, init=init)
    model.learn_many(rows, features)
    assert model._engine.state.sums_items == of_items


@pytest.mark.parametrize("memory", [0, 40])
def test_sums_of_items_teach_what_sums_of_principal_coordinates_do(monkeypatch, memory):
    features, rows, *_ = world(41)
    # An item so far out that its pairs are shortened.
    features["m0"][7] *= 300
    turned, principal = (learner(features, memory=memory, dtype="float64") for _ in range(2))
    scores = turned.learn_many(rows, features).scores
    embedded, near = turned.metric.embed(features), turned.matrices["near"]
    as_principal(monkeypatch)
    np.testing.assert_allclose(principal.learn_many(rows, features).scores, scores, rtol=0, atol=1e-9)
    np.testing.assert_allclose(principal.metric.embed(features), embedded, rtol=0, atol=1e-7)
    np.testing.assert_allclose(principal.matrices["near"], near, rtol=1e-9, atol=1e-9)


def test_a_state_of_before_sums_of_items_goes_on_as_one_of_today():
    older, newer = (
        Learner.from_bytes((HERE / f"learner-state-{number}" / "dca-sums-of-items.safetensors").read_bytes())
        for number in (4, 5)
    )
    assert older._engine.state.sums_items
    for name in SUMS:
        left, right = (getattr(model._engine.state, name) for model in (older, newer))
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-6 * np.abs(right).max())
    np.testing.assert_allclose(older.matrices["near"], newer.matrices["near"], rtol=0, atol=1e-6)
    again = Learner.from_bytes(older.to_bytes())
    assert again.to_bytes() == older.to_bytes()


def test_a_state_of_before_is_kept_if_all_its_pairs_are_alike_in_a_number(monkeypatch):
    draw = np.random.default_rng(0)
    features, rows = {"m0": (draw.random((400, 24)) < 0.15) * 1.0}, draw.integers(0, 6, (60, 3))
    model = learner(features, dtype="float64", rank=24)
    as_principal(monkeypatch)
    model.learn_many(rows, features)
    monkeypatch.undo()
    model._engine.turn_older_sums()
    assert DCA.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()


def test_merged_sums_of_a_state_of_before_are_those_of_one_of_today(monkeypatch):
    features, rows, *_ = world(42)
    start = learner(features, dtype="float64")
    start.start(features)
    first, second = copy.deepcopy(start), copy.deepcopy(start)
    for model, part in ((first, rows[:80]), (second, rows[80:])):
        model.learn_many(part, features)
    both = merge(first, second)
    as_principal(monkeypatch)
    earlier = copy.deepcopy(start)
    earlier.learn_many(rows[:80], features)
    monkeypatch.undo()
    earlier._engine.turn_older_sums()
    mixed = merge(earlier, second)
    np.testing.assert_allclose(mixed.metric.embed(features), both.metric.embed(features), rtol=0, atol=1e-9)


def test_calls_and_restarts_change_no_byte_of_sums_of_items():
    features, rows, *_ = world(43, (64,), events=300)
    in_one_call = learner(features)
    in_one_call.learn_many(rows, features)
    parts = in_chunks(learner(features), rows, features, itertools.cycle([1, 63, 0, 64, 7, 0]))
    assert in_one_call._engine.state.sums_items
    assert parts.to_bytes() == in_one_call.to_bytes()
    assert DCA.from_bytes(in_one_call.to_bytes()).to_bytes() == in_one_call.to_bytes()
