"""Codes of rows: what they leave out is bounded, and no row that could be among the nearest is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from omdml.kernels.retrieval.scan import dot, lower_top
from omdml.retrieval.codes import Codes
from tests.naive import scans as naive
from tests.support.deep import examples


def drawn(count, width, seed, scale=1.0, away=0.0):
    """Rows of which some are equal, one is zero, and one is far from the others."""
    draw = np.random.default_rng(seed)
    matrix = (away + draw.normal(size=(count, width)) * scale).astype(np.float32)
    matrix[::5] = matrix[0]
    matrix[count // 2] = 0
    matrix[-1] *= 100
    return matrix


SHAPES = st.tuples(st.integers(2, 70), st.integers(1, 40))
SCALES = st.sampled_from([1e-42, 1e-20, 1.0, 1e15])


@settings(max_examples=examples(60), deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 10_000), k=st.integers(1, 80), scale=SCALES, away=st.sampled_from([0, 30]))
@example(shape=(3, 1), seed=0, k=2, scale=1e-42, away=0)
def test_every_one_of_the_nearest_rows_is_a_candidate(shape, seed, k, scale, away):
    matrix = drawn(*shape, seed, scale, away)
    point = matrix[seed % len(matrix)].astype(np.float64) + (seed % 3) * 0.1 * scale
    results = Codes(matrix).candidates(point[None], k)[0]
    assert set(naive.nearest(matrix, point, k)) <= set(results.rows.tolist())
    assert np.all(np.diff(results.rows) > 0)
    exact = np.sqrt([float(naive.squared(matrix[row], point)) for row in results.rows])
    assert np.all(results.lows <= exact)


@settings(max_examples=examples(40), deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 10_000), k=st.integers(1, 20))
def test_candidates_are_those_of_the_slow_twin(shape, seed, k):
    """Rounding may add rows whose lower bound all but meets the k-th upper bound."""
    matrix, draw = drawn(*shape, seed), np.random.default_rng(seed)
    point, widths = draw.normal(size=shape[1]), draw.random(len(matrix)).astype(np.float32)
    hidden = np.unique(draw.integers(0, len(matrix), 3))
    codes = Codes(matrix)
    result = codes.candidates(point[None], k, None, [hidden], codes.radii + widths)[0]
    # Rounding moves a squared distance by at most 2^-22 of (row length + query length)^2.
    rounding = 2.0**-11 * (np.linalg.norm(matrix, axis=1).max() + np.linalg.norm(point))
    expected, almost = (
        naive.candidates(matrix, point, k, set(hidden.tolist()), (widths + more).tolist()) for more in (0.0, rounding)
    )
    assert set(expected) <= set(result.rows.tolist()) <= set(almost)


@settings(max_examples=examples(30), deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 10_000), scale=SCALES)
def test_no_row_is_further_from_its_code_than_its_radius(shape, seed, scale):
    matrix = drawn(*shape, seed, scale)
    codes = Codes(matrix)
    for row, radius in zip(matrix, codes.radii.tolist(), strict=True):
        close, numbers = naive.coded(row)
        coded = [float(close * number) for number in numbers]
        assert naive.squared(row, coded) <= np.float64(radius) ** 2 * (1 + 1e-6) + 1e-80


@pytest.mark.parametrize("times", [1e3, 1e6, 1e12])
def test_one_very_long_row_leaves_no_more_candidates(times):
    """Its rounding is large, and that of the others is not."""
    matrix = np.random.default_rng(0).normal(size=(5000, 8)).astype(np.float32)
    point = matrix[7:8].astype(np.float64)
    alone = Codes(matrix).candidates(point, 5)[0].rows
    matrix[4000] *= times
    assert Codes(matrix).candidates(point, 5)[0].rows.tolist() == alone.tolist()


def test_several_points_find_what_each_finds_alone():
    matrix, draw = drawn(3000, 12, 1), np.random.default_rng(0)
    points, among = draw.normal(size=(5, 12)), draw.random(3000) < 0.4
    hidden = [np.sort(draw.choice(3000, count, replace=False)) for count in (0, 3, 0, 700, 1)]
    codes = Codes(matrix)
    together = codes.candidates(points, 7, among, hidden)
    for point, rows, result in zip(points, hidden, together, strict=True):
        alone = codes.candidates(point[None], 7, among, [rows])[0]
        assert result.rows.tolist() == alone.rows.tolist()
        assert result.lows.tolist() == alone.lows.tolist()
        assert among[result.rows].all()
        assert not np.isin(result.rows, rows).any()


def test_a_scan_gives_up_once_too_many_rows_are_possible():
    codes, point = Codes(drawn(5000, 8, 4)), np.zeros((1, 8))
    anywhere = np.full(5000, 100, np.float32)
    assert codes.candidates(point, 3, radii=anywhere, most=4999) == []
    assert len(codes.candidates(point, 3, radii=anywhere, most=5000)[0].rows) == 5000
    candidates = codes.candidates(point, 3, most=2000)[0]
    assert candidates.rows.tolist() == codes.candidates(point, 3)[0].rows.tolist()


def test_rows_that_are_added_are_found_and_those_before_keep_their_codes():
    matrix = drawn(900, 9, 2)
    first = Codes(matrix[:400])
    grown = first.grown(matrix[400:600]).grown(matrix[600:])
    other = first.grown(matrix[600:])
    whole, point = Codes(matrix), matrix[:1].astype(np.float64)
    assert grown.candidates(point, 9)[0].rows.tolist() == whole.candidates(point, 9)[0].rows.tolist()
    assert (len(first.radii), len(other.radii), grown.nbytes) == (400, 700, whole.nbytes)
    assert first.candidates(point, 9)[0].rows.tolist() == Codes(matrix[:400]).candidates(point, 9)[0].rows.tolist()


@pytest.mark.parametrize("count", [0, 1, 2])
def test_there_are_no_more_candidates_than_rows(count):
    result = Codes(drawn(9, 3, 0)[:count]).candidates(np.zeros((1, 3)), 5)[0]
    assert result.rows.tolist() == list(range(count))


@pytest.mark.parametrize("width", [1, 15, 16, 17, 128, 450, 3209])
def test_products_of_codes_are_exact_at_their_largest(width):
    row, largest = np.full(width, -127, np.int8), min(32767, (2**31 - 1) // (127 * width))
    assert dot(row, np.full(width, largest, np.int16)) == -127 * largest * width


@settings(max_examples=examples(40), deadline=None)
@given(values=st.lists(st.floats(0, 100), min_size=1, max_size=60), k=st.integers(1, 20))
def test_a_heap_keeps_the_smallest_numbers(values, k):
    heap = np.full(k, np.inf)
    for value in values:
        if value < heap[0]:
            lower_top(heap, value)
    expected = (sorted(values) + [np.inf] * k)[:k]
    assert sorted(heap.tolist()) == expected
    assert heap[0] == expected[-1]
