"""The map of coordinates: as its literal twin has it, the same for the same items, sound on items that are hard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load

from omdml import coordinates
from omdml.coordinates import CoordinateMap
from omdml.errors import CorruptError, FeedbackError, FormatError, ParameterError, StartError
from omdml.formats import MAP
from omdml.snapshot import pack
from tests.naive import coordinates as naive
from tests.support.deep import examples

GOLDEN = Path(__file__).parents[1] / "golden"


def items(seed=0, count=60, **sizes):
    """Items in three clusters, each modality at a scale of its own."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, count)
    return {
        name: (draw.normal(0, 1, (3, size))[labels] + draw.normal(0, 0.5, (count, size))).astype(np.float32)
        for name, size in (sizes or {"color": 4, "text": 9}).items()
    }


def chosen(count, landmarks, seed=0):
    """The landmarks that a map draws if these ``count`` rows are its whole sample."""
    draw = np.random.default_rng(seed)
    draw.choice(count, count, replace=False)
    return np.sort(draw.choice(count, min(landmarks, count), replace=False))


def assert_same_up_to_signs(actual, expected):
    """Each column is the expected one, or its opposite."""
    signs = np.sign((actual * expected).sum(axis=0))
    assert_allclose(actual, expected * signs, atol=2e-6 * np.abs(expected).max())


# The twin and the golden numbers


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(0, 1000), st.integers(2, 40), st.integers(1, 50), st.integers(1, 6),
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 12), min_size=1),
)  # fmt: skip
def test_coordinates_are_those_of_the_literal_twin(seed, count, landmarks, most, sizes):
    sample, others = items(seed, count, **sizes), items(seed + 1, 7, **sizes)
    fitted = CoordinateMap.fit(sample, landmarks=landmarks, coordinates=most)

    expected = naive.coordinates(sample, sample, chosen(count, landmarks), most)
    assert fitted.dim == expected.shape[1]
    variances = expected.var(axis=0)
    # two directions of nearly one variance may be mixed by rounding: those before them are compared
    apart = np.flatnonzero(np.diff(variances) > -1e-6 * variances[0])
    compared = slice(0, apart[0] if len(apart) else None)
    assert_same_up_to_signs(fitted.apply(sample)[:, compared], expected[:, compared])
    expected = naive.coordinates(sample, others, chosen(count, landmarks), most)
    assert_same_up_to_signs(fitted.apply(others)[:, compared], expected[:, compared])


def test_the_golden_numbers_are_reproduced():
    with np.load(GOLDEN / "coordinates.npz") as golden:
        features = {name: golden[f"X_{name}"] for name in ("color", "text")}
        fitted = CoordinateMap.fit({name: x[:40] for name, x in features.items()}, landmarks=12, coordinates=8)
        assert_allclose(fitted.apply(features), golden["coordinates"], atol=1e-6)


def test_the_signs_that_lapack_gives_to_eigenvectors_do_not_matter(monkeypatch):
    expected = CoordinateMap.fit(items(), landmarks=12, coordinates=8).to_bytes()
    eigh = coordinates.eigh

    def turned(*arguments, **options):
        values, vectors = eigh(*arguments, **options)
        return values, vectors * np.where(np.arange(len(values)) % 3, 1, -1)

    monkeypatch.setattr(coordinates, "eigh", turned)
    assert CoordinateMap.fit(items(), landmarks=12, coordinates=8).to_bytes() == expected


# What coordinates are


def test_coordinates_of_the_sample_are_centred_uncorrelated_and_fall():
    coordinates = CoordinateMap.fit(items(), coordinates=20).apply(items()).astype(float)
    assert_allclose(coordinates.mean(axis=0), 0, atol=1e-6)
    covariance = np.cov(coordinates.T, bias=True)
    assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-6)
    assert (np.diff(np.diag(covariance)) <= 0).all()


def test_all_coordinates_together_keep_every_inner_product():
    sample = items(count=30)
    coordinates = CoordinateMap.fit(sample).apply(sample).astype(float)
    X = naive.blocks(sample, sample, chosen(30, 200))
    assert coordinates.shape[1] == 29
    assert_allclose(coordinates @ coordinates.T, X @ X.T, atol=1e-5)


