"""Modalities that are missing: their conditional means are those of ridge regression, literally."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.retrieval.missing_modalities import RIDGE, Filling
from tests.support.deep import examples

DIMS = {"color": 4, "shape": 30, "text": 3}


def table(count, seed):
    draw = np.random.default_rng(seed)
    hidden = draw.normal(size=(count, 3))
    return {name: (hidden @ draw.normal(size=(3, d)) + 2).astype(np.float32) for name, d in DIMS.items()}


@settings(max_examples=examples(30), deadline=None)
@given(
    count=st.integers(2, 60), seed=st.integers(0, 1000),
    there=st.sets(st.sampled_from(sorted(DIMS)), min_size=1, max_size=2),
)  # fmt: skip
def test_missing_modalities_are_those_of_ridge_regression(count, seed, there):
    features, asked = table(count, seed), table(5, seed + 1)
    filled = Filling(features)({name: asked[name] for name in there})
    names = [name for name in DIMS if name in there]
    x = np.concatenate([features[name] for name in names], axis=1).astype(np.float64)
    new = np.concatenate([asked[name] for name in names], axis=1).astype(np.float64) - x.mean(axis=0)
    x -= x.mean(axis=0)
    ridge = RIDGE * (x**2).sum() / min(x.shape)
    for name in DIMS:
        if name in there:
            assert filled[name] is asked[name]
            continue
        y = features[name].astype(np.float64)
        # The primal way; the product takes the dual one.
        weights = np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ (y - y.mean(axis=0)))
        assert np.allclose(filled[name], new @ weights + y.mean(axis=0), rtol=1e-4, atol=1e-4)


def test_items_that_are_all_alike_fill_with_their_mean():
    features = {name: np.ones((9, d), np.float32) for name, d in DIMS.items()}
    filled = Filling(features)({"color": np.full((1, 4), 7, np.float32)})
    assert np.allclose(filled["text"], 1)


def test_whole_items_stay_as_they_are():
    features = table(10, 0)
    assert all(filled is features[name] for name, filled in Filling(features)(features).items())
