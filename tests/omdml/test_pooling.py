"""Pooling: the baselines of SetNet, and whitening."""

from __future__ import annotations

import numpy as np
import pytest

from omdml.errors import FeedbackError, ParameterError, StartError
from omdml.pooling import fit_whitening, generalised_mean, mean_pooling, runs_of_sets, shrunk_whitening, unit

SETS = [np.array([0, 1]), np.array([2]), np.array([5, 3, 4])]


def elements(count=300, d=4, seed=0):
    draw = np.random.default_rng(seed)
    return draw.normal(2, 1, (count, d)) @ draw.normal(0, 1, (d, d))


def test_a_mean_of_unit_elements_has_unit_length():
    x = elements()
    expected = [np.mean([x[row] / np.linalg.norm(x[row]) for row in rows], axis=0) for rows in SETS]
    np.testing.assert_allclose(mean_pooling(x, SETS), [vector / np.linalg.norm(vector) for vector in expected])


def test_elements_are_whitened_before_they_are_averaged():
    x = elements()
    whitening = fit_whitening(x, 3)
    np.testing.assert_allclose(mean_pooling(x, SETS, whitening), mean_pooling(whitening(x), SETS))


def test_a_generalised_mean_runs_from_the_mean_to_the_maximum():
    x = unit(np.abs(elements()))
    expected = [[x[rows, j].mean() if j < 2 else x[rows, j].max() for j in range(4)] for rows in SETS]
    np.testing.assert_allclose(generalised_mean(x, SETS, [1, 1, 400, 400]), unit(np.array(expected)), rtol=0.01)


def test_a_generalised_mean_is_whitened_after_it_is_taken():
    x = elements()
    means = generalised_mean(x, list(np.arange(300).reshape(-1, 2)))
    whitening = fit_whitening(means, 4)
    np.testing.assert_allclose(generalised_mean(x, SETS, whitening=whitening), whitening(generalised_mean(x, SETS)))


def test_whitening_leaves_no_correlation_and_no_empty_directions():
    x = elements()
    flat = np.concatenate([x, x[:, :1]], axis=1)
    mean, matrix = fit_whitening(flat, 5)
    white = (flat - mean) @ matrix.T
    np.testing.assert_allclose(white.T @ white / 300, np.diag([1, 1, 1, 1, 0]), atol=1e-9)
    with pytest.raises(StartError, match="more than 4 vectors, got 4"):
        fit_whitening(x[:4], 4)


def test_a_shrunk_whitening_begins_as_none_and_ends_as_the_full_one():
    x = elements(20_000)
    mean, covariance = x.mean(axis=0), np.cov(x.T)
    np.testing.assert_array_equal(shrunk_whitening(0, np.zeros(4), np.zeros((4, 4))).matrix, np.eye(4))
    matrix = shrunk_whitening(10**9, mean, covariance).matrix
    white = matrix @ covariance @ matrix.T
    np.testing.assert_allclose(white / white[0, 0], np.eye(4), atol=1e-6)


pools = pytest.mark.parametrize("pool", [mean_pooling, generalised_mean])


@pools
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "set 1 has no elements"),
        ([0, 300], "set 1 names row 300, the features have rows 0 to 299"),
        ([-1], "set 1 names row -1"),
        ([0.5], r"set 1 is float64 of shape \(1,\), expected row numbers"),
        ([[0], [1, 2]], "set 1 is .*, expected row numbers"),
        (3, r"set 1 is int64 of shape \(\), expected row numbers"),
    ],
)
def test_a_set_that_names_no_elements_is_refused_by_its_number(pool, bad, message):
    with pytest.raises(FeedbackError, match=message) as caught:
        pool(elements(), [[0], bad])
    assert caught.value.row == 1


@pools
def test_features_without_rows_are_said_to_have_none(pool):
    with pytest.raises(FeedbackError, match=r"set 0 names row 0, the features have no rows$"):
        pool(elements()[:0], [[0]])


@pools
def test_sets_that_are_no_sequence_are_refused_and_none_are_none(pool):
    with pytest.raises(FeedbackError, match="sets are None, expected a sequence"):
        pool(elements(), None)
    assert pool(elements(), []).shape == (0, 4)


@pools
@pytest.mark.parametrize("wrong", [[1.0, 2.0], [["a"]], [[1.0], [1.0, 2.0]], np.empty((3, 0)), None], ids=repr)
def test_elements_that_are_no_table_of_numbers_are_refused(pool, wrong):
    with pytest.raises(FeedbackError, match="elements"):
        pool(wrong, [[0]])
    with pytest.raises(FeedbackError, match="sample"):
        fit_whitening(wrong, 1)


@pools
def test_vectors_of_another_width_than_the_whitening_s_are_refused(pool):
    with pytest.raises(FeedbackError, match=r"shape \((300|3), 4\), expected \(n, 5\)"):
        pool(elements(), SETS, whitening=fit_whitening(elements(d=5), 2))


@pytest.mark.parametrize("power", [0, -1.0, np.nan, np.inf, [1, 2], "high", None])
def test_powers_that_give_no_mean_are_refused(power):
    with pytest.raises(ParameterError, match=r"power=.*above 0, or \(4,\) of them"):
        generalised_mean(elements(), SETS, power)


@pytest.mark.parametrize("rank", [0, -1, 5, 2.5, "all"])
def test_a_whitening_of_a_rank_that_there_is_not_is_refused(rank):
    with pytest.raises(ParameterError, match=f"rank={rank!r}: expected a whole number from 1 to 4"):
        fit_whitening(elements(), rank)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_a_whitening_of_a_value_that_is_not_finite_names_its_row(value):
    sample = elements()
    sample[7, 2] = value
    with pytest.raises(StartError, match="row 7 of the sample"):
        fit_whitening(sample, 2)


def test_sets_are_pooled_in_parts_that_fit_memory(monkeypatch):
    monkeypatch.setattr("omdml.pooling.AT_ONCE", 40)
    sets = [np.arange(size) for size in (2, 2, 1, 9, 3, 1)]
    results = list(runs_of_sets(sets, 10))
    assert [number for part in results for number in range(part.start, part.stop)] == list(range(6))
    assert all(part.stop - part.start == 1 or sum(map(len, sets[part])) <= 4 for part in results)
