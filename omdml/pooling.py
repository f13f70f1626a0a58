"""Pooling of many vectors into one: NetVLAD, its start, and the baselines of SetNet (MATHS 8; SETNET 3.2, 5.1, 5.2).

A set is an array of the row numbers of its elements; ``sets`` is a sequence of sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from omdml.blas import one_blas_thread
from omdml.errors import FeedbackError, ParameterError, StartError, quoted, row_range
from omdml.initial import LARGEST, NOISE, principal

Array = NDArray[Any]
NO_ROWS = np.empty(0, np.int64)
# The most elements that a start is computed from. They are few, because residual blocks are K times as long.
SAMPLE = 2_000
# Rounds of k-means.
ROUNDS = 30
# The ratio of an element's two largest assignments at the start: the median of the sample.
RATIO = 2.0
# The most numbers of residual blocks in memory at a time.
AT_ONCE = 1 << 22


def unit(vectors: Array) -> Array:
    """The rows (..., d), scaled to length one; rows of zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Array = vectors / np.where(lengths > 0, lengths, 1.0).astype(vectors.dtype)
    return scaled


def residual_blocks(elements: Array, A: Array, bias: Array, c: Array) -> Array:
    """``s_k (x - c_k)`` of elements (n, D) side by side, of unit length together: (n, K D), s = softmax(A x + bias)."""
    logits = elements @ A.T + bias
    s = np.exp(logits - logits.max(axis=1, keepdims=True))
    s /= s.sum(axis=1, keepdims=True)
    return unit((s[:, :, None] * (elements[:, None, :] - c)).reshape(len(elements), -1))


def netvlad(elements: Array, sets: Sequence[Array], A: Array, bias: Array, c: Array) -> Array:
    """The sum of the residual blocks of each set's elements, scaled to unit length: (n, K D)."""
    return unit(np.add.reduceat(residual_blocks(elements[np.concatenate(sets)], A, bias, c), begins(sets)))


def begins(sets: Sequence[Array]) -> Array:
    """The index at which each set begins among the elements of all."""
    sizes = np.array([len(rows) for rows in sets], np.int64)
    return sizes.cumsum() - sizes


def checked_sets(sets: Iterable[ArrayLike], count: int) -> list[Array]:
    """The sets as arrays of int64; raises FeedbackError unless each has row numbers, all of them below ``count``."""
    if not isinstance(sets, Iterable):
        raise FeedbackError(f"sets are {quoted(sets)}, expected a sequence of arrays of row numbers")
    return [row_numbers(f"set {place}", rows, count, place) for place, rows in enumerate(sets)]


def row_numbers(what: str, rows: ArrayLike, count: int, place: int | None = None) -> Array:
    """Row numbers (n,) of a set's elements as int64; raises FeedbackError unless there are any, all below ``count``.

    The message calls the set ``what``, and the error's ``row`` is ``place``.
    """
    try:
        elements = np.asarray(rows)
    except ValueError as error:
        message = f"{what} is {quoted(rows)}, expected row numbers (n,)"
        raise FeedbackError(message, row=place) from error
    if elements.size == 0:
        raise FeedbackError(f"{what} has no elements: leave it out", reason="empty_list", row=place)
    if elements.ndim != 1 or elements.dtype.kind not in "iu":
        message = f"{what} is {elements.dtype} of shape {elements.shape}, expected row numbers (n,)"
        raise FeedbackError(message, row=place)
    unknown = elements[(elements < 0) | (elements >= count)]
    if len(unknown):
        message = f"{what} names row {unknown[0]}, the features have {row_range(count)}"
        raise FeedbackError(message, reason="unknown_item", row=place)
    return elements.astype(np.int64, copy=False)


def runs_of_sets(sets: Sequence[Array], width: int) -> Iterator[slice]:
    """Runs of sets whose residual blocks, ``width`` numbers for each element, fit into memory together."""
    first = count = 0
    for place, rows in enumerate(sets):
        if count and (count + len(rows)) * width > AT_ONCE:
            yield slice(first, place)
            first, count = place, 0
        count += len(rows)
    if count:
        yield slice(first, len(sets))


def netvlad_start(sample: Mapping[str, Array], clusters: int, rank: int, seed: int) -> dict[str, Array]:
    """A, bias, c, P, p0 and scale from a sample of elements (n, d_i) of each modality, float64, n above ``rank``.

    Modalities are scaled to equal spread; clusters are those of :func:`soft_clusters`, reduction that of
    :func:`reduction`. Raises StartError if there are too few elements, or too few different ones.
    """
    count, rank = len(next(iter(sample.values()))), min(rank, clusters * sum(x.shape[1] for x in sample.values()))
    if count <= max(rank, clusters):
        raise StartError(
            f"k-means of {clusters} clusters and PCA of rank {rank} need more than {max(rank, clusters)} items, got "
            f"{count}: give more items, fewer clusters or a lower rank"
        )
    scale = unit_scales(sample, seed)
    elements = np.concatenate([x * factor for x, factor in zip(sample.values(), scale, strict=True)], axis=1)
    with one_blas_thread():
        A, bias, c = soft_clusters(elements, clusters, seed)
        P, p0 = reduction(residual_blocks(elements, A, bias, c), rank)
    return {"A": A, "bias": bias, "c": c, "P": P, "p0": p0, "scale": scale}


