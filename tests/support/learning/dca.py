"""Items, triplets, chunks of them, and what is served, for tests of DCA."""

from __future__ import annotations

import numpy as np
import pytest

from omdml import DCA
from omdml.engines.second_order.discriminant import ScaledCovariances
from omdml.engines.second_order.refresh_schedule import next_refresh
from omdml.kernels.second_order.experts import tally
from omdml.kernels.shared.counts import FILLED
from omdml.metrics.cosine import projected


def world(seed, dims=(7, 5), items=80, events=150, classes=4):
    """Items of a few classes that only the first modality shows, and triplets by their labels."""
    draw = np.random.default_rng(seed)
    labels = np.arange(items) % classes
    features = {f"m{i}": draw.normal(0, 1, (items, d)) for i, d in enumerate(dims)}
    features["m0"] += 1.5 * draw.normal(0, 1, (classes, dims[0]))[labels]
    query = draw.integers(0, items, events)
    relevant = (query + classes * draw.integers(1, items // classes, events)) % items
    irrelevant = (relevant + draw.integers(1, classes, events)) % items
    return features, np.stack([query, relevant, irrelevant], axis=1), labels, draw


def with_pairs(rows, shares, draw):
    """Triplets, of which these three shares stay as they are, become a near pair only, or a far pair only."""
    kind, rows = draw.choice(3, len(rows), p=shares), rows.copy()
    rows[kind == 1, 2] = rows[kind == 1, 0]
    rows[kind == 2, 1] = rows[kind == 2, 0]
    return rows


def learner(features, **options):
    return DCA(dims={name: x.shape[1] for name, x in features.items()}, **options)


def served(model):
    """The matrix M (d, d) of each served expert, in principal coordinates, scaled to trace 1."""
    return {name: M / np.trace(M) for name, M in matrices(model).items()}


def matrices(model):
    """The matrix M (d, d) of each served expert, in principal coordinates."""
    results = {}
    for name, rows in model.metric.experts.items():
        if name != "plain":
            rows = projected(rows.astype(float), model._engine.state.basis)
            results[name] = rows.T @ rows
    return results


def count_margins(model, margins):
    """Count these margins (2, T) of the two experts as those of T triplets, each with a query of its own."""
    state, count = model._engine.state, margins.shape[1]
    values = np.concatenate([np.zeros((1, count)), margins])
    queries = np.arange(1, count + 1, dtype=np.uint64)
    other_arrays = state.hedge, np.zeros(2), np.zeros(count), state.counts, np.zeros((2, count)), np.zeros((0, 5))
    assert tally(values, 0.0, 1.0, np.ones(count, bool), queries, state.asked, 0, *other_arrays) == count
    state.counts[FILLED], state.sums[:] = 0, model.version
    state.made[0], state.next[0] = model.version, next_refresh(model.version)


def in_chunks(model, rows, features, sizes, weights=None):
    """Learn in calls of these many events; a size of 0 saves the model, loads it, and learns one event."""
    start = 0
    while start < len(rows):
        size = next(sizes)
        if size == 0 and model.version:
            model = DCA.from_bytes(model.to_bytes())
        weight = 1.0 if weights is None else weights[start : start + max(1, size)]
        model.learn_many(rows[start : start + max(1, size)], features, weight=weight)
        start += max(1, size)
    return model


def in_units(near, others, added, dtype=np.float64):
    """Covariances in the form that a search near earlier rows takes."""
    S = (near / added + np.eye(len(near))).astype(dtype)
    units = {name: float(np.trace(other)) for name, other in others.items()}
    return ScaledCovariances(
        added, S, {name: ((other / units[name]).astype(dtype), units[name]) for name, other in others.items()}
    )


def centred(model, features):
    """Items (n, D) about the mean of a learner, its principal directions, and its variances along them."""
    state = model._engine.state
    items = np.concatenate(list(features.values()), axis=1) - state.mean
    basis = state.basis if len(state.basis) else np.eye(items.shape[1])
    return items, basis, state.deviations.astype(float) ** 2


def assert_serves(model, experts, shares, **exact):
    assert model.shares == pytest.approx(shares)
    for name, M in served(model).items():
        np.testing.assert_allclose(M, experts[name] / np.trace(experts[name]), **exact)
