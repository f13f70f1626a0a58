"""Step sizes in closed form, from inner products alone (MATHS 2 (a))."""

from __future__ import annotations

import math

from numba import njit


@njit(cache=True)
def exact_step(loss: float, pp: float, qq: float, pq: float, aa: float, bb: float, ab: float, eta: float) -> float:
    """``min(eta, r*)``: r* the smallest rate at which ``loss(r) = loss - r |G|^2 + r^2 kappa`` is zero.

    ``G = 2 (p a' - q b')`` and ``kappa = |G a|^2 - |G b|^2``. If the loss never reaches zero, r* minimises it. The
    arguments are inner products of the projections p, q and of the differences a, b. Returns NaN if these overflow.
    """
    g = 4.0 * (pp * aa + qq * bb - 2.0 * pq * ab)
    if not math.isfinite(g):
        return math.nan
    if not g > 0.0:
        return 0.0
    kappa = 4.0 * (pp * aa * aa - 2.0 * pq * aa * ab + qq * ab * ab)
    kappa -= 4.0 * (pp * ab * ab - 2.0 * pq * ab * bb + qq * bb * bb)
    under = g * g - 4.0 * kappa * loss
    if under >= 0.0:
        return min(eta, 2.0 * loss / (g + math.sqrt(under)))
    return min(eta, g / (2.0 * kappa))
