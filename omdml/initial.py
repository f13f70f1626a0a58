"""Starts of low-rank metrics: PCA, WPCA, Gaussian and identity rows, scaled to unit spread (MATHS 2 (b))."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.blas import one_blas_thread
from omdml.errors import StartError

Array = NDArray[Any]
# The names of the starts that :func:`start_matrices` computes.
STARTS = ("pca", "wpca", "gaussian", "identity")
# The arrays of a start on principal coordinates: see :func:`principal_start`.
AXES = ("mean", "basis", "deviations")
# The most rows that a start is computed from, and the number of pairs of them.
SAMPLE = 10_000
# Up to this many dimensions, the whole covariance is decomposed.
DENSE = 2_000
# The largest number that a start accepts: sums of squares of larger numbers may overflow.
LARGEST = 1e140
# The largest total variance of all coordinates: the sum over 2**53 pairs of items is still finite.
MOST_VARIANCE = 1e288
# A variance below this share of the mean square is taken for rounding.
NOISE = 1e-20
# How far products of directions may be from those of orthonormal ones. Directions that were float16 are accepted.
ORTHONORMAL_WITHIN = 1e-3


def start_matrices(features: Mapping[str, Array], ranks: Mapping[str, int], init: str, seed: int) -> dict[str, Array]:
    """W_i (r_i, d_i), float64, of each modality, at unit spread.

    Parameters
    ----------
    features
        Matrices (n, d_i); a sample of at most 10,000 rows and 10,000 pairs of them is drawn with ``seed``.
    ranks
        r_i of each modality, at most d_i.
    init
        One of :data:`STARTS`. ``gaussian`` and ``identity`` assume unit variance if there are no two rows.

    Raises
    ------
    StartError
        There are too few rows for this start, or a value in the sample is not finite or above 1e140.
    """
    draw = np.random.default_rng(seed)
    count = len(next(iter(features.values())))
    rows = np.sort(draw.choice(count, min(count, SAMPLE), replace=False))
    size = len(rows)
    left = draw.integers(0, max(1, size), SAMPLE)
    right = (left + draw.integers(1, max(2, size), SAMPLE)) % max(1, size)
    started = {}
    with one_blas_thread():
        for name, rank in ranks.items():
            sample = np.asarray(features[name][rows], np.float64)
            check_sample(sample, rows, name)
            matrix = _rows(sample, rank, init, draw, name)
            spread = _spread(matrix, sample, left, right) if size > 1 else 2 * float((matrix**2).sum())
            if spread > NOISE * float((sample**2).mean()) * float((matrix**2).sum()):
                matrix /= np.sqrt(spread)
            else:
                warnings.warn(f"modality {name!r}: all sampled items are alike, its start stays unscaled", stacklevel=2)
            started[name] = matrix
    return started


def check_sample(sample: Array, rows: Array, name: str) -> None:
    """Raise StartError for a value of a sample (n, d) that is not finite or above 1e140.

    ``rows`` (n,) are the numbers of its rows, for the message.
    """
    # Also false for NaN.
    sound = np.abs(sample) <= LARGEST
    if not sound.all():
        row, column = (int(indices[0]) for indices in np.nonzero(~sound))
        raise StartError(
            f"row {rows[row]} of modality {name!r} holds values that are not finite, or too large for a start: "
            f"{sample[row, column]} in column {column}, expected at most {LARGEST:g}: repair or scale it"
        )


def _rows(sample: Array, rank: int, init: str, draw: np.random.Generator, name: str) -> Array:
    """The rows (rank, d) of one of :data:`STARTS`, not scaled yet; raises StartError if the sample is too small."""
    width = sample.shape[1]
    if init == "identity":
        return np.eye(rank, width)
    if init == "gaussian":
        return draw.standard_normal((rank, width)) / np.sqrt(rank)
    if len(sample) <= rank:
        raise StartError(
            f"modality {name!r}: {init} of rank {rank} needs more than {rank} rows, got {len(sample)}: "
            "give more items, a lower rank, or init='gaussian'",
            rows=rank + 1,
        )
    values, vectors = principal(sample, rank)
    if init == "pca":
        return vectors
    # A direction without variance is left out: it would be divided by zero.
    varying = values > max(1e-12 * values[0], NOISE * float((sample**2).mean()))
    return vectors * np.where(varying, 1 / np.sqrt(np.where(varying, values, 1.0)), 0.0)[:, None]


def principal(sample: Array, rank: int) -> tuple[Array, Array]:
    """The ``rank`` largest eigenvalues (r,) of the covariance of a sample (n, d), falling, and their vectors (r, d).

    A vector's largest entry is positive, so that the same sample gives the same rows.
    """
    centred = sample - sample.mean(axis=0)
    width = centred.shape[1]
    if width <= DENSE or rank >= width - 1:
        covariance = centred.T @ centred / len(centred)
        values, vectors = _largest(covariance, rank)
    else:
        # Imported here, because few starts need it, and every process would take longer to begin.
        from scipy.sparse.linalg import LinearOperator, eigsh

        operator = LinearOperator(
            (width, width), matvec=lambda v: centred.T @ (centred @ v) / len(centred), dtype=centred.dtype
        )
        values, vectors = eigsh(operator, k=rank, v0=np.ones(width))
    values, rows = values[::-1], vectors[:, ::-1].T
    signs = np.sign(rows[np.arange(rank), np.abs(rows).argmax(axis=1)])
    return np.maximum(values, 0.0), rows * signs[:, None]


def _largest(symmetric: Array, count: int) -> tuple[Array, Array]:
    """The ``count`` largest eigenvalues of a matrix (d, d), rising, and their vectors (d, count)."""
    # Imported here, so that processes that only check hyperparameters do not wait for it.
    from scipy.linalg import eigh

    size = len(symmetric)
    values, vectors = eigh(symmetric, subset_by_index=[size - count, size - 1])
    return values, vectors


def principal_start(features: Mapping[str, Array], rank: int, seed: int) -> dict[str, Array]:
    """The catalogue's principal coordinates, all modalities side by side, D numbers together; float64.

    Parameters
    ----------
    features
        Matrices (n, d_i); a sample is drawn with ``seed``: of 10,000 rows, or of 2,000 if D is above 2,000.
    rank
        The most coordinates to keep. Directions without variance are left out, but at least one is kept.

    Returns
    -------
    ``mean`` (D,), ``basis`` (d, D), its rows orthonormal, and ``deviations`` (d,), the roots of the variances along
    them, falling.

    Raises
    ------
    StartError
        A value in the sample is not finite or above 1e140.
    """
    sample, mean, noise = _centred_sample(features, seed)
    with one_blas_thread():
        variances, basis = _principal_axes(sample, min(rank, len(mean)))
    size = max(1, int((variances > max(1e-9 * variances[0], noise)).sum()))
    return {"mean": mean, "basis": basis[:size], "deviations": np.sqrt(variances[:size])}


def coordinates_start(features: Mapping[str, Array], rank: int, seed: int) -> dict[str, Array]:
    """The start of DCA from features that are principal coordinates already: the first ``rank`` of them.

    ``basis`` is (0, D), which stands for the identity, unless the features have more numbers than ``rank``.
    """
    sample, mean, _ = _centred_sample(features, seed)
    D = len(mean)
    size = min(rank, D)
    basis = np.eye(size if size < D else 0, D)
    return {"mean": mean, "basis": basis, "deviations": np.sqrt((sample[:, :size] ** 2).mean(axis=0))}


def check_axes(basis: Array, deviations: Array) -> None:
    """Raise ValueError for directions (d, D) longer than 1, and for deviations (d,) that are below 0 or too large."""
    with np.errstate(over="ignore"):
        longest = float(np.einsum("ij,ij->i", basis, basis, dtype=np.float64).max(initial=0.0))
        variances = float((deviations.astype(np.float64) ** 2).sum())
    if not longest < 1.01:
        raise ValueError(f"basis has a row of squared length {longest:g}, expected rows of length 1")
    if not (deviations.min() >= 0 and variances < MOST_VARIANCE):
        extent = f"from {deviations.min():g} to {deviations.max():g}"
        expected = f"at least 0, and squares that add up to less than {MOST_VARIANCE:g}"
        raise ValueError(f"deviations {extent}, expected {expected}")


def check_orthonormal(basis: Array) -> None:
    """Raise ValueError unless the rows of a basis (d, D) are orthonormal, up to rounding."""
    rows = basis.astype(np.float64)
    with one_blas_thread():
        products = rows @ rows.T
    errors = np.abs(products - np.eye(len(rows)))
    if not errors.max(initial=0.0) <= ORTHONORMAL_WITHIN:
        row, other = map(int, np.unravel_index(errors.argmax(), errors.shape))
        raise ValueError(
            f"rows of basis are not orthonormal: the product of row {row} and row {other} is "
            f"{products[row, other]:g}, expected {int(row == other)}: make the rows orthonormal, for example by "
            "numpy.linalg.qr"
        )


def _centred_sample(features: Mapping[str, Array], seed: int) -> tuple[Array, Array, float]:
    """A sample (n, D) of all modalities side by side minus its mean, the mean (D,), and the largest variance of noise.

    A variance up to that is taken for rounding.
    """
    count, width = len(next(iter(features.values()))), sum(matrix.shape[1] for matrix in features.values())
    most = min(count, SAMPLE if width <= DENSE else DENSE)
    rows = np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
    sample = np.empty((most, width))
    start = 0
    for name, matrix in features.items():
        part = np.asarray(matrix[rows], np.float64)
        check_sample(part, rows, name)
        sample[:, start : start + matrix.shape[1]] = part
        start += matrix.shape[1]
    mean = sample.mean(axis=0)
    noise = NOISE * float((sample**2).mean())
    sample -= mean
    return sample, mean, noise


def _principal_axes(centred: Array, rank: int) -> tuple[Array, Array]:
    """Variances (r,), falling, and directions (r, d) of centred rows, by the smaller of their two Gram matrices.

    The largest entry of each direction is positive. :func:`principal` is for few directions of many rows, and uses an
    iterative method if there are very many dimensions.
    """
    count, width = centred.shape
    if width <= count:
        values, vectors = _largest(centred.T @ centred / count, rank)
        rows = vectors.T
    else:
        rank = max(1, min(rank, count - 1))
        values, vectors = _largest(centred @ centred.T / count, rank)
        rows = vectors.T @ centred
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = np.divide(rows, lengths, out=np.eye(len(rows), width), where=lengths > 0)
    values, rows = values[::-1], rows[::-1]
    signs = np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])
    return np.maximum(values, 0.0), rows * signs[:, None]


def _spread(matrix: Array, sample: Array, left: Array, right: Array) -> float:
    """Mean squared distance, under ``matrix``, of these pairs of items of the sample."""
    projected = sample @ matrix.T
    difference = projected[left] - projected[right]
    return float(np.einsum("ij,ij->", difference, difference)) / len(left)
