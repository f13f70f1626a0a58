"""Directions in which near pairs differ less than any two items: generalised eigenvectors (MATHS 12)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.blas import one_blas_thread

Array = NDArray[Any]
FACTOR, CAP = 0.8, 3.0  # of the shrinkage, in units of the mean variance of near pairs
SEEN = 0.3  # coordinates whose variance lies below this share of the shrinkage are left out
LEAST = 1e-6  # gain below which a direction is dropped


def shrinkage(count: float, coordinates: int) -> float:
    """What is added to the covariance of ``count`` near pairs, in units of their mean variance.

    The eigenvalues of a covariance in d coordinates are off by about ``sqrt(d / count)`` of their size.
    """
    return min(FACTOR * math.sqrt(coordinates / count), CAP)


def discriminant_rows(near: Array, variances: Array, added: float) -> Array:
    """The rows A (k, d) for which ``A'A`` is the learned metric, up to scale.

    With ``S = near + added I`` and ``T = diag(variances)``, A holds the directions u of ``S u = (1 / b) T u`` with b
    above 1, each as long as ``sqrt(b - 1)`` for ``u'Tu = 1``: ``A'A`` is ``W V (1 - 1/b)+ V' W``, W being ``S^(-1/2)``
    and ``W T W = V diag(b) V'``. Coordinates whose variance is far below ``added`` cannot have such directions of their
    own; they are left out, so few pairs make a small problem.

    Parameters
    ----------
    near : (d, d)
        Covariance of near pairs in the catalogue's principal coordinates; its upper triangle is read.
    variances : (d,)
        Of the catalogue's items in these coordinates, falling.
    added
        Variance that is added to every coordinate, >= 0.

    Returns
    -------
    (k, d), float64, the most telling direction first, the largest component of each positive, scaled so that the
    catalogue's items have a mean squared length of 1; k is 0 if there is no such direction.
    """
    width = int((variances > SEEN * added).sum())
    nothing = np.zeros((0, len(variances)))
    if not added > 0 or not width:
        return nothing
    scale = 1 / np.sqrt(variances[:width])
    whitened = near[:width, :width] * np.outer(scale, scale)
    whitened[np.diag_indices(width)] += added * scale**2
    with one_blas_thread():
        # numpy's lets other threads run; scipy's, which could stop at the values that count, does not
        values, vectors = np.linalg.eigh(whitened, UPLO="U")
    kept = values < 1 - LEAST
    if not kept.any():
        return nothing
    # rounding may leave a value at or below 0 if near pairs do not differ at all
    values, vectors = np.maximum(values[kept], np.finfo(np.float64).eps), vectors[:, kept]
    rows = np.zeros((len(values), len(variances)))
    rows[:, :width] = vectors.T * np.sqrt(1 / values - 1)[:, None]
    signs = np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])
    rows *= signs[:, None] / np.linalg.norm(rows)
    rows[:, :width] *= scale
    return rows
