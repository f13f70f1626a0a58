"""How each pair of DCA makes the earlier pairs of its kind fade (MATHS 12.2)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.second_order.vectors import add_scaled, scale


@njit(cache=True)
def fade(
    near: Array, far: Array, weights: Array, rule: float, y: Array, m: Array, g: Array, centre: Array, sums: Array
) -> tuple[float, float]:
    """Weigh the pairs of a block: each pair makes the earlier pairs of its kind fade.

    Parameters
    ----------
    near, far, weights : (n,)
        Which triplets have a near pair, and which have a far one; what each counts for before it fades.
    rule
        The factor by which a pair multiplies the weights of the pairs before it, at most 1.
    y, m, g : (n, d)
        Differences of near pairs, their midpoints, and differences of far pairs. Changed in place: multiplied by the
        square root of the weight that the pair has at the end of the block, and by 0 if there is no such pair.
    centre, sums
        See ``Moments``. Changed in place: the block is added.

    Returns
    -------
    The factors by which the block makes the near pairs before it fade, and the far pairs before it.
    """
    # The factors by which later pairs of the block have made a weight fade.
    left, left_far = 1.0, 1.0
    total = squares = total_far = 0.0
    middle = np.zeros(centre.shape[0])
    for e in range(near.shape[0] - 1, -1, -1):
        weight = left * weights[e] if near[e] else 0.0
        weight_far = left_far * weights[e] if far[e] else 0.0
        add_scaled(m[e], weight, middle)
        scale(y[e], math.sqrt(weight))
        scale(m[e], math.sqrt(weight))
        scale(g[e], math.sqrt(weight_far))
        total, squares, total_far = total + weight, squares + weight * weight, total_far + weight_far
        left, left_far = left * (rule if near[e] else 1.0), left_far * (rule if far[e] else 1.0)
    scale(centre, left)
    add_scaled(middle, 1.0, centre)
    sums[0] = left * sums[0] + total
    sums[1] = left * left * sums[1] + squares
    sums[2] = left_far * sums[2] + total_far
    return left, left_far
