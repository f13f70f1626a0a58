"""Slow literal twin of the scan over codes: one row, one coordinate at a time, and Fractions, which round nothing."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np


def coded(row):
    """Scale and codes of a row: the largest coordinate becomes 127 or -127."""
    scale = Fraction(float(np.float32(max((abs(float(x)) for x in row), default=0.0) / 127)))
    if scale == 0:
        return scale, [0] * len(row)
    return scale, [min(max(round(Fraction(float(x)) / scale), -127), 127) for x in row]


def squared(a, b):
    """The exact squared distance of two rows."""
    return sum((Fraction(float(x)) - Fraction(float(y))) ** 2 for x, y in zip(a, b, strict=True))


def nearest(matrix, point, k, hidden=()):
    """The k rows closest to a point, closest first, ties by row."""
    order = sorted((squared(row, point), place) for place, row in enumerate(matrix) if place not in hidden)
    return [place for _, place in order[:k]]


def candidates(matrix, point, k, hidden=(), widths=None):
    """Rows that the triangle inequality cannot exclude, if each may lie up to its width away from where it is given."""
    bounds = []
    for place, row in enumerate(matrix):
        scale, codes = coded(row)
        close = [float(scale * code) for code in codes]
        radius = math.sqrt(squared(row, close)) + (widths[place] if widths is not None else 0.0)
        distance = math.sqrt(squared(close, point))
        if place not in hidden:
            bounds.append((place, distance - radius, distance + radius))
    kth = sorted(high for _, _, high in bounds)[:k][-1] if len(bounds) >= k else math.inf
    return [place for place, low, _ in bounds if low <= kth]
