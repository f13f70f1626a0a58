"""Find the rows that can be among the nearest, by a scan over codes of one byte per coordinate (MATHS 18).

A scan is as fast as memory is read, and codes are a quarter of float32 rows. A code differs from its row by at most
the row's *radius*, and a rounded query differs from the query by at most its *width*. So by the triangle inequality
the true distance lies within radius + width of the distance between the two codes. A row whose lower bound exceeds the
k-th smallest upper bound cannot be among the k nearest. All other rows are returned, and the caller computes their
exact distances. ``ROUNDING`` and ``SMALLEST`` cover what floating-point arithmetic may add to these bounds.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from omdml.kernels import Array
from omdml.kernels.shared.dots import REORDER

# The largest code. -128 is not used, so that the codes are symmetric around 0.
LARGEST_CODE = 127
# Rows that are compared with all queries before the next ones: their codes stay in the processor's cache.
BLOCK_ROWS = 1024
# The largest code of a query, and the largest sum of products.
LARGEST_QUERY_CODE, LARGEST_SUM = 2**15 - 1, 2**31 - 1
# A radius is made larger by this factor, because it is rounded to float32 and must not become too small.
UP = 1 + 2.0**-22
# Rounding moves a squared distance by at most this share of the squared lengths of the row and the query, added up:
# squared lengths of rows are float32.
ROUNDING = 2.0**-22
# Added to squared distances and to radii, because float32 loses squares below its smallest numbers altogether. A share
# of the size would not cover that.
SMALLEST_SQUARE, SMALLEST = 2.0**-120, 2.0**-126


@njit(cache=True, nogil=True, fastmath=REORDER)
def encode(X: Array, codes: Array, scales: Array, squares: Array, radii: Array) -> None:
    """Round every row to ``scales[i] * codes[i]``, and compute how far that is from the row.

    Parameters
    ----------
    X : (n, d)
        Finite.
    codes : (n, d), int8
        Written.
    scales, squares, radii : (n,), float32
        Written. ``squares[i]`` is ``|scales[i] * codes[i]|^2``, and ``radii[i]`` is at least
        ``|X[i] - scales[i] * codes[i]|``.
    """
    for i in range(X.shape[0]):
        top = 0.0
        for j in range(X.shape[1]):
            top = max(top, abs(np.float64(X[i, j])))
        scale = np.float64(np.float32(top / LARGEST_CODE))
        inverse = 1 / scale if scale > 0 else 0.0
        total = error = 0.0
        for j in range(X.shape[1]):
            x = np.float64(X[i, j])
            code = min(max(np.rint(x * inverse), -LARGEST_CODE), LARGEST_CODE)
            codes[i, j] = np.int8(code)
            total += code * code
            error += (x - scale * code) ** 2
        scales[i], squares[i] = scale, scale * scale * total
        radii[i] = math.sqrt(error) * UP + SMALLEST


@njit(cache=True, nogil=True)
def encode_queries(points: Array, query_codes: Array, units: Array, lengths: Array, widths: Array) -> None:
    """Round queries to ``units[q] * query_codes[q]``, such that int32 holds every inner product with codes of rows.

    Parameters
    ----------
    points : (Q, d), float64
    query_codes : (Q, d), int16
        Written.
    units, lengths : (Q,), float64
        Written; see :func:`scan`.
    widths : (Q,), float64
        How far each query may be from its true place. Changed in place: the distance to its code is added.
    """
    largest = min(LARGEST_QUERY_CODE, LARGEST_SUM // (LARGEST_CODE * max(points.shape[1], 1)))
    for q in range(points.shape[0]):
        top = 0.0
        for j in range(points.shape[1]):
            top = max(top, abs(points[q, j]))
        unit = top / largest
        length = error = 0.0
        for j in range(points.shape[1]):
            code = np.rint(points[q, j] / unit) if unit > 0 else 0.0
            query_codes[q, j] = np.int16(code)
            length += (unit * code) ** 2
            error += (points[q, j] - unit * code) ** 2
        units[q], lengths[q] = unit, length
        widths[q] += math.sqrt(error)


@njit(cache=True, nogil=True)
def dot(a: Array, b: Array) -> np.int32:
    """The inner product of a row's codes (int8) and a query's codes (int16), if int32 can hold it.

    Every cast is needed: numba would add in int64, and LLVM multiplies sixteen pairs at once (``vpmaddwd``) only if
    everything is int32.
    """
    total = np.int32(0)
    for j in range(a.shape[0]):
        total = np.int32(total + np.int32(np.int32(a[j]) * np.int32(b[j])))
    return total


@njit(cache=True, nogil=True)
def lower_top(heap: Array, value: float) -> None:
    """Replace the first number of a heap (k,), which is its largest, by ``value``, which is smaller."""
    place, count = 0, heap.shape[0]
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        if child + 1 < count and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value


@njit(cache=True, nogil=True)
def scan(
    codes: Array,
    scales: Array,
    squares: Array,
    radii: Array,
    query_codes: Array,
    units: Array,
    lengths: Array,
    widths: Array,
    among: Array,
    hidden: Array,
    ends: Array,
    best: Array,
    rows: Array,
    lows: Array,
    counts: Array,
    begin: int,
    most: int,
) -> None:
    """For each query, find all rows that can be among its k nearest, and a lower bound of the distance of each.

    Parameters
    ----------
    codes, scales, squares, radii
        See :func:`encode`; n rows, each within ``radii[i]`` of its code.
    query_codes : (Q, d), int16
        The queries' codes, so small that int32 holds every inner product.
    units, lengths, widths : (Q,), float64
        A query is within ``widths[q]`` of ``units[q] * query_codes[q]``, whose squared length is ``lengths[q]``.
    among : (n,) or (0,), bool
        True for rows that may be returned; empty if all may.
    hidden : (h,), int64
        Rows that must not be returned: those of the first query, rising, then those of the second, and so on.
    ends : (Q,), int64
        Where the hidden rows of each query end.
    best : (Q, k), float64
        Infinite on entry. Written: a heap of the k smallest upper bounds of distances, the largest of them first.
    rows : (Q, n), int64
    lows : (Q, n), float64
    counts : (Q,), int64
        Zero on entry. Written, as ``rows`` and ``lows``: the number of rows of each query. Some of these rows are no
        longer candidates, because closer ones came later: their lows are above ``best[q, 0]``.
    begin
        The first row to look at.
    most
        Stop if a query has more rows than this.
    """
    n, places = codes.shape[0], np.zeros(query_codes.shape[0], np.int64)
    for q in range(1, query_codes.shape[0]):
        places[q] = ends[q - 1]
    for first in range(begin, n, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, n)
        for q in range(query_codes.shape[0]):
            query, heap, place, count = query_codes[q], best[q], places[q], counts[q]
            factor, length, width = -2 * units[q], lengths[q], widths[q]
            kth = heap[0]
            for i in range(first, last):
                if among.shape[0] > 0 and not among[i]:
                    continue
                square = squares[i] + factor * scales[i] * dot(codes[i], query) + length
                radius = radii[i] + width
                # The slack goes by the row's own length. Otherwise a single very long row would let no row be excluded.
                slack = ROUNDING * (squares[i] + length) + SMALLEST_SQUARE
                # Nearly every row is too far away. It is skipped without a square root.
                if square - slack > (kth + radius) ** 2:
                    continue
                while place < ends[q] and hidden[place] < i:
                    place += 1
                if place < ends[q] and hidden[place] == i:
                    continue
                rows[q, count] = i
                lows[q, count] = math.sqrt(max(square - slack, 0.0)) - radius
                count += 1
                high = math.sqrt(max(square + slack, 0.0)) + radius
                if high < kth:
                    lower_top(heap, high)
                    kth = heap[0]
            places[q], counts[q] = place, count
            if count > most:
                return


@njit(cache=True, nogil=True, fastmath=REORDER)
def squared_distances(matrix: Array, rows: Array, point: Array, squares: Array) -> None:
    """``squares[i] = |matrix[rows[i]] - point|^2``, in float64: the exact comparison of what a scan returns.

    Parameters
    ----------
    matrix : (n, d)
    rows : (m,), int64
        In range.
    point : (d,), float64
    squares : (m,), float64
        Written. Each depends only on its own row.
    """
    for i in range(rows.shape[0]):
        row, total = matrix[rows[i]], 0.0
        for j in range(row.shape[0]):
            difference = row[j] - point[j]
            total += difference * difference
        squares[i] = total
