"""The experts of DCA's metric, made from sums: the rows of each learned one, and what each counts for (MATHS 12)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from omdml.blas import one_blas_thread
from omdml.engines.base import Array
from omdml.engines.second_order.discriminant import discriminant_rows, is_guide, rows_near_earlier
from omdml.engines.second_order.moments import LEARNED, Moments, covariances, scales
from omdml.engines.second_order.near_last import AllPairs, scaled_covariances
from omdml.engines.second_order.state import State
from omdml.kernels.shared.counts import VERSION

# The plain coordinates count as much as this many triplets. A share below the second number is taken for 0.
PLAIN, FADED = 5.0, 0.005
# Between two refreshes, the expert with the smaller weight is searched again only if new events have moved it far
# enough: if the distance, times its weight, is at least this (MATHS 12 (k)).
LEAST_MOVE = 0.0015


def own_experts(
    state: State, pairs: AllPairs, weights: Mapping[str, float], fresh: bool
) -> dict[str, tuple[float, Array]]:
    """Share and matrix (r, D) of a model's own experts, from all pairs and Hedge's weights.

    The rows ``W`` of the last refresh are ``fresh`` if they were made from exactly these pairs. Then nothing is
    searched, and they are served. A matrix without rows stands for the coordinates as they are.
    """
    plain = plain_share(pairs.moments)
    wanted = [name for name, weight in weights.items() if (1 - plain) * weight >= FADED]
    last = {name: rows for name, rows in zip(LEARNED, state.rows, strict=True) if name in wanted and len(rows)}
    searched = [name for name in wanted if not fresh and (name not in last or _is_due(name, state, pairs, weights))]
    rows = {name: array.copy() for name, array in last.items() if name not in searched}
    if searched:
        rows |= learned_rows(state, pairs, searched, {name: last[name] for name in searched if name in last})
    rows = {name: rows[name] for name in LEARNED if name in rows}
    learned = sum(weights[name] for name in rows)
    if not rows:
        return {"plain": (1.0, state.basis)}
    experts = {"plain": (plain, state.basis)} if plain else {}
    return experts | {name: ((1 - plain) * weights[name] / learned, rows[name]) for name in rows}


def _is_due(name: str, state: State, pairs: AllPairs, weights: Mapping[str, float]) -> bool:
    """Whether an expert that has rows is searched again for what is served between two refreshes (MATHS 12 (k)).

    The expert with the largest weight always is, so that every triplet counts in what is served. (Both are, if their
    weights are equal.) The other one is searched if the events since the last refresh matter enough for it.
    """
    # A covariance is a mean over about n pairs. v new ones move it by about sqrt(v) / n of the spread of a pair.
    moved = math.sqrt(int(state.counts[VERSION]) - int(state.made[0])) / float(pairs.moments.sums[0])
    return weights[name] == max(weights.values()) or weights[name] * moved >= LEAST_MOVE


def plain_share(moments: Moments) -> float:
    """Share of the plain coordinates, beside the learned experts."""
    plain = PLAIN / (PLAIN + float(moments.sums[0]))
    return plain if plain >= FADED else 0.0


def learned_rows(
    state: State, pairs: AllPairs, names: Sequence[str], last: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """The rows (k, D) of these experts, computed from all pairs; experts without any direction are left out.

    For experts in ``last``, which has rows of the last refresh, directions are searched near these only if they are a
    guide. That is faster.
    """
    if state.sums_items:
        with one_blas_thread():
            pairs = AllPairs.of_closed(pairs.whole().turned(state.basis))
    variances = state.deviations.astype(np.float64) ** 2
    made = _near_last(state, pairs, variances, last) if last else {}
    if rest := [name for name in names if name not in made]:
        with one_blas_thread():
            whole = pairs.whole()
        compared = covariances(whole, variances)
        others = {name: compared.others[name] for name in rest}
        if len(compared.coordinates):
            computed = discriminant_rows(compared.near, others, compared.added, state.W.dtype)
            made |= {name: _over_items(state, rows, compared.coordinates) for name, rows in computed.items()}
    # If features are close to the smallest numbers of the type, rows can be too large for it.
    return {name: rows for name, rows in made.items() if np.isfinite(rows).all()}


def _near_last(state: State, pairs: AllPairs, variances: Array, last: Mapping[str, Array]) -> dict[str, Array]:
    """The rows (k, D) found near the last ones; experts for which all directions must be searched are left out."""
    scale = scales(pairs.moments, pairs.diagonals()[0], variances)
    guides = {name: rows for name, rows in last.items() if is_guide(rows, len(scale.coordinates))}
    if not guides:
        return {}
    earlier = {name: _in_coordinates(state, rows, scale.coordinates) for name, rows in guides.items()}
    computed = rows_near_earlier(scaled_covariances(pairs, scale, variances, state.W.dtype, earlier), earlier)
    return {name: _over_items(state, rows, scale.coordinates) for name, rows in computed.items()}


def _over_items(state: State, rows: Array, coordinates: Array) -> Array:
    """Rows (k, c) over these c principal coordinates, as rows (k, D) over the numbers of an item."""
    if len(state.basis):
        with one_blas_thread():
            whole = rows @ _directions(state, coordinates)
    else:
        whole = np.zeros((len(rows), len(state.mean)), rows.dtype)
        whole[:, coordinates] = rows
    with np.errstate(over="ignore"):
        made: Array = whole.astype(state.W.dtype, copy=False)
    return made


def _in_coordinates(state: State, rows: Array, coordinates: Array) -> Array:
    """Rows (k, D) over the numbers of an item, as rows (k, c) over these c principal coordinates."""
    if not len(state.basis):
        return rows[:, coordinates]
    with one_blas_thread():
        made: Array = rows @ _directions(state, coordinates).T
    return made


def _directions(state: State, coordinates: Array) -> Array:
    """The principal directions (c, D) of these c coordinates, which are in rising order."""
    # A learner starts with the directions along which items vary most. So these are the first ones, and need no copy.
    first = state.basis[: len(coordinates)]
    return first if coordinates[-1] < len(first) else state.basis[coordinates]
