"""Directions in which near pairs differ less than any two items: generalised eigenvectors (MATHS 12)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

from omdml.blas import one_blas_thread

Array = NDArray[Any]
# The factor and the cap of the shrinkage, in units of the mean variance of near pairs.
FACTOR, CAP = 0.8, 3.0
# Coordinates whose variance lies below this share of the shrinkage are left out.
SEEN = 0.3
# Directions are dropped if their b is not at least this much above 1.
LEAST = 1e-6
# The last directions are dropped if they have less than this share of what all b are above 1.
TAIL = 0.005
# Of 128 coordinates or fewer, all directions are found as fast as those near earlier ones.
FEWEST = 64
# How many pairs a coordinate the catalogue's variances count for.
PRIOR = 0.3


def shrinkage(count: float, coordinates: int) -> float:
    """What is added to the covariance of ``count`` near pairs, in units of their mean variance.

    The eigenvalues of a covariance in d coordinates are off by about ``sqrt(d / count)`` of their size.
    """
    return min(FACTOR * math.sqrt(coordinates / count), CAP)


def catalogue_share(count: float, coordinates: int) -> float:
    """How much the catalogue's variances count for beside the covariance of items in ``count`` near pairs."""
    prior = PRIOR * coordinates
    return prior / (prior + count)


def told_apart(variances: Array, added: float) -> Array:
    """Places of the coordinates whose variance is not far below what is added.

    The others cannot have directions of their own. They are left out, so few pairs make a small problem.
    """
    return np.flatnonzero(variances > SEEN * added) if added > 0 else np.zeros(0, np.intp)


def discriminant_rows(
    near: Array, others: Mapping[str, Array], added: float, earlier: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """The rows A (k, d) for which ``A'A`` is the learned metric, up to scale, for each covariance to compare with.

    With ``S = near + added I`` and T the other one, A holds the directions u of ``T u = b S u`` with b above 1, each as
    long as ``sqrt(1 - 1/b)`` for ``u'Su = 1``: ``A'A`` is ``W V (1 - 1/b)+ V' W``, W being ``S^(-1/2)`` and ``W T W =
    V diag(b) V'``. The last directions, which add next to nothing, are left out.

    Parameters
    ----------
    near : (d, d)
        Covariance of near pairs; its upper triangle is read.
    others : (d, d) each
        What it is compared with, by name; their upper triangles are read.
    added
        Variance that is added to every coordinate of ``near``, > 0.
    earlier : (k, d) each
        Rows that were found of sums much like these, by name. What has such rows, few beside its coordinates, is looked
        for in the span of ``S^-1 T A'`` alone: one step of subspace iteration with the Rayleigh-Ritz procedure (Saad,
        Numerical methods for large eigenvalue problems, 2011, 5.2), in a third of the time.

    Returns
    -------
    By name (k, d), float64, the most telling direction first, the largest component of each positive, scaled so that
    items whose covariance is T have a mean squared length of 1; a name is left out if it has no such direction.
    """
    S, found = near.copy(), {}
    S[np.diag_indices(len(S))] += added
    with one_blas_thread():
        # whitened by S, because what is added makes it definite, whatever was clicked
        inverse, _ = dtrtri(np.linalg.cholesky(S, upper=True))
        for name, other in others.items():
            T = symmetric(other)
            within = _span(inverse, T, (earlier or {}).get(name))
            # numpy's lets other threads run; scipy's, which could stop at the values that count, does not
            values, vectors = np.linalg.eigh(within.T @ T @ within)
            told = telling(values)
            if len(told):
                rows = (within @ vectors[:, told]).T * np.sqrt(1 - 1 / values[told])[:, None]
                rows *= np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])[:, None]
                found[name] = rows / math.sqrt(float((values[told] - 1).sum()))
    return found


def symmetric(upper: Array) -> Array:
    """The matrix (d, d) whose upper triangle this one has."""
    kept = np.triu(upper)
    kept += np.triu(kept, 1).T
    return kept


def _span(inverse: Array, T: Array, earlier: Array | None) -> Array:
    """Columns X (d, k) in whose span directions are looked for, ``X'SX = I``: all, or what earlier rows lead to."""
    if earlier is None or 2 * max(len(earlier), FEWEST) > len(T):
        return inverse
    orthonormal, _ = np.linalg.qr(inverse.T @ (T @ earlier.T))
    found: Array = inverse @ orthonormal
    return found


def telling(values: Array) -> Array:
    """Places of eigenvalues above 1, the largest first, less the last ones: together TAIL of what all are above 1."""
    gains = np.maximum(values[::-1] - 1, 0.0)
    gains[gains <= LEAST] = 0.0
    rest = gains[::-1].cumsum()[::-1]
    kept: Array = len(values) - 1 - np.flatnonzero(rest > TAIL * gains.sum())
    return kept
