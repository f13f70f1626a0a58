"""What a model of second-order learning is, and how it begins (MATHS 12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from omdml.engines.base import Array
from omdml.engines.distinct import SLOTS
from omdml.engines.moments import LEARNED

# How many near pairs are added at a time. It is part of the arithmetic: another number gives other bytes.
BLOCK = 64
# Among so many triplets, answers to one search are recognised.
RECENT = 64
CONSTANT = ("mean", "basis", "deviations")
SYMMETRIC = ("near", "far", "middle")
OPEN = ("Q", "R", "S")
PARTLY_USED = (*OPEN, "W")


class State(NamedTuple):
    """What a model is; D numbers an item, d principal coordinates. For the sums see Moments."""

    mean: Array  # (D,)          of the catalogue
    basis: Array  # (d, D)       its principal directions; (0, D) if an item's numbers are its coordinates, d = D
    deviations: Array  # (d,)    roots of its variances along them
    near: Array  # (d, d)
    far: Array  # (d, d)
    middle: Array  # (d, d)
    centre: Array  # (d,)
    sums: Array  # (3,)
    seen: Array  # (SLOTS / 8,)
    Q: Array  # (BLOCK, D)       queries of the open block
    R: Array  # (BLOCK, D)       what was relevant
    S: Array  # (BLOCK, D)       and what was not
    W: Array  # (2, d, D)        what scores, as of the last refresh: of each learned expert, the first ``used`` rows
    used: Array  # (2,)
    share: Array  # (1,)         of the plain features there
    hedge: Array  # (5,)         see hedged; the last number is what merges add to the bound of the loss
    asked: Array  # (RECENT,)    codes of the last queries, by version
    made: Array  # (1,)          version of the last refresh
    next: Array  # (1,)          and of the next one
    counts: Array  # (4,)        see counts.py


def new_state(start: Mapping[str, Array]) -> State:
    """The state before the first pair; ``start`` has the arrays of CONSTANT, of one floating type. Copied."""
    d, D, dtype = len(start["deviations"]), len(start["mean"]), start["mean"].dtype
    return State(
        mean=start["mean"].copy(),
        basis=start["basis"].copy(),
        deviations=start["deviations"].copy(),
        near=np.zeros((d, d)),
        far=np.zeros((d, d)),
        middle=np.zeros((d, d)),
        centre=np.zeros(d),
        sums=np.zeros(3),
        seen=np.zeros(SLOTS // 8, np.uint8),
        Q=np.zeros((BLOCK, D), dtype),
        R=np.zeros((BLOCK, D), dtype),
        S=np.zeros((BLOCK, D), dtype),
        W=np.zeros((len(LEARNED), d, D), dtype),
        used=np.zeros(len(LEARNED), np.int64),
        share=np.ones(1),
        hedge=np.zeros(len(LEARNED) + 3),
        asked=np.zeros(RECENT, np.uint64),
        made=np.zeros(1, np.int64),
        next=np.ones(1, np.int64),
        counts=np.zeros(4, np.int64),
    )


def next_refresh(version: int) -> int:
    """The version after this one at which what scores is made again: 7 % more triplets, 20 % beyond a thousand."""
    percent = 107 if version < 1_000 else 120
    return max(version + 1, -(-version * percent // 100))
