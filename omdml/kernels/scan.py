"""Which rows can be among the nearest: a scan over one byte a coordinate, with a bound for what the bytes leave out.

A scan is as fast as memory is read, so it reads a quarter of what float32 would need (MATHS 18).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from omdml.kernels import Array

# The largest code. -128 is not used, so that codes are symmetric.
LARGEST_CODE = 127
# Rows whose codes stay in the processor's cache while several queries look at them.
BLOCK_ROWS = 1024
# The largest code of a query, and the largest sum of products.
LARGEST_QUERY_CODE, LARGEST_SUM = 2**15 - 1, 2**31 - 1
# A radius is made larger by this, because it is rounded to float32.
UP = 1 + 2.0**-22
# How far rounding moves a squared distance, as a share of (row length + query length)^2: squares of rows are float32.
ROUNDING = 2.0**-22
# Added to squared distances and to radii: float32 loses squares below its smallest numbers, however small rows are.
SMALLEST_SQUARE, SMALLEST = 2.0**-120, 2.0**-126


@njit(cache=True, nogil=True)
def encode(X: Array, codes: Array, scales: Array, squares: Array, radii: Array) -> None:
    """Round every row to ``scales[i] * codes[i]``, and say how far that is from the row.

    Parameters
    ----------
    X : (n, d)
        Finite.
    codes : (n, d), int8
        Written.
    scales, squares, radii : (n,), float32
        Written: ``|scales[i] * codes[i]|^2``, and at least ``|X[i] - scales[i] * codes[i]|``.
    """
    for i in range(X.shape[0]):
        top = 0.0
        for j in range(X.shape[1]):
            top = max(top, abs(np.float64(X[i, j])))
        scale = np.float64(np.float32(top / LARGEST_CODE))
        inverse = 1 / scale if scale > 0 else 0.0
        total = left = 0.0
        for j in range(X.shape[1]):
            x = np.float64(X[i, j])
            code = min(max(np.rint(x * inverse), -LARGEST_CODE), LARGEST_CODE)
            codes[i, j] = np.int8(code)
            total += code * code
            left += (x - scale * code) ** 2
        scales[i], squares[i] = scale, scale * scale * total
        radii[i] = math.sqrt(left) * UP + SMALLEST


@njit(cache=True, nogil=True)
def encode_queries(
    points: Array, reach: float, asked: Array, units: Array, lengths: Array, widths: Array, slacks: Array
) -> None:
    """Round queries to ``units[q] * asked[q]``, so that int32 holds every sum of products with codes of rows.

    Parameters
    ----------
    points : (Q, d), float64
    reach
        The length of the longest row.
    asked : (Q, d), int16
        Written.
    units, lengths, slacks : (Q,), float64
        Written, as :func:`scan` reads them.
    widths : (Q,), float64
        How far each query may be from where it should be; how far it is from its code is added.
    """
    largest = min(LARGEST_QUERY_CODE, LARGEST_SUM // (LARGEST_CODE * max(points.shape[1], 1)))
    for q in range(points.shape[0]):
        top = 0.0
        for j in range(points.shape[1]):
            top = max(top, abs(points[q, j]))
        unit = top / largest
        length = left = 0.0
        for j in range(points.shape[1]):
            code = np.rint(points[q, j] / unit) if unit > 0 else 0.0
            asked[q, j] = np.int16(code)
            length += (unit * code) ** 2
            left += (points[q, j] - unit * code) ** 2
        units[q], lengths[q] = unit, length
        widths[q] += math.sqrt(left)
        slacks[q] = ROUNDING * (reach + math.sqrt(length)) ** 2 + SMALLEST_SQUARE


@njit(cache=True, nogil=True)
def dot(a: Array, b: Array) -> np.int32:
    """The product of a row's codes (int8) and a query's (int16), if int32 holds it.

    Every cast is needed: numba would add up in int64, and LLVM multiplies sixteen pairs at once (``vpmaddwd``) only if
    all is int32.
    """
    total = np.int32(0)
    for j in range(a.shape[0]):
        total = np.int32(total + np.int32(np.int32(a[j]) * np.int32(b[j])))
    return total


@njit(cache=True, nogil=True)
def lower_top(heap: Array, value: float) -> None:
    """Replace the largest number of a heap, which is its first, by a smaller one."""
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
    asked: Array,
    units: Array,
    lengths: Array,
    widths: Array,
    slacks: Array,
    among: Array,
    hidden: Array,
    ends: Array,
    best: Array,
    rows: Array,
    lows: Array,
    counts: Array,
    begin: int,
) -> None:
    """For each query: all rows that can be among its k nearest, and how close each can be at least.

    Parameters
    ----------
    codes, scales, squares, radii
        As of :func:`encode`, n rows; a row is within ``radii[i]`` of its code.
    asked : (Q, d), int16
        The queries' codes, so small that int32 holds every product.
    units, lengths, widths, slacks : (Q,), float64
        A query is within ``widths[q]`` of ``units[q] * asked[q]``, whose squared length is ``lengths[q]``;
        rounding moves a squared distance by less than ``slacks[q]``.
    among : (n,) or (0,), bool
        Rows that may be answered; all if it is empty.
    hidden : (h,), int64
        Rows that are no answers, rising, of one query after the other.
    ends : (Q,), int64
        Where each query's hidden rows end.
    best : (Q, k), float64
        Infinite; written: the k smallest upper bounds of distances, the largest of them first.
    rows : (Q, n), int64
    lows : (Q, n), float64
    counts : (Q,), int64
        Zero; written with ``rows`` and ``lows``: how many rows each query has. Some are no longer among the k nearest,
        because closer ones came later: their lows are above ``best[q, 0]``.
    begin
        The first row that is looked at.
    """
    n, places = codes.shape[0], np.zeros(asked.shape[0], np.int64)
    for q in range(1, asked.shape[0]):
        places[q] = ends[q - 1]
    for first in range(begin, n, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, n)
        for q in range(asked.shape[0]):
            query, heap, place, count = asked[q], best[q], places[q], counts[q]
            factor, length, width, slack = -2 * units[q], lengths[q], widths[q], slacks[q]
            kth = heap[0]
            for i in range(first, last):
                if among.shape[0] > 0 and not among[i]:
                    continue
                square = squares[i] + factor * scales[i] * dot(codes[i], query) + length
                radius = radii[i] + width
                # No root is taken for a row that is too far away: nearly every one.
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
