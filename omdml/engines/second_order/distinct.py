"""How many different items were seen, in a kilobyte: linear counting (Whang, Vander-Zanden, Taylor, 1990)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.kernels.covariance import hash_rows, set_bits

Array = NDArray[Any]
BITS = 13
# About 30,000 items are told apart, more than any question here is about.
SLOTS = 1 << BITS


def mark(seen: Array, items: Array, chosen: Array) -> None:
    """Note that the ``chosen`` (n,) ones of items (n, D) were seen.

    Each sets one bit of ``seen`` (SLOTS / 8,), which a hash of all its bytes numbers.
    """
    set_bits(seen, codes(items)[chosen], BITS)


def codes(items: Array) -> Array:
    """A hash (n,) of all bytes of each item (n, D)."""
    hashes = np.empty(len(items), np.uint64)
    hash_rows(np.ascontiguousarray(items).view(np.uint32), factors(items), hashes)
    return hashes


def factors(items: Array) -> Array:
    """What the words of such items (..., D), of 32 bits each, are multiplied by in their hashes."""
    return _factors(items.shape[-1] * items.itemsize // np.dtype(np.uint32).itemsize)


def distinct(seen: Array) -> float:
    """About how many different items were seen; infinity if they are more than can be told apart."""
    free = SLOTS - int(np.unpackbits(seen).sum())
    return SLOTS * math.log(SLOTS / free) if free else math.inf


@cache
def _factors(count: int) -> Array:
    """Odd numbers (count,), the same ones everywhere: those of splitmix64 (Steele, Lea, Flood, 2014)."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found: Array = (z ^ (z >> np.uint64(31))) | np.uint64(1)
    return found
