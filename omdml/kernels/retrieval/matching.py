"""Greedy matching of query elements to the elements of sets (SETNET 5.3)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from omdml.kernels import Array


@njit(cache=True)
def greedy_matches(scores: Array, begins: Array) -> Array:
    """Total score of each set (n,), float64, by greedy matching.

    Pairs are taken from the highest score down; each query element and each element of the set is used once.

    Parameters
    ----------
    scores : (Q, N)
        Scores of query elements with the elements of all sets, one set after another.
    begins : (n + 1,)
        Where each set begins among them, and N.
    """
    totals = np.zeros(begins.shape[0] - 1)
    queries = scores.shape[0]
    for s in range(totals.shape[0]):
        begin, end = begins[s], begins[s + 1]
        query_used, element_used = np.zeros(queries, np.bool_), np.zeros(end - begin, np.bool_)
        for _ in range(min(queries, end - begin)):
            best, q, e = -math.inf, 0, 0
            for i in range(queries):
                for j in range(end - begin):
                    if not query_used[i] and not element_used[j] and scores[i, begin + j] > best:
                        best, q, e = scores[i, begin + j], i, j
            query_used[q] = element_used[e] = True
            totals[s] += best
    return totals
