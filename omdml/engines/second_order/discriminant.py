"""Directions in which near pairs differ less than any two items: generalised eigenvectors (MATHS 12)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsymm, dtrsm
from scipy.linalg.lapack import dtrtri

from omdml.blas import one_blas_thread

Array = NDArray[Any]
# Factor and upper limit of the shrinkage, in units of the mean variance of near pairs.
FACTOR, CAP = 0.8, 3.0
# Coordinates whose variance lies below this share of the shrinkage are left out.
SEEN = 0.3
# A direction is dropped unless its b exceeds 1 by more than this.
LEAST = 1e-6
# The last directions are dropped, as long as together they have less than this share of the sum of all b - 1.
TAIL = 0.005
# A search near earlier directions takes this many of them for granted. So with fewer than twice as many coordinates all
# directions are computed, which is as fast then.
FEWEST = 64
# The catalogue's variances count as much as this many pairs per coordinate.
PRIOR = 0.3


def shrinkage(count: float, coordinates: int) -> float:
    """The variance to add to the covariance of ``count`` near pairs, in units of their mean variance.

    The relative error of the eigenvalues of a covariance in d coordinates is about ``sqrt(d / count)``.
    """
    return min(FACTOR * math.sqrt(coordinates / count), CAP)


def catalogue_share(count: float, coordinates: int) -> float:
    """Share of the catalogue's variances, beside the covariance of the items in ``count`` near pairs."""
    prior = PRIOR * coordinates
    return prior / (prior + count)


def told_apart(variances: Array, added: float) -> Array:
    """Numbers (k,) of the coordinates whose variance, of ``variances`` (d,), is not far below the added variance.

    The other coordinates cannot contribute a direction. Leaving them out makes the problem small for few pairs.
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
        The covariances to compare with, by name; their upper triangles are read.
    added
        Variance that is added to every coordinate of ``near``, > 0.
    earlier : (k, d) each
        Rows A that were computed from sums close to these, by name. If they are few compared with the coordinates,
        directions are searched in the span of ``S^-1 T A'`` only: one step of subspace iteration with the
        Rayleigh-Ritz procedure (Saad, Numerical methods for large eigenvalue problems, 2011, 5.2). That takes a third
        of the time.

    Returns
    -------
    Rows (k, d) by name, float64. The direction with the largest b is first, and the largest component of each is
    positive. They are scaled so that items of covariance T have a mean squared length of 1. A name without any
    direction is left out.
    """
    S, learned = near.copy(), {}
    everything: Array | None = None
    S[np.diag_indices(len(S))] += added
    with one_blas_thread():
        # S = L L'. Whitened by S and not by T: the added variance makes S definite for any clicks.
        L = np.linalg.cholesky(S, upper=True).T
        for name, other in others.items():
            # BLAS stores matrices by columns: the lower triangle of the transpose is our upper triangle.
            T = other.T
            before = (earlier or {}).get(name)
            if before is not None and 2 * max(len(before), FEWEST) <= len(T):
                within = _span(L, T, before)
            else:
                within = everything = _all_directions(L) if everything is None else everything
            # scipy's eigh could stop after the largest values, but it keeps other threads waiting; numpy's does not.
            values, vectors = np.linalg.eigh(within.T @ dsymm(1.0, T, within, lower=1))
            chosen = discriminating(values)
            if len(chosen):
                rows = (within @ vectors[:, chosen]).T * np.sqrt(1 - 1 / values[chosen])[:, None]
                rows *= np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])[:, None]
                learned[name] = rows / math.sqrt(float((values[chosen] - 1).sum()))
    return learned


def symmetric(upper: Array) -> Array:
    """The symmetric matrix (d, d) with the upper triangle of this one."""
    whole = np.triu(upper)
    whole += np.triu(whole, 1).T
    return whole


def _all_directions(L: Array) -> Array:
    """Columns X (d, d), ``X'SX = I``, for ``S = L L'``; of L the lower triangle is read."""
    inverse, _ = dtrtri(L, lower=1)
    return np.tril(inverse).T


def _span(L: Array, T: Array, earlier: Array) -> Array:
    """Columns X (d, k), ``X'SX = I``, in whose span to search: those that earlier rows lead to.

    ``S = L L'``; of L and T the lower triangles are read.
    """
    orthonormal, _ = np.linalg.qr(dtrsm(1.0, L, dsymm(1.0, T, earlier.T, lower=1), lower=1, overwrite_b=1))
    span: Array = dtrsm(1.0, L, orthonormal, lower=1, trans_a=1)
    return span


def discriminating(values: Array) -> Array:
    """Numbers of the eigenvalues b above 1, largest first, without the last ones (TAIL of the sum of all b - 1)."""
    gains = np.maximum(values[::-1] - 1, 0.0)
    gains[gains <= LEAST] = 0.0
    rest = gains[::-1].cumsum()[::-1]
    chosen: Array = len(values) - 1 - np.flatnonzero(rest > TAIL * gains.sum())
    return chosen
