"""The state of a DCA model, and how it begins (MATHS 12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from omdml.engines.base import Array
from omdml.engines.second_order.distinct import SLOTS
from omdml.engines.second_order.moments import LEARNED, Moments
from omdml.initial import AXES
from omdml.kernels.shared.counts import FILLED

# Triplets that are added to the sums at a time. This is part of the arithmetic: another number gives other bytes.
BLOCK = 64
# Number of queries that the model remembers, to recognise answers to the same search.
RECENT = 64
# If items have at most this many numbers, their sums are turned each time a metric is made. For longer items, turning
# would take longer than the rest of making the metric.
TURNED = 128
# What the model knows of the catalogue. It never changes.
CONSTANT = AXES
# Matrices of which only the upper triangle counts.
SYMMETRIC = ("near", "far", "middle")
# The rows of the open block.
OPEN = ("Q", "R", "S", "weights")
# Arrays of which only the beginning counts.
PARTLY_USED = (*OPEN, "W")


class State(NamedTuple):
    """A model: D numbers per item, d principal coordinates. For ``near`` to ``seen`` see Moments and ``sums_items``."""

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
    # Open block: what each triplet counts for in the sums, at most 1.
    weights: Array  # (BLOCK,)
    # Rows that score triplets, made by the last refresh, with room for d rows of each learned expert. The matrix
    # (used, D) of all experts lies by columns at the beginning: BLAS projects fastest so.
    W: Array  # (2 D d,)
    used: Array  # (2,)
    # Share of the plain coordinates, as of the last refresh.
    share: Array  # (1,)
    # See :func:`omdml.kernels.second_order.experts.hedged`. The last number is what merges add to the bound of the
    # loss.
    hedge: Array  # (5,)
    # Codes of the last RECENT queries. The code of triplet number v, counted from 0, is at v % RECENT.
    asked: Array  # (RECENT,)
    # Version of the last refresh.
    made: Array  # (1,)
    # Version of the next refresh.
    next: Array  # (1,)
    # See counts.py.
    counts: Array  # (4,)

    @property
    def moments(self) -> Moments:
        """Moments of the pairs of closed blocks: these arrays, not copies."""
        return Moments(*(getattr(self, name) for name in Moments._fields))

    @property
    def sums_items(self) -> bool:
        """Whether the sums are of items as they come: if the basis is square, and small enough to turn them later.

        Then the basis is a rotation, which leaves the lengths of vectors as they are. Otherwise the sums are of
        principal coordinates.
        """
        return len(self.basis) == len(self.mean) <= TURNED

    @property
    def open_block(self) -> list[Array]:
        """The used rows of the open block, as views: queries, relevant items, irrelevant items, weights."""
        return [getattr(self, name)[: self.counts[FILLED]] for name in OPEN]

    @property
    def rows(self) -> list[Array]:
        """The rows (used, D) in ``W``, as views, by expert."""
        D, used = len(self.mean), int(self.used.sum())
        return np.split(self.W[: D * used].reshape(D, used).T, self.used[:-1])


def new_state(start: Mapping[str, Array]) -> State:
    """The state before the first pair. ``start`` has the arrays named in CONSTANT, of one floating type; copied."""
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
        weights=np.zeros(BLOCK),
        W=np.zeros(len(LEARNED) * D * d, dtype),
        used=np.zeros(len(LEARNED), np.int64),
        share=np.ones(1),
        hedge=np.zeros(len(LEARNED) + 3),
        asked=np.zeros(RECENT, np.uint64),
        made=np.zeros(1, np.int64),
        next=np.ones(1, np.int64),
        counts=np.zeros(4, np.int64),
    )
