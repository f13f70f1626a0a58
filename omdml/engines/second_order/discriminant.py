"""Directions in which near pairs differ less than any two items: generalised eigenvectors (MATHS 12)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg.blas import dtrsm, get_blas_funcs
from scipy.linalg.lapack import get_lapack_funcs

from omdml.blas import one_blas_thread, side_by_side
from omdml.kernels.second_order.blas import SSYEVD, SYGST, decompose, whiten

Array = NDArray[Any]
# Factor and upper limit of the shrinkage, in units of the mean variance of near pairs.
FACTOR, CAP = 0.8, 3.0
# Coordinates whose variance lies below this share of the shrinkage are left out.
SEEN = 0.3
# A direction is dropped unless its b exceeds 1 by more than this.
LEAST = 1e-6
# The last directions are dropped, as long as together they have at most this share of the sum of all b - 1.
TAIL = 0.005
# A search near fewer earlier directions takes about as long as one near so many. With fewer than twice as many
# coordinates, a search of all directions is as fast.
FEWEST = 60
# With fewer coordinates, one covariance after the other is as fast as both side by side.
ONE_BY_ONE = 128
# Earlier directions are a guide if each still has this share of its length apart from the ones before it.
APART = 0.1
# If near pairs are next to alike, rows would be so long that projections of long items are too large for their type.
# Then all rows are made shorter, which changes no distance.
LONGEST = {"float32": 1e16, "float64": 1e25}
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


def unit_of_rows(added: float, dtype: DTypeLike) -> float:
    """What rows in units of ``1 / sqrt(added)`` are divided by; no row is longer than 1 in this unit."""
    return max(math.sqrt(added), 1 / LONGEST[np.dtype(dtype).name])


def told_apart(variances: Array, added: float) -> Array:
    """Numbers (k,) of the coordinates whose variance, of ``variances`` (d,), is not far below the added variance.

    The other coordinates contribute next to nothing (MATHS 12 (b)). Leaving them out makes the problem small for few
    pairs.
    """
    return np.flatnonzero(variances > SEEN * added) if added > 0 else np.zeros(0, np.intp)


def discriminant_rows(
    near: Array, others: Mapping[str, Array], added: float, dtype: DTypeLike = np.float64
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
    dtype
        Type in which eigenvectors are computed. Single precision takes half the time.

    Returns
    -------
    Rows (k, d) by name, float64. The direction with the largest b is first, and the largest component of each is
    positive. A name without any direction is left out.
    """
    S = near.copy()
    S[np.diag_indices(len(S))] += added
    with one_blas_thread():
        # S = L L'. Whitened by S and not by T: the added variance makes S definite for any clicks.
        L = np.asfortranarray(np.linalg.cholesky(S, upper=True).T)
        compute, apply = partial(_rows_beside, L, np.dtype(dtype)), map if len(S) < ONE_BY_ONE else side_by_side
        made = list(apply(compute, others.values()))
    factor = math.sqrt(added) / unit_of_rows(added, dtype)
    return {name: rows * factor for name, rows in zip(others, made, strict=True) if len(rows)}


def _rows_beside(L: Array, dtype: np.dtype[Any], other: Array) -> Array:
    """The rows for ``S = L L'`` and one covariance to compare with. Other threads may compute others meanwhile."""
    # LAPACK stores matrices by columns: the lower triangle of the transpose is our upper triangle.
    whitened = np.array(other.T, np.float64, order="F")
    whiten(whitened, L, SYGST)
    values, vectors = _eigenvectors(whitened, dtype)
    chosen = discriminating(values)
    directions = dtrsm(1.0, L, vectors[:, chosen], lower=1, trans_a=1)
    return _rows(directions, values[chosen])