def soft_clusters(elements: Array, clusters: int, seed: int) -> tuple[Array, Array, Array]:
    """A (K, D), bias (K,) and k-means centres c (K, D); raises StartError if clusters coincide.

    ``A_k = 2 alpha c_k`` and ``bias_k = -alpha |c_k|^2``, so that s_k is in proportion to ``exp(-alpha |x - c_k|^2)``.
    alpha is chosen such that the two largest s_k of an element have the ratio 2 in the median.
    """
    # Imported here, because only the start of setnet needs them, and every process would take longer to begin.
    from scipy.cluster.vq import kmeans2
    from scipy.spatial.distance import cdist

    c = kmeans2(elements, spread_out(elements, clusters, np.random.default_rng(seed)), iter=ROUNDS, minit="matrix")[0]
    distances = np.sort(cdist(elements, c, "sqeuclidean"), axis=1)
    gap = float(np.median(distances[:, 1] - distances[:, 0])) if clusters > 1 else 1.0
    if not gap > NOISE * float((elements**2).sum(axis=1).mean()):
        raise StartError(f"k-means finds no {clusters} different clusters: give other items, or fewer clusters")
    alpha = np.log(RATIO) / gap
    return 2 * alpha * c, -alpha * (c**2).sum(axis=1), c


def reduction(blocks: Array, rank: int) -> tuple[Array, Array]:
    """P (r, K D) and p0 (r,): principal directions of residual blocks (n, K D), batch normalisation folded in.

    Over the blocks U, ``P U + p0`` has the mean 0, the same variance in each component, and a mean squared length of 1.
    """
    values, rows = principal(blocks, rank)
    # A direction without variance is left out: it would be divided by zero.
    varying = values > max(1e-12 * values[0], NOISE)
    P = rows * np.where(varying, 1 / np.sqrt(np.where(varying, values, 1.0) * varying.sum()), 0.0)[:, None]
    return P, -P @ blocks.mean(axis=0)


def spread_out(sample: Array, clusters: int, draw: np.random.Generator) -> Array:
    """Initial centres (K, D) for k-means of a sample (n, D), K being ``clusters``.

    Each is drawn in proportion to its squared distance from earlier ones (k-means++; Arthur and Vassilvitskii, 2007).
    Raises StartError if there are fewer different elements than clusters.
    """
    chosen = [int(draw.integers(len(sample)))]
    nearest = np.full(len(sample), np.inf)
    for _ in range(clusters - 1):
        nearest = np.minimum(nearest, ((sample - sample[chosen[-1]]) ** 2).sum(axis=1))
        if not nearest.sum() > 0:
            raise StartError(f"k-means of {clusters} clusters needs as many different items: give fewer clusters")
        chosen.append(int(draw.choice(len(sample), p=nearest / nearest.sum())))
    return sample[chosen]


def unit_scales(sample: Mapping[str, Array], seed: int) -> Array:
    """Factors (m,) that give random elements a mean squared distance of 1, to which all modalities contribute equally.

    A modality in which all elements are alike gets the factor 1.
    """
    draw = np.random.default_rng(seed)
    count = len(next(iter(sample.values())))
    left, right = draw.integers(0, count, (2, SAMPLE))
    spreads = np.array([((x[left] - x[right]) ** 2).sum(axis=1).mean() for x in sample.values()])
    sizes = np.array([(x**2).sum(axis=1).mean() for x in sample.values()])
    return np.where(spreads > NOISE * sizes, 1 / np.sqrt(np.where(spreads > 0, spreads, 1.0) * len(sample)), 1.0)


class Whitening(NamedTuple):
    """``matrix (x - mean)``: (r, d) and (d,)."""

    mean: Array
    matrix: Array

    def __call__(self, vectors: Array) -> Array:
        """The vectors (n, d), whitened and scaled to unit length: (n, r); raises FeedbackError for another d."""
        if vectors.ndim != 2 or vectors.shape[1] != len(self.mean):
            raise FeedbackError(
                f"vectors of shape {vectors.shape}, expected (n, {len(self.mean)}), as in the sample of the whitening",
                reason="dimension",
            )
        return unit((vectors - self.mean) @ self.matrix.T)


