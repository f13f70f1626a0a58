"""Whether a learner's rate can move anything on the features of its catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.learners import Learner

Array = NDArray[Any]
TRIPLETS = 2_000
# Share of a margin below which synthetic items, at spreads of 1e-6 to 1e6, hardly moved.
INERT = 1e-3
# Share at which learning is about as fast as at any higher rate.
SOUND = 0.1


def inert_rates(model: str, learner: Learner, features: Mapping[str, Array]) -> list[str]:
    """The modalities of a model whose features are so small that its rate does next to nothing, and what to do."""
    step_size = learner.step_changes and STEP_SIZES[learner.step_changes]
    count = len(next(iter(features.values())))
    if not step_size or count < 2:
        return []
    name = "C" if hasattr(learner, "C") else "eta"
    rate = float(getattr(learner, name))
    rows = np.random.default_rng(0).integers(0, count, (TRIPLETS, 3))
    sizes = {modality: step_size(*sampled(features[modality], rows)) for modality in learner.dims}
    if "pair" in learner.accepts:
        # These learners put the modalities side by side, in one vector.
        sizes = {" + ".join(sizes): sum(sizes.values())}
    return [
        f"model {model!r}: the items of modality {modality!r} differ so little that with {name}={rate:g} one step "
        f"makes up for a share of only {rate * size:.1g} of a comparison's margin. Below {INERT:g} the model learns "
        f"next to nothing: build the catalogue with --scaling minmax, or set {name} to about {SOUND / size:.1g}"
        for modality, size in sizes.items()
        if 0 < rate * size < INERT
    ]


def sampled(x: Array, rows: Array) -> tuple[Array, Array, Array]:
    """Query, and its differences from the relevant and the irrelevant item, (T, d) each."""
    query, relevant, irrelevant = (np.asarray(x[rows[:, place]], np.float64) for place in range(3))
    return query, query - relevant, query - irrelevant


def squared(a: Array) -> Array:
    """Squared Euclidean lengths (T,) of rows (T, d)."""
    return np.einsum("ij,ij->i", a, a)


def of_rows(query: Array, a: Array, b: Array) -> float:
    """The effect of a step of rate 1 at unit spread, for learners whose step is relative to what is learned."""
    return float(squared(a).mean())


def of_matrix(query: Array, a: Array, b: Array) -> float:
    """The mean of ``|a a' - b b'|^2`` over the triplets."""
    return float((squared(a) ** 2 + squared(b) ** 2 - 2 * np.einsum("ij,ij->i", a, b) ** 2).mean())


def of_weights(query: Array, a: Array, b: Array) -> float:
    """The mean of ``|a o a - b o b|^2`` over the triplets."""
    return float(squared(a**2 - b**2).mean())


def of_similarity(query: Array, a: Array, b: Array) -> float:
    """The mean of ``|q|^2 |r - s|^2`` over the triplets."""
    return float((squared(query) * squared(a - b)).mean())


# How much a step of rate 1 changes a comparison's margin, by what the step changes (``step_changes`` of the learner).
STEP_SIZES: dict[str, Callable[[Array, Array, Array], float]] = {
    "rows": of_rows,
    "matrix": of_matrix,
    "weights": of_weights,
    "similarity": of_similarity,
}
