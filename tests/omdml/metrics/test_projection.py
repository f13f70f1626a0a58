"""The metric that nodes serve: its embedding and its scores, against a literal twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.metrics import ProjectionMetric
from tests.naive import projections
from tests.support.deep import examples


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=4),
    dtype=st.sampled_from(["float32", "float64"]),
    given_as=st.sampled_from(["float32", "float64"]),
)
def test_embedding_and_scores_are_those_of_the_slow_twin(seed, shapes, dtype, given_as):
    draw = np.random.default_rng(seed)
    features = {f"m{i}": draw.normal(0, 1, (30, d)).astype(given_as) for i, (_, d) in enumerate(shapes)}
    matrices = {f"m{i}": draw.normal(0, 1, shape).astype(dtype) for i, shape in enumerate(shapes)}
    weights = dict(zip(matrices, draw.dirichlet(np.ones(len(shapes))), strict=True))
    metric = ProjectionMetric(weights, matrices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("omdml.metrics.projection.CHUNK_ROWS", 7)
        embedded = metric.embed(features)
    close = {"rtol": 1e-4, "atol": 1e-4} if "float32" in (dtype, given_as) else {"rtol": 1e-9, "atol": 1e-9}
    assert embedded.dtype == dtype
    np.testing.assert_allclose(embedded, projections.embedding(features, weights, matrices), **close)
    query = {name: table[3] for name, table in features.items()}
    items = [{name: table[row] for name, table in features.items()} for row in range(30)]
    expected = [-projections.distance(item, query, weights, matrices) for item in items]
    np.testing.assert_allclose(metric.score(query, features), expected, **close)
    np.testing.assert_allclose(-((embedded - embedded[3]) ** 2).sum(axis=1), expected, **close)


def test_weights_belong_to_their_modality_whatever_the_order_they_are_named_in():
    matrices = {"a": np.array([[1.0]]), "b": np.array([[1.0]])}
    metric = ProjectionMetric({"b": 0.75, "a": 0.25}, matrices)
    np.testing.assert_allclose(metric.embed({"b": np.ones((1, 1)), "a": np.ones((1, 1))}), [[0.5, 0.75**0.5]])
