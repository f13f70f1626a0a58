"""The metric of unit-length embeddings: against literal cosines, through bytes, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from omdml.errors import CorruptError
from omdml.kernels.second_order.experts import unit_rows
from omdml.metrics import CosineMetric, cosine
from omdml.metrics.cosine import UnitVectors
from omdml.snapshot import metric_from_bytes, metric_to_bytes, pack, unpack


def two_experts(dtype="float64", seed=0):
    """A metric of two experts, and a table of items, one of which lies in the middle."""
    draw = np.random.default_rng(seed)
    features = {"a": draw.normal(2, 1, (30, 3)), "b": draw.normal(-1, 1, (30, 4))}
    mean = np.concatenate([x.mean(axis=0) for x in features.values()])
    features["a"][7], features["b"][7] = mean[:3], mean[3:]
    experts = {"plain": draw.normal(0, 1, (5, 7)).astype(dtype), "learned": draw.normal(0, 1, (2, 7)).astype(dtype)}
    metric = CosineMetric({"a": 3, "b": 4}, mean.astype(dtype), experts, {"plain": 0.3, "learned": 0.7})
    return metric, {name: x.astype(dtype) for name, x in features.items()}


def literal(metric, features, p, q):
    """``sum_j share_j |unit - unit|^2``, unit(0) being 0."""
    left, right = (np.concatenate([x[row] for x in features.values()]) - metric.mean for row in (p, q))
    total = 0.0
    for name, matrix in metric.experts.items():
        ends = [matrix @ side for side in (left, right)]
        ends = [end / np.linalg.norm(end) if np.linalg.norm(end) > 0 else end for end in ends]
        total += metric.shares[name] * ((ends[0] - ends[1]) ** 2).sum()
    return total


@pytest.mark.parametrize(("dtype", "error"), [("float64", 1e-12), ("float32", 1e-5)])
def test_distances_are_those_of_weighed_units(dtype, error, monkeypatch):
    metric, features = two_experts(dtype)
    monkeypatch.setattr("omdml.metrics.cosine.ROWS_AT_ONCE", 7)
    embedded = metric.embed(features)
    assert embedded.shape == (30, metric.size)
    np.testing.assert_allclose(np.linalg.norm(embedded, axis=1), [row != 7 for row in range(30)], atol=error)
    for p, q in ((0, 1), (3, 7), (7, 7), (4, 4)):
        expected = literal(metric, features, p, q)
        assert ((embedded[p] - embedded[q]) ** 2).sum() == pytest.approx(expected, abs=error)
        left, right = ({name: x[[row]] for name, x in features.items()} for row in (p, q))
        assert -metric.closeness(left, right)[0] == pytest.approx(expected, abs=error)
        assert -metric.score({name: x[p] for name, x in features.items()}, right)[0] == pytest.approx(
            expected, abs=error
        )


@pytest.mark.parametrize("counting", [(6, 6), (3, 7), (2, 1), (0, 5), (0, 0)])
def test_trailing_columns_of_zeros_of_a_matrix_do_not_count(counting):
    metric, features = two_experts()
    experts = {name: matrix.copy() for name, matrix in metric.experts.items()}
    for matrix, numbers in zip(experts.values(), counting, strict=True):
        matrix[:, numbers:] = 0
    metric = CosineMetric(metric.dims, metric.mean, experts, metric.shares)
    embedded = metric.embed(features)
    assert embedded.any() == any(counting)
    for p, q in ((0, 1), (3, 7)):
        assert ((embedded[p] - embedded[q]) ** 2).sum() == pytest.approx(literal(metric, features, p, q), abs=1e-12)


def changed(metric, seed=1):
    """The same metric with another matrix for its learned expert, and other shares."""
    learned = np.random.default_rng(seed).normal(0, 1, (3, 7)).astype(metric.mean.dtype)
    return CosineMetric(
        metric.dims, metric.mean, {**metric.experts, "learned": learned}, {"plain": 0.6, "learned": 0.4}
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_unit_vectors_embed_to_the_bytes_of_the_metric(dtype, monkeypatch):
    monkeypatch.setattr(cosine, "ROWS_AT_ONCE", 7)
    metric, features = two_experts(dtype)
    units = UnitVectors(metric, features)
    assert units.embed().tobytes() == metric.embed(features).tobytes()
    later = UnitVectors(changed(metric), features, units)
    assert later.embed().tobytes() == changed(metric).embed(features).tobytes()
    assert later.embed(slice(4, 11)).tobytes() == changed(metric).embed(features)[4:11].tobytes()
    assert later.nbytes == 30 * (5 + 3) * np.dtype(dtype).itemsize


def test_unit_vectors_are_computed_again_only_for_changed_experts(monkeypatch):
    metric, features = two_experts()
    units, projections = UnitVectors(metric, features), []

    def counted(vectors, matrix):
        projections.append(len(matrix))
        return vectors @ matrix.T

    monkeypatch.setattr(cosine, "projected", counted)
    UnitVectors(changed(metric), features, units)
    assert projections == [3]
    UnitVectors(changed(metric), features, UnitVectors(changed(metric), features))
    assert projections == [3, 5, 3]


def test_unit_vectors_around_another_mean_are_not_taken_over():
    metric, features = two_experts()
    other = CosineMetric(metric.dims, metric.mean + 1, metric.experts, metric.shares)
    units = UnitVectors(other, features, UnitVectors(metric, features))
    assert units.embed().tobytes() == other.embed(features).tobytes()


def test_unit_vectors_of_another_type_are_not_taken_over():
    # Both types hold these numbers exactly, so that only the type differs.
    single, features = two_experts("float32")
    experts = {name: matrix.astype("float64") for name, matrix in single.experts.items()}
    double = CosineMetric(single.dims, single.mean.astype("float64"), experts, single.shares)
    units = UnitVectors(single, features, UnitVectors(double, features))
    assert {vectors.dtype for vectors in units.by_expert.values()} == {single.mean.dtype}
    assert units.embed().tobytes() == single.embed(features).tobytes()


def test_a_cosine_metric_travels_as_bytes():
    metric, features = two_experts("float32")
    again = metric_from_bytes(metric_to_bytes(metric))
    assert again.embed(features).tobytes() == metric.embed(features).tobytes()
    assert (again.dims, again.shares) == (metric.dims, metric.shares)
    assert metric_to_bytes(again) == metric_to_bytes(metric)


@pytest.mark.parametrize(
    "change",
    [{"shares": np.ones(3)}, {"shares": np.array([-0.5, 1.5])}, {"mean": np.zeros(6)}, {"learned/W": np.zeros((2, 6))},
     {"learned/W": np.zeros(7)}],
)  # fmt: skip
def test_tensors_that_do_not_fit_together_are_refused(change):
    tensors, described = unpack(metric_to_bytes(two_experts()[0]))
    with pytest.raises(CorruptError, match="metric"):
        metric_from_bytes(pack({**tensors, **change}, {"metric": described["metric"]}))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_are_scaled_as_literally_and_zeros_stay(dtype):
    vectors = np.random.default_rng(0).normal(0, 1, (9, 21)).astype(dtype)
    vectors[2], vectors[5] = 0, np.finfo(dtype).smallest_subnormal
    scaled_rows, factor = np.full((9, 30), np.nan, dtype), vectors.dtype.type(0.3)
    unit_rows(vectors, factor, scaled_rows[:, 4:25])
    length = np.linalg.norm(vectors.astype(float), axis=1, keepdims=True)
    expected = np.divide(vectors, length, out=np.zeros((9, 21)), where=length > 0) * 0.3
    np.testing.assert_allclose(scaled_rows[:, 4:25], expected, rtol=1e-6 if dtype == "float32" else 1e-14, atol=0)
    assert np.isnan(np.delete(scaled_rows, range(4, 25), axis=1)).all()
