"""Directions in which near pairs differ less than any two items: generalised eigenvectors (MATHS 12)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

from omdml.blas import one_blas_thread

Array = NDArray[Any]
FACTOR, CAP = 0.8, 3.0  # of the shrinkage, in units of the mean variance of near pairs
SEEN = 0.3  # coordinates whose variance lies below this share of the shrinkage are left out
LEAST = 1e-6  # gain below which a direction is dropped
PRIOR = 0.3  # pairs a coordinate that the catalogue's variances count for


def shrinkage(count: float, coordinates: int) -> float:
    """What is added to the covariance of ``count`` near pairs, in units of their mean variance.

    The eigenvalues of a covariance in d coordinates are off by about ``sqrt(d / count)`` of their size.
    """
    return min(FACTOR * math.sqrt(coordinates / count), CAP)


def catalogue_share(count: float, coordinates: int) -> float:
    """How much the catalogue's variances count for beside the covariance of items in ``count`` near pairs."""
    prior = PRIOR * coordinates
    return prior / (prior + count)


def told_apart(variances: Array, added: float) -> int:
    """How many leading coordinates have a variance that is not far below what is added."""
    return int((variances > SEEN * added).sum())


def discriminant_rows(near: Array, items: Array, added: float, variances: Array) -> Array:
    """The rows A (k, d) for which ``A'A`` is the learned metric, up to scale.

    With ``S = near + added I`` and ``T = items``, A holds the directions u of ``T u = b S u`` with b above 1, each as
    long as ``sqrt(1 - 1/b)`` for ``u'Su = 1``: ``A'A`` is ``W V (1 - 1/b)+ V' W``, W being ``S^(-1/2)`` and ``W T W =
    V diag(b) V'``. Coordinates whose variance is far below ``added`` cannot have such directions of their own; they
    are left out, so few pairs make a small problem.

    Parameters
    ----------
    near : (d, d)
        Covariance of near pairs in the catalogue's principal coordinates; its upper triangle is read. The leading
        coordinates that are not left out (:func:`told_apart`) are enough.
    items : (d, d)
        Covariance of items in these coordinates, or in the leading ones; its upper triangle is read.
    added
        Variance that is added to every coordinate, >= 0.
    variances : (d,)
        Of the catalogue's items in these coordinates, falling.

    Returns
    -------
    (k, d), float64, the most telling direction first, the largest component of each positive, scaled so that items
    have a mean squared length of 1; k is 0 if there is no such direction.
    """
    width = told_apart(variances, added)
    nothing = np.zeros((0, len(variances)))
    if not added > 0 or not width:
        return nothing
    S, T = near[:width, :width].copy(), np.triu(items[:width, :width])
    S[np.diag_indices(width)] += added
    T += np.triu(T, 1).T
    with one_blas_thread():
        # whitened by S, because what is added makes it definite, whatever was clicked
        inverse, _ = dtrtri(np.linalg.cholesky(S, upper=True))
        # numpy's lets other threads run; scipy's, which could stop at the values that count, does not
        values, vectors = np.linalg.eigh(inverse.T @ T @ inverse)
        kept = np.flatnonzero(values > 1 + LEAST)[::-1]
        if not len(kept):
            return nothing
        rows = np.zeros((len(kept), len(variances)))
        rows[:, :width] = (inverse @ vectors[:, kept]).T * np.sqrt(1 - 1 / values[kept])[:, None]
    signs = np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])
    rows *= signs[:, None] / math.sqrt(float((values[kept] - 1).sum()))
    return rows