def fit_whitening(sample: ArrayLike, rank: int) -> Whitening:
    """The whitening that makes a sample (n, d) uncorrelated, with variance 1 along its ``rank`` largest directions.

    Raises FeedbackError if the sample has another shape, ParameterError unless ``rank`` is a whole number from 1 to d,
    and StartError if there are not more vectors than ``rank``, or a value is not finite or above 1e140.
    """
    vectors = _vectors("sample", sample)
    wanted: object = rank
    width = vectors.shape[1]
    if not (isinstance(wanted, int | np.integer) and 1 <= wanted <= width):
        raise ParameterError(f"rank={quoted(rank)}: expected a whole number from 1 to {width}, the width of the sample")
    if len(vectors) <= rank:
        raise StartError(f"whitening of rank {rank} needs more than {rank} vectors, got {len(vectors)}: lower the rank")
    sound = (np.abs(vectors) <= LARGEST).all(axis=1)
    if not sound.all():
        row = int(np.flatnonzero(~sound)[0])
        raise StartError(f"row {row} of the sample has a value that is not finite, or above {LARGEST:g}: leave it out")
    with one_blas_thread():
        values, rows = principal(vectors, rank)
    varying = values > max(1e-12 * values[0], NOISE * float((vectors**2).mean()))
    factors = np.where(varying, 1 / np.sqrt(np.where(varying, values, 1.0)), 0.0)
    return Whitening(vectors.mean(axis=0), rows * factors[:, None])


def shrunk_whitening(count: int, mean: Array, covariance: Array) -> Whitening:
    """The whitening by the mean (r,) and covariance (r, r) of ``count`` vectors.

    First the covariance is shrunk: it is mixed with its mean variance times the identity, which gets the share
    ``r / (r + count)``.
    """
    from scipy.linalg import eigh

    size = len(mean)
    variance = float(np.trace(covariance)) / size
    if not variance > 0:
        return Whitening(mean, np.eye(size))
    share = size / (size + count)
    with one_blas_thread():
        values, vectors = eigh((1 - share) * covariance + share * variance * np.eye(size))
    # Rounding of running moments makes small eigenvalues negative.
    floor = share * variance / 2
    return Whitening(mean, (vectors / np.sqrt(np.maximum(values, floor) / variance)).T)


def mean_pooling(elements: ArrayLike, sets: Sequence[Array], whitening: Whitening | None = None) -> Array:
    """Means of unit (or whitened) elements (N, d) of each set, scaled to unit length: (n, d) (SETNET 5.1).

    Raises FeedbackError for elements of another shape, or a set that is empty or names other rows.

    Examples
    --------
    >>> mean_pooling([[2.0, 0.0], [0.0, 3.0]], [np.array([0]), np.array([0, 1])]).round(2)
    array([[1.  , 0.  ],
           [0.71, 0.71]])
    """
    vectors = _vectors("elements", elements)
    vectors = unit(vectors) if whitening is None else whitening(vectors)
    sets = checked_sets(sets, len(vectors))
    return unit(np.add.reduceat(vectors[np.concatenate([NO_ROWS, *sets])], begins(sets)))


def generalised_mean(
    elements: ArrayLike, sets: Sequence[Array], power: ArrayLike = 3.0, whitening: Whitening | None = None
) -> Array:
    """``((1/n) sum_k |x_k|^p)^(1/p)`` of each set of elements (N, d), scaled to unit length: (n, d) (SETNET 5.2).

    p is one number above 0, or one for each dimension (d,). Raises ParameterError for another p, and FeedbackError as
    :func:`mean_pooling` does.

    The paper starts p at 3 and learns 1.3 to 1.5. Whitening comes last, because the means need numbers that are not
    negative; fit it to the results without whitening.
    """
    vectors = _vectors("elements", elements)
    p, sets = _powers(power, vectors.shape[1]), checked_sets(sets, len(vectors))
    vectors, first = unit(np.abs(vectors)[np.concatenate([NO_ROWS, *sets])]), begins(sets)
    sizes = np.array([len(rows) for rows in sets], np.int64)
    # Powers of shares of the largest number, because high powers of small numbers would underflow.
    top = np.maximum.reduceat(vectors, first)
    shares = vectors / np.repeat(np.where(top > 0, top, 1.0), sizes, axis=0)
    means = unit(top * (np.add.reduceat(shares**p, first) / sizes[:, None]) ** (1 / p))
    return means if whitening is None else whitening(means)


def _vectors(name: str, values: ArrayLike) -> Array:
    """The values (n, d) as float64; raises FeedbackError unless they are numbers of this shape."""
    try:
        vectors = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise FeedbackError(f"{name}={quoted(values)}: expected numbers of shape (n, d) ({error})") from error
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise FeedbackError(f"{name} of shape {vectors.shape}: expected (n, d), d at least 1", reason="dimension")
    return vectors


def _powers(power: ArrayLike, width: int) -> Array:
    """The power, or one for each dimension; raises ParameterError unless all are finite numbers above 0."""
    expected = f"a finite number above 0, or ({width},) of them"
    try:
        p = np.asarray(power, np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"power={quoted(power)}: expected {expected} ({error})") from error
    if p.shape not in ((), (width,)) or not (np.isfinite(p) & (p > 0)).all():
        raise ParameterError(f"power={quoted(power)}: expected {expected}")
    return p
