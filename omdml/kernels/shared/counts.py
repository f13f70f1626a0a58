"""Places in an engine's ``counts`` (4,), and the step that all walks share."""

from __future__ import annotations

from numba import njit

from omdml.kernels import Array

# Comparisons in the open block; all comparisons; comparisons with f > 0; comparisons that changed the model.
FILLED, VERSION, MISTAKES, UPDATES = 0, 1, 2, 3


@njit(cache=True)
def count(counts: Array, f: float) -> None:
    """Count one comparison of score f in ``counts`` (4,), in place: it is a mistake if f > 0."""
    counts[FILLED] += 1
    counts[VERSION] += 1
    counts[MISTAKES] += f > 0.0
