"""Exact distances of a few rows: against fractions, and the same whichever rows share the call."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.retrieval.distances import squared_distances
from tests.naive.scans import squared
from tests.support.deep import examples


@settings(max_examples=examples(40), deadline=None)
@given(
    width=st.integers(1, 40),
    seed=st.integers(0, 10_000),
    dtype=st.sampled_from(["float32", "float64"]),
    scale=st.sampled_from([1e-30, 1.0, 1e18]),
)
def test_distances_are_those_of_fractions_which_round_nothing(width, seed, dtype, scale):
    draw = np.random.default_rng(seed)
    matrix, point = (scale * draw.normal(size=(9, width))).astype(dtype), scale * draw.normal(size=width)
    rows = draw.integers(0, 9, 5)
    exact = [float(squared(matrix[row], point)) for row in rows]
    np.testing.assert_allclose(squared_distances(matrix, rows, point), exact, rtol=1e-14 * width, atol=0)


def test_the_distance_of_a_row_depends_on_no_other_row():
    draw = np.random.default_rng(0)
    matrix, point, rows = draw.normal(size=(50, 37)).astype(np.float32), draw.normal(size=37), np.arange(50)
    alone = np.concatenate([squared_distances(matrix, rows[[i]], point) for i in rows])
    assert squared_distances(matrix, rows, point).tobytes() == alone.tobytes()


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_number_that_is_not_finite_makes_the_distance_not_finite(value):
    matrix = np.zeros((2, 5), np.float32)
    matrix[1, 3] = value
    assert np.isfinite(squared_distances(matrix, np.arange(2), np.zeros(5))).tolist() == [True, False]
