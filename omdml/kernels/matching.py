"""Greedy matching of query elements to the elements of sets (SETNET 5.3)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from omdml.kernels import Array


@njit(cache=True)
def greedy_matches(scores: Array, begins: Array) -> Array:
    """Total score of each set: pairs are taken from the highest score down, each query element and element once.

    Parameters
    ----------
    scores : (Q, N)
        Of query elements and the elements of all sets, one set after another.
    begins : (n + 1,)
        Where each set begins among them, and N.

    Returns
    -------
    (n,), float64.
    """
    totals = np.zeros(begins.shape[0] - 1)
    queries = scores.shape[0]
    for s in range(totals.shape[0]):
        begin, end = begins[s], begins[s + 1]
        asked, taken = np.zeros(queries, np.bool_), np.zeros(end - begin, np.bool_)
        for _ in range(min(queries, end - begin)):
            best, q, e = -math.inf, 0, 0
            for i in range(queries):
                for j in range(end - begin):
                    if not asked[i] and not taken[j] and scores[i, begin + j] > best:
                        best, q, e = scores[i, begin + j], i, j
            asked[q] = taken[e] = True
            totals[s] += best
    return totals
