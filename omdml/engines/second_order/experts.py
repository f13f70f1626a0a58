"""The experts of DCA's metric, made from moments: the rows of each learned one, and what each counts for (MATHS 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from omdml.blas import one_blas_thread
from omdml.engines.base import Array
from omdml.engines.second_order.discriminant import discriminant_rows, rows_near_earlier
from omdml.engines.second_order.moments import LEARNED, Moments, covariances
from omdml.engines.second_order.state import State

# The plain coordinates count as much as this many triplets. A share below the second number is taken for 0.
PLAIN, FADED = 5.0, 0.005


def own_experts(
    state: State, moments: Moments, weights: Mapping[str, float], fresh: bool
) -> dict[str, tuple[float, Array]]:
    """Share and matrix (r, D) of a model's own experts, from the moments of all pairs and Hedge's weights.

    ``W`` is ``fresh`` if it was made from these moments: then it is served. A matrix without rows stands for the
    coordinates as they are.
    """
    plain = plain_share(moments)
    wanted = [name for name, weight in weights.items() if (1 - plain) * weight >= FADED]
    last = {name: rows for name, rows in zip(LEARNED, state.rows, strict=True) if name in wanted and len(rows)}
    rows = {name: array.copy() for name, array in last.items()} if fresh else learned_rows(state, moments, wanted, last)
    learned = sum(weights[name] for name in rows)
    if not rows:
        return {"plain": (1.0, state.basis)}
    experts = {"plain": (plain, state.basis)} if plain else {}
    return experts | {name: ((1 - plain) * weights[name] / learned, rows[name]) for name in rows}


def plain_share(moments: Moments) -> float:
    """Share of the plain coordinates, beside the learned experts."""
    plain = PLAIN / (PLAIN + float(moments.sums[0]))
    return plain if plain >= FADED else 0.0


def learned_rows(
    state: State, moments: Moments, names: Sequence[str], last: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """The rows (k, D) of these experts, computed from moments; experts without any direction are left out.

    With ``last``, the rows of the last refresh by expert, directions are searched near these only, which is faster.
    """
    made = {}
    compared = covariances(moments, state.deviations.astype(np.float64) ** 2, state.turning)
    others = {name: compared.others[name] for name in names}
    if not len(compared.coordinates):
        return {}
    if last:
        earlier = {name: _in_coordinates(state, rows, compared.coordinates) for name, rows in last.items()}
        computed = rows_near_earlier(compared.near, others, compared.added, earlier, state.W.dtype)
    else:
        computed = discriminant_rows(compared.near, others, compared.added, state.W.dtype)
    for name, rows in computed.items():
        if len(state.basis):
            with one_blas_thread():
                whole = rows @ state.basis[compared.coordinates]
        else:
            whole = np.zeros((len(rows), len(state.mean)), rows.dtype)
            whole[:, compared.coordinates] = rows
        with np.errstate(over="ignore"):
            made[name] = whole.astype(state.W.dtype, copy=False)
    # If features are close to the smallest numbers of the type, rows can be too large for it.
    return {name: rows for name, rows in made.items() if np.isfinite(rows).all()}


def _in_coordinates(state: State, rows: Array, coordinates: Array) -> Array:
    """Rows (k, D) over the numbers of an item, as rows (k, c) over these c principal coordinates."""
    if not len(state.basis):
        return rows[:, coordinates]
    with one_blas_thread():
        made: Array = rows @ state.basis[coordinates].T
    return made