def _eigenvectors(lower: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Eigenvalues (d,), smallest first, and eigenvectors in columns (d, d), of the matrix with this lower triangle."""
    if dtype == np.float32:
        # numpy computes these in double precision. This takes half the time.
        with np.errstate(over="ignore"):
            vectors, values = lower.astype(np.float32, order="F"), np.empty(len(lower), np.float32)
        if decompose(vectors, values, SSYEVD):
            return values.astype(np.float64), vectors
    values, vectors = np.linalg.eigh(lower)
    return values, vectors


def is_guide(rows: Array, coordinates: int) -> bool:
    """Whether a search near these rows is faster than a search of all directions, in so many coordinates."""
    return 2 * max(len(rows), FEWEST) <= coordinates


class ScaledCovariances(NamedTuple):
    """Covariances in c coordinates, each divided by its unit, for a search near earlier rows; upper triangles."""

    # Variance that is added to every coordinate of near pairs: the unit of S.
    added: float
    # The covariance of near pairs in this unit, plus I.
    S: Array  # (c, c)
    # By name: a covariance to compare with, divided by its unit, and that unit.
    others: Mapping[str, tuple[Array, float]]  # (c, c) each


def rows_near_earlier(compared: ScaledCovariances, earlier: Mapping[str, Array]) -> dict[str, Array]:
    """What :func:`discriminant_rows` returns, searched near rows A made shortly before, which is faster.

    Directions are searched in the span of ``S^-1 T A'`` only: one step of subspace iteration with the Rayleigh-Ritz
    procedure (Saad, Numerical methods for large eigenvalue problems, 2011, 5.2; MATHS 12 (k)). A name is left out, and
    all directions must be searched, if there are fewer than 120 coordinates, or more than half as many rows in A as
    coordinates; if a column of ``S^-1 T A'`` lies close to the span of those before it; if no direction in the span has
    b above 1; or if S or the small problem cannot be factored in this type.

    Parameters
    ----------
    compared
        ``S`` is overwritten.
    earlier : (k, c) each
        Rows A that were computed from sums close to these, by name.
    """
    learned: dict[str, Array] = {}
    S, added, dtype = compared.S, compared.added, compared.S.dtype
    few = {name: rows for name, rows in earlier.items() if is_guide(rows, len(S))}
    symm, trsm = get_blas_funcs(("symm", "trsm"), dtype=dtype)
    # Problems are small here, so it does not matter that these keep other threads waiting.
    potrf, syevd = get_lapack_funcs(("potrf", "syevd"), dtype=dtype)
    with one_blas_thread(), np.errstate(divide="ignore", invalid="ignore"):
        L, indefinite = potrf(S.T, lower=1, clean=0, overwrite_a=1)
        for name, rows in few.items() if not indefinite else ():
            other, unit = compared.others[name]
            T = other.T
            X = trsm(1.0, L, symm(1.0, T, _unit_columns(rows.T.astype(dtype)), lower=1), lower=1, overwrite_b=1)
            # An orthonormal basis. It takes half the time of a QR decomposition, and is as good if no column is close
            # to the span of the others.
            X = _unit_columns(X)
            R, singular = potrf(X.T @ X, clean=0)
            if not singular and R.diagonal().min() > APART:
                X = trsm(1.0, L, trsm(1.0, R, X, side=1), lower=1, trans_a=1, overwrite_b=1)
                values, vectors, failed = syevd(X.T @ symm(1.0, T, X, lower=1))
                if failed:
                    continue
                b = values.astype(np.float64) * (unit / added)
                chosen = discriminating(b)
                made = _rows(X @ vectors[:, chosen], b[chosen])
                if len(made):
                    learned[name] = made / dtype.type(unit_of_rows(added, dtype))
    return learned


def _unit_columns(matrix: Array) -> Array:
    return matrix / np.linalg.norm(matrix, axis=0)


def _rows(directions: Array, b: Array) -> Array:
    """The rows (k, d) for directions u (d, k) with ``u'Su = 1``, and their b (k,)."""
    rows: Array = directions.T
    largest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
    rows *= np.copysign(np.sqrt(1 - 1 / b), largest)[:, None].astype(rows.dtype)
    return rows


def symmetric(upper: Array) -> Array:
    """The symmetric matrix (d, d) with the upper triangle of this one."""
    whole = np.triu(upper)
    whole += np.triu(whole, 1).T
    return whole


def discriminating(values: Array) -> Array:
    """Numbers of the eigenvalues b above 1, largest first, without the last ones (TAIL of the sum of all b - 1)."""
    gains = np.maximum(values[::-1] - 1, 0.0)
    gains[gains <= LEAST] = 0.0
    rest = gains[::-1].cumsum()[::-1]
    chosen: Array = len(values) - 1 - np.flatnonzero(rest > TAIL * gains.sum())
    return chosen
