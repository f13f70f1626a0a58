"""Count different items in one kilobyte, by linear counting (Whang, Vander-Zanden, Taylor, 1990).

Each item sets one bit, which a hash of its numbers selects. The number of free bits gives an estimate of the count.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.kernels.second_order import covariance

Array = NDArray[Any]
# This is enough for about 30,000 different items, more than DCA needs to distinguish.
SLOTS = 1 << covariance.BITS


def mark(seen: Array, items: Array, chosen: Array) -> None:
    """Record in ``seen`` (SLOTS / 8,) the items (n, D) for which ``chosen`` (n,) is True.

    Each sets one bit, whose number is a hash of all its bytes.
    """
    covariance.mark(seen, np.ascontiguousarray(items).view(np.uint32), factors(items), chosen)


def factors(items: Array) -> Array:
    """Factors of the hashes of items (..., D), one for each word of 32 bits."""
    return _factors(items.shape[-1] * items.itemsize // np.dtype(np.uint32).itemsize)


def distinct(seen: Array) -> float:
    """Estimated number of different items in ``seen`` (SLOTS / 8,); infinity if they are too many to distinguish."""
    free = SLOTS - int(np.unpackbits(seen).sum())
    return SLOTS * math.log(SLOTS / free) if free else math.inf


@cache
def _factors(count: int) -> Array:
    """Odd numbers (count,), always the same: those of splitmix64 (Steele, Lea, Flood, 2014)."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        odd: Array = (z ^ (z >> np.uint64(31))) | np.uint64(1)
    return odd
