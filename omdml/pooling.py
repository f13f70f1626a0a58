"""Pooling of many vectors into one: NetVLAD, its start, and the baselines of SetNet (MATHS 8; SETNET 3.2, 5.1, 5.2).

A set is an array of the row numbers of its elements; ``sets`` is a sequence of sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from omdml.blas import one_blas_thread
from omdml.errors import FeedbackError, StartError
from omdml.initial import NOISE, principal

Array = NDArray[Any]
# The most elements that a start looks at: their residual blocks are K times as long as the elements.
SAMPLE = 2_000
# Rounds of k-means.
ROUNDS = 30
# Ratio of the two largest assignments at the start, in the median.
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
    """The index at which each set begins among the elements of all; raises FeedbackError for a set without elements."""
    sizes = np.array([len(rows) for rows in sets], np.int64)
    if sizes.min(initial=1) < 1:
        empty = int(np.flatnonzero(sizes < 1)[0])
        raise FeedbackError(f"set {empty} has no elements: leave it out", reason="empty_list", row=empty)
    return sizes.cumsum() - sizes


def parts(sets: Sequence[Array], width: int) -> Iterator[slice]:
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

    ``a_k = 2 alpha c_k`` and ``bias_k = -alpha |c_k|^2``, so that ``s_k ~ exp(-alpha |x - c_k|^2)``, alpha such that
    the two largest assignments have the ratio 2 in the median.
    """
    # Imported here, because only the start of a set metric needs them, and they would slow down every process.
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

    ``P V + p0`` has mean 0, equal variances and mean square 1.
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
        """The vectors (n, d), whitened and scaled to unit length: (n, r)."""
        return unit((vectors - self.mean) @ self.matrix.T)


def fit_whitening(sample: ArrayLike, rank: int) -> Whitening:
    """The whitening that makes a sample (n, d) uncorrelated, with variance 1 along its ``rank`` largest directions.

    Raises StartError if there are not more vectors than ``rank``.
    """
    vectors = np.asarray(sample, np.float64)
    if len(vectors) <= rank:
        raise StartError(f"whitening of rank {rank} needs more than {rank} vectors, got {len(vectors)}: lower the rank")
    with one_blas_thread():
        values, rows = principal(vectors, rank)
    varying = values > max(1e-12 * values[0], NOISE * float((vectors**2).mean()))
    factors = np.where(varying, 1 / np.sqrt(np.where(varying, values, 1.0)), 0.0)
    return Whitening(vectors.mean(axis=0), rows * factors[:, None])


def shrunk_whitening(count: int, mean: Array, covariance: Array) -> Whitening:
    """The whitening for moments of ``count`` vectors, after shrinking the covariance to its mean variance.

    The share of the mean variance is ``r / (r + count)``.
    """
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

    Raises FeedbackError for a set without elements.

    Examples
    --------
    >>> mean_pooling([[2.0, 0.0], [0.0, 3.0]], [np.array([0]), np.array([0, 1])]).round(2)
    array([[1.  , 0.  ],
           [0.71, 0.71]])
    """
    vectors = np.asarray(elements, np.float64)
    vectors = unit(vectors) if whitening is None else whitening(vectors)
    return unit(np.add.reduceat(vectors[np.concatenate(sets)], begins(sets)))


def generalised_mean(
    elements: ArrayLike, sets: Sequence[Array], power: ArrayLike = 3.0, whitening: Whitening | None = None
) -> Array:
    """``((1/n) sum_k |x_k|^p)^(1/p)`` of each set of elements (N, d), scaled to unit length: (n, d) (SETNET 5.2).

    p > 0 is a number or (d,). Raises FeedbackError for a set without elements.

    The paper starts p at 3 and learns 1.3 to 1.5. Whitening comes last, because the means need numbers that are not
    negative; fit it to the results without whitening.
    """
    vectors, p, first = np.abs(np.asarray(elements, np.float64))[np.concatenate(sets)], np.asarray(power), begins(sets)
    vectors = unit(vectors)
    sizes = np.array([len(rows) for rows in sets])
    # Powers of shares of the largest number, because high powers of small numbers would underflow.
    top = np.maximum.reduceat(vectors, first)
    shares = vectors / np.repeat(np.where(top > 0, top, 1.0), sizes, axis=0)
    means = unit(top * (np.add.reduceat(shares**p, first) / sizes[:, None]) ** (1 / p))
    return means if whitening is None else whitening(means)