@given(st.integers(0, 1000), st.floats(1e-6, 1e6), st.floats(-3, 3))
@settings(max_examples=examples(20), deadline=None)
def test_units_of_a_modality_do_not_matter(seed, factor, shift):
    before = {name: x.astype(float) for name, x in items(seed).items()}
    after = {**before, "text": (before["text"] + shift) * factor}
    coordinates_before, coordinates_after = (CoordinateMap.fit(x, coordinates=5).apply(x) for x in (before, after))
    assert_same_up_to_signs(coordinates_before, coordinates_after)


def test_the_same_items_give_the_same_bytes_wherever_they_lie(tmp_path):
    sample = items()
    for name, x in sample.items():
        np.save(tmp_path / f"{name}.npy", x)
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in reversed(sample)}
    of_arrays, of_files = CoordinateMap.fit(sample), CoordinateMap.fit(mapped)
    assert of_arrays.to_bytes() == of_files.to_bytes()
    assert of_arrays.digest == of_files.digest
    assert_array_equal(of_arrays.apply(sample), of_files.apply(mapped))
    assert CoordinateMap.fit(sample, landmarks=20, seed=1).digest != CoordinateMap.fit(sample, landmarks=20).digest


@given(st.integers(1, 1200), st.integers(0, 1199))
@settings(max_examples=examples(20), deadline=None)
def test_an_item_alone_is_where_it_is_among_others(count, row):
    fitted, others = CoordinateMap.fit(items()), items(5, 1200)
    row %= count
    together = fitted.apply({name: x[:count] for name, x in others.items()})[row]
    alone = fitted.apply({name: x[row : row + 1] for name, x in others.items()})[0]
    assert_allclose(alone, together, atol=1e-6)


# Items that are hard


def test_items_that_are_all_alike_have_one_coordinate_of_zeros():
    alike = {name: np.full_like(x, 0.1) for name, x in items().items()}
    fitted = CoordinateMap.fit(alike)
    assert fitted.dim == 1
    assert_array_equal(fitted.apply(alike), 0)
    assert np.isfinite(fitted.apply(items())).all()


def test_a_modality_whose_numbers_never_differ_changes_nothing():
    without, with_void = items(), {**items(), "void": np.full((60, 3), 7.5, np.float32)}
    before, after = (CoordinateMap.fit(x).apply(x)[:, :9] for x in (without, with_void))
    assert_same_up_to_signs(before, after)


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_few_items_have_few_coordinates(count):
    sample = items(count=count)
    fitted = CoordinateMap.fit(sample)
    assert fitted.dim == max(1, count - 1)
    assert np.isfinite(fitted.apply(items(1))).all()


def test_items_that_come_many_times_count_as_landmarks_once():
    once = items(count=8)
    many = {name: np.repeat(x, 30, axis=0) for name, x in once.items()}
    fitted = CoordinateMap.fit(many, landmarks=240)
    assert fitted.dim == 7
    assert_same_up_to_signs(fitted.apply(many)[::30], CoordinateMap.fit(once).apply(once))


@pytest.mark.parametrize(("small", "large"), [(1e-30, 1e30), (1e-150, 1e138), (1.0, 1e100)])
def test_modalities_of_wildly_different_scales_count_alike(small, large):
    plain = {name: x.astype(float) for name, x in items().items()}
    wild = {"color": plain["color"] * small, "text": plain["text"] * large}
    plain_coordinates, wild_coordinates = (CoordinateMap.fit(x, coordinates=6).apply(x) for x in (plain, wild))
    assert_same_up_to_signs(plain_coordinates, wild_coordinates)


def test_an_item_far_out_is_near_no_landmark_and_stays_finite():
    fitted = CoordinateMap.fit(items())
    far = {name: np.full((1, x.shape[1]), 1e30, np.float32) for name, x in items().items()}
    assert np.isfinite(fitted.apply(far)).all()


def test_what_float32_cannot_hold_becomes_infinite():
    fitted = CoordinateMap.fit({name: x * np.float32(1e-20) for name, x in items().items()})
    far = {name: np.full((1, x.shape[1]), 3e38, np.float32) for name, x in items().items()}
    assert np.isinf(fitted.apply(far)).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
