"""What DCA serves: a function of the state, computed once for each version."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import DCA
from omdml.engines.second_order import experts
from omdml.engines.second_order.discriminant import discriminant_rows
from omdml.errors import FeedbackError
from tests.support.deep import examples
from tests.support.learning.dca import learner, world


@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 10_000), memory=st.sampled_from([0, 40]), looks=st.lists(st.integers(1, 50), min_size=1))
def test_what_is_served_at_a_version_is_a_function_of_the_state(seed, memory, looks):
    features, rows, _, _ = world(seed, events=200)
    asked, silent = (learner(features, memory=memory) for _ in range(2))
    silent.learn_many(rows, features)
    start, sizes = 0, itertools.cycle(looks)
    while start < len(rows):
        look = next(sizes)
        asked.learn_many(rows[start : start + look], features)
        asked.metric.embed(features)
        start += look
    again = DCA.from_bytes(silent.to_bytes())
    assert asked.to_bytes() == silent.to_bytes()
    for model in (silent, again):
        tensors, _ = model.metric.to_tensors()
        for name, tensor in asked.metric.to_tensors()[0].items():
            assert tensor.tobytes() == tensors[name].tobytes()


def test_metrics_are_made_once_a_version_and_earlier_ones_stay_as_they_were():
    features, rows, _, _ = world(4, events=40)
    model = learner(features)
    model.learn_many(rows[:30], features)
    first, twin = model.metric, copy.deepcopy(model)
    embedded = first.embed(features)
    assert model.metric is first
    model.learn_many(rows[30:], features)
    twin.learn_many(rows[20:30], features)
    assert model.metric is not first
    assert (first.embed(features) == embedded).all()
    assert twin.metric.embed(features).tobytes() != model.metric.embed(features).tobytes()


def test_right_after_a_refresh_what_is_served_is_not_made_again(monkeypatch):
    features, rows, _, _ = world(22, events=15)
    model, computed_at = learner(features), []

    def counted(*arguments):
        computed_at.append(model.version)
        return discriminant_rows(*arguments)

    monkeypatch.setattr(experts, "discriminant_rows", counted)
    for row in rows:
        model.learn_one(row, features)
        assert served_bytes(model) == served_bytes(DCA.from_bytes(model.to_bytes()))
    # At these versions there was a refresh, and the model and its copy serve what that made.
    refreshed = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15)
    assert [computed_at.count(version) for version in refreshed] == [1] * len(refreshed)


def test_what_was_served_after_an_undone_refresh_is_made_again():
    features, rows, _, _ = world(23, events=20)
    broken = {name: np.concatenate([x, np.full((1, x.shape[1]), np.nan)]) for name, x in features.items()}
    model = learner(features)
    model.learn_many(rows[:14], features)
    with pytest.raises(FeedbackError):
        model.learn_many(np.concatenate([rows[14:16], [[0, 1, len(features["m0"])]]]), broken)
    assert served_bytes(model) == served_bytes(DCA.from_bytes(model.to_bytes()))


def served_bytes(model):
    """Every array that nodes answer with."""
    return [array.tobytes() for array in model.metric.to_tensors()[0].values()]
