"""The demo's descriptors: what they count, and that they tell digits apart."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from omdml.errors import ConfigurationError
from omdml.evaluate import mean_average_precision
from omdml.workers.demo.digits import AROUND, DESCRIPTORS, fourier, gradients, load_digits, patterns, projections

DIMS = {"pixels": 64, "gradients": 128, "projections": 46, "patterns": 90, "fourier": 40}


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def pictures(count=3, seed=0):
    return np.random.default_rng(seed).random((count, 8, 8))


def ink(picture, row, column):
    """The ink of a pixel; there is none beyond the border."""
    return picture[row, column] if 0 <= row < 8 and 0 <= column < 8 else 0.0


def gradients_one_by_one(picture):
    """A literal twin of :func:`gradients` for one picture."""
    votes = np.zeros((8, 4, 4))
    for row in range(8):
        for column in range(8):
            dx = (ink(picture, row, column + 1) - ink(picture, row, column - 1)) / 2
            dy = (ink(picture, row + 1, column) - ink(picture, row - 1, column)) / 2
            angle = (math.atan2(dy, dx) / (2 * math.pi) * 8) % 8
            lower = math.floor(angle)
            cell = (row // 2, column // 2)
            votes[(lower % 8, *cell)] += math.hypot(dx, dy) * (lower + 1 - angle)
            votes[((lower + 1) % 8, *cell)] += math.hypot(dx, dy) * (angle - lower)
    return votes.ravel()


def patterns_one_by_one(picture):
    """A literal twin of :func:`patterns` for one picture."""
    counts = np.zeros((3, 3, 10))
    for row in range(8):
        for column in range(8):
            darker = [ink(picture, row + r - 1, column + c - 1) > picture[row, column] + 0.05 for r, c in AROUND]
            changes = sum(darker[index] != darker[index - 1] for index in range(8))
            pattern = sum(darker) if changes <= 2 else 9
            for i, (top, bottom) in enumerate(((0, 3), (2, 6), (5, 8))):
                for j, (left, right) in enumerate(((0, 3), (2, 6), (5, 8))):
                    counts[i, j, pattern] += top <= row < bottom and left <= column < right
    return counts.ravel()


def test_pictures_and_labels_are_those_that_scikit_learn_loads(digits):
    # Imported late, because that takes more than a second.
    from sklearn import datasets

    bunch = datasets.load_digits()
    assert np.array_equal(digits.pictures * 16, bunch.images)
    assert digits.labels == [str(label) for label in bunch.target]


def test_if_scikit_learn_is_not_installed_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("omdml.workers.demo.digits.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'omdml\[demo\]'"):
        load_digits()


def test_every_digit_has_five_modalities_of_these_dimensions(digits):
    assert {name: matrix.shape for name, matrix in digits.features.items()} == {
        name: (1797, dim) for name, dim in DIMS.items()
    }
    assert all(np.isfinite(matrix).all() for matrix in digits.features.values())


def test_ids_are_unique_and_every_digit_has_a_label(digits):
    assert len(set(digits.ids)) == len(digits.labels) == 1797
    assert set(digits.labels) == set("0123456789")


@pytest.mark.parametrize("modality", DESCRIPTORS)
def test_each_modality_alone_ranks_digits_far_better_than_chance(digits, modality):
    values = digits.features[modality]
    queries = np.arange(0, 1797, 20)
    # A random order has 0.1.
    assert mean_average_precision(values, digits.labels, queries) > 0.3


def test_gradients_are_shared_between_the_nearest_orientations():
    for picture, described in zip(pictures(), gradients(pictures()), strict=True):
        np.testing.assert_allclose(described, gradients_one_by_one(picture), atol=1e-12)


def test_an_edge_to_the_right_votes_for_the_first_orientation_only():
    picture = np.zeros((1, 8, 8))
    picture[:, :, 4:6] = np.array([1.0, 2.0])
    votes = gradients(picture).reshape(8, 4, 4)
    # In this cell, the two pixels of column 3 vote with half an ink each.
    assert votes[0, 1, 1] == 1.0
    assert votes[1:, 1:3, 1].sum() == 0


def test_patterns_are_counted_in_overlapping_windows():
    for picture, described in zip(pictures(), patterns(pictures()), strict=True):
        np.testing.assert_array_equal(described, patterns_one_by_one(picture))


def test_a_pixel_of_ink_is_projected_once_in_each_of_four_directions():
    picture = np.zeros((1, 8, 8))
    picture[0, 2, 5] = 1.0
    described = projections(picture)[0]
    assert np.flatnonzero(described).tolist() == [5, 8 + 2, 16 + 7 + 3, 31 + 7 + 0]


def test_fourier_magnitudes_stay_when_a_digit_moves():
    moved = np.roll(pictures(), (2, 3), axis=(1, 2))
    np.testing.assert_allclose(fourier(moved), fourier(pictures()), atol=1e-9)


def test_if_scikit_learn_cannot_be_imported_the_error_says_so_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'omdml\[demo\]'"):
        load_digits()
