"""How many different items were seen, in a kilobyte: linear counting (Whang, Vander-Zanden, Taylor, 1990)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.kernels.covariance import hash_rows

Array = NDArray[Any]
BITS = 13
# About 30,000 items are told apart, more than any question here is about.
SLOTS = 1 << BITS


def mark(seen: Array, items: Array) -> None:
    """Note that items (n, D) were seen: one bit of ``seen`` (SLOTS / 8,) each, chosen by a hash of all their bytes."""
    slots = codes(items) >> np.uint64(64 - BITS)
    np.bitwise_or.at(seen, slots >> np.uint64(3), np.uint8(1) << (slots & np.uint64(7)).astype(np.uint8))


def codes(items: Array) -> Array:
    """A hash (n,) of all bytes of each item (n, D)."""
    words = np.ascontiguousarray(items).view(np.uint32)
    hashes = np.empty(len(words), np.uint64)
    hash_rows(words, _factors(words.shape[1]), hashes)
    return hashes


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