def test_a_value_that_cannot_be_mapped_is_named(value):
    sample = {name: x.astype(float) for name, x in items().items()}
    sample["text"][7, 3] = value
    with pytest.raises(StartError, match=r"row 7 of modality 'text' .* in column 3"):
        CoordinateMap.fit(sample)


def test_no_items_and_no_modality_are_refused():
    with pytest.raises(StartError, match="at least one item"):
        CoordinateMap.fit({"color": np.empty((0, 3), np.float32)})
    with pytest.raises(FeedbackError, match="for each modality, at least one"):
        CoordinateMap.fit({})


@pytest.mark.parametrize("option", ["landmarks", "coordinates", "sample"])
def test_a_map_of_nothing_is_refused(option):
    with pytest.raises(ParameterError, match=f"{option}=0"):
        CoordinateMap.fit(items(), **{option: 0})


@pytest.mark.parametrize("seed", [-1, 0.5, None, "many"])
def test_a_seed_that_nothing_can_be_drawn_with_is_refused(seed):
    with pytest.raises(ParameterError, match=f"seed={seed!r}: expected a whole number of at least 0"):
        CoordinateMap.fit(items(), seed=seed)


def test_wide_items_are_mapped_a_few_at_a_time(monkeypatch):
    fitted, sample = CoordinateMap.fit(items()), items(1)
    expected = fitted.apply(sample)
    monkeypatch.setattr(coordinates, "CHUNK_NUMBERS", 40)
    few = CoordinateMap.from_bytes(fitted.to_bytes())
    assert few._rows == 3
    assert_allclose(few.apply(sample), expected, atol=1e-6)


def test_a_sample_of_many_numbers_has_fewer_rows(monkeypatch):
    monkeypatch.setattr(coordinates, "SAMPLE_NUMBERS", 4000)
    fitted = CoordinateMap.fit(items(count=500, wide=190), landmarks=10)
    assert fitted.dim == 19
    assert fitted.apply(items(count=500, wide=190)).shape == (500, 19)


def test_other_modalities_than_the_map_s_are_refused():
    fitted = CoordinateMap.fit(items())
    with pytest.raises(FeedbackError, match="'text'"):
        fitted.apply({"color": items()["color"]})
    with pytest.raises(FeedbackError, match="shape"):
        fitted.apply({**items(), "text": items()["color"]})


# Bytes


def test_a_map_is_whole_after_a_round_trip():
    fitted = CoordinateMap.fit(items())
    again = CoordinateMap.from_bytes(fitted.to_bytes())
    assert (again.dims, again.dim, again.digest, again.nbytes) == (
        fitted.dims,
        fitted.dim,
        fitted.digest,
        fitted.nbytes,
    )
    assert_array_equal(again.apply(items(1)), fitted.apply(items(1)))


def test_damaged_bytes_are_refused():
    data = bytearray(CoordinateMap.fit(items()).to_bytes())
    data[-1] ^= 1
    with pytest.raises(CorruptError, match="damaged"):
        CoordinateMap.from_bytes(bytes(data))


def test_arrays_that_do_not_fit_together_are_refused():
    data = CoordinateMap.fit(items()).to_bytes()
    tensors, metadata = load(data), {"map": {"modalities": ["color", "text"]}}
    for name, array in tensors.items():
        for other in (array[:-1], array.astype(np.float32), array[None]):
            with pytest.raises(CorruptError):
                CoordinateMap.from_bytes(pack({**tensors, name: other}, metadata, MAP))
        others = {key: value for key, value in tensors.items() if key != name}
        with pytest.raises(CorruptError):
            CoordinateMap.from_bytes(pack(others, metadata, MAP))
    for description in ({}, {"map": {}}, {"map": {"modalities": [3]}}, {"map": {"modalities": []}}):
        with pytest.raises(CorruptError):
            CoordinateMap.from_bytes(pack(tensors, description, MAP))


def test_a_newer_format_asks_for_the_release_that_wrote_it():
    data = pack({}, {}, MAP._replace(number=MAP.number + 1))
    with pytest.raises(FormatError, match="coordinate map: written by a newer omdml"):
        CoordinateMap.from_bytes(data)
