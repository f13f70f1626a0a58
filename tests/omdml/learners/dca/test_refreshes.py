"""DCA's refreshes after thousands of triplets, which search directions near the last rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from omdml import DCA
from omdml.engines.second_order import experts
from omdml.engines.second_order.discriminant import discriminant_rows, rows_near_earlier
from omdml.engines.second_order.moments import LEARNED, covariances
from tests.support.learning.dca import learner, world

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
    compared = covariances(state.moments, state.deviations.astype(np.float64) ** 2, state.turning)
    assert len(compared.coordinates) == len(state.mean)
    in_coordinates = {name: part @ state.basis.T for name, part in earlier.items()}
    expected = rows_near_earlier(compared.near, compared.others, compared.added, in_coordinates, dtype)
    for name, part in zip(LEARNED, state.rows, strict=True):
        found = part @ state.basis.T
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=tolerance * np.abs(expected[name]).max())


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
