"""What a model of second-order learning is, and how it begins (MATHS 12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from omdml.engines.base import Array
from omdml.engines.second_order.distinct import SLOTS
from omdml.engines.second_order.moments import LEARNED

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

    # The catalogue's mean.
    mean: Array  # (D,)
    # The catalogue's principal directions; (0, D) if an item's numbers are its coordinates already, d = D.
    basis: Array  # (d, D)
    # Standard deviations of the catalogue along these directions.
    deviations: Array  # (d,)
    near: Array  # (d, d)
    far: Array  # (d, d)
    middle: Array  # (d, d)
    centre: Array  # (d,)
    sums: Array  # (3,)
    seen: Array  # (SLOTS / 8,)
    # Open block: queries.
    Q: Array  # (BLOCK, D)
    # Open block: relevant items.
    R: Array  # (BLOCK, D)
    # Open block: irrelevant items.
    S: Array  # (BLOCK, D)
    # Rows that score triplets, made by the last refresh: the first ``used`` rows of each learned expert.
    W: Array  # (2, d, D)
    used: Array  # (2,)
    # Share of the plain coordinates, as of the last refresh.
    share: Array  # (1,)
    # See :func:`omdml.kernels.experts.hedged`. The last number is what merges add to the bound of the loss.
    hedge: Array  # (5,)
    # Codes of the last queries, by version.
    asked: Array  # (RECENT,)
    # Version of the last refresh.
    made: Array  # (1,)
    # Version of the next refresh.
    next: Array  # (1,)
    # See counts.py.
    counts: Array  # (4,)


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
    """The version after this one at which what scores is made again: a fifth more triplets."""
    return version + max(1, -(-version // 5))
