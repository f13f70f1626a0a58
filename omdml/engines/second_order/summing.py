"""The sums of DCA's engine: moments of near and far pairs, added block by block (MATHS 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from omdml.blas import one_blas_thread
from omdml.engines.base import Array, Engine, addresses_of
from omdml.engines.second_order.discriminant import shrinkage
from omdml.engines.second_order.distinct import factors
from omdml.engines.second_order.moments import REACH, Moments, effective_pairs
from omdml.engines.second_order.near_last import AllPairs
from omdml.engines.second_order.state import BLOCK, RECENT, State, new_state
from omdml.kernels.second_order.blas import SYRK
from omdml.kernels.second_order.covariance import TILE, add_block, take, weigh
from omdml.kernels.shared.counts import FILLED, UPDATES, VERSION
from omdml.metrics.cosine import projected

# The largest squared length of a centred item.
LIMITS = {"float32": 1e36, "float64": 1e250}


class SummingEngine(Engine):
    """Second moments of near and far pairs.

    A triplet is a near pair (q, r) and a far pair (q, s). An item with itself is no pair: (q, r, q) is only the near
    pair, (q, q, s) only the far pair. Two items with the same numbers are no pair either.

    Parameters
    ----------
    dims
        Dimension of each modality, in the order in which they lie side by side.
    start
        The catalogue's ``mean`` (D,), ``basis`` (d, D) or (0, D), and ``deviations`` (d,), of one floating type.
        Copied.
    memory
        Number of pairs over which the sums fade; 0: they never fade.
    """

    block = BLOCK
    state: State

    def __init__(self, dims: Mapping[str, int], start: Mapping[str, Array], memory: float) -> None:
        self.rule = 1.0 - 1.0 / memory if memory else 1.0
        self.shape = np.array(list(dims.values()), np.int64)
        super().__init__(list(dims), new_state(start))
        self.limit = LIMITS[start["mean"].dtype.name]
        self.longest_square = self._longest_square()

    def add_unscored(self, rows: Array, weights: Array, tables: Sequence[Array], caller_rows: Array) -> None:
        """Add triplets in order, scoring none, and close the block. Hedge learns nothing, and nothing is refreshed.

        The block must be closed before the call, too, because each tile must fit into it as a whole.

        Parameters
        ----------
        rows : (n, 3)
            Row numbers, int64, C-contiguous, in range; ``caller_rows`` are those that the caller gave.
        weights : (n,)
            What each triplet counts for in the sums, above 0 and at most 1.
        tables
            The modalities' matrices, C-contiguous, of the engine's type.

        Raises
        ------
        FeedbackError
            A triplet whose numbers are not finite or too large; ``row`` says which. Those before it were added.
        """
        state, counts = self.state, self.state.counts
        items, codes = np.zeros((3 * TILE, len(state.mean)), state.mean.dtype), np.zeros(TILE, np.uint64)
        constants = addresses_of(tables), self.shape, self.limit, factors(state.mean)
        with one_blas_thread():
            for start in range(0, len(rows), TILE):
                tile = rows[start : start + TILE]
                taken = int(take(tile, weights[start : start + TILE], *constants, 0, items, state, codes))
                state.asked[(int(counts[VERSION]) + np.arange(taken)) % RECENT] = codes[:taken]
                for kind in (FILLED, VERSION, UPDATES):
                    counts[kind] += taken
                if taken < len(tile):
                    index = start + taken
                    raise self._refusal(index, rows[index], tables, caller_rows[index])
                if counts[FILLED] > BLOCK - TILE:
                    self._flush()
            self._flush()

    def add_sums(self, moments: Moments, version: int, asked: Array) -> None:
        """Add sums that another engine made, of comparisons that follow those of this engine.

        The block of this engine must be closed. Nothing is refreshed.

        Parameters
        ----------
        asked : (RECENT,)
            Codes of the last queries, placed by version; ``version`` says how many there were.
        """
        state = self.state
        for name in ("near", "far", "middle", "centre", "sums"):
            getattr(state, name)[:] += getattr(moments, name)
        state.seen[:] |= moments.seen
        versions = np.arange(max(0, version - RECENT), version)
        state.asked[(self.version + versions) % RECENT] = asked[versions % RECENT]
        for kind in (VERSION, UPDATES):
            state.counts[kind] += version

    def moments(self) -> Moments:
        """Moments of all pairs, open block included, as copies."""
        with one_blas_thread():
            return Moments(*(array.copy() for array in self.all_pairs().whole()))

    def all_pairs(self) -> AllPairs:
        """All pairs, without adding those of the open block to the matrices."""
        moments = self.state.moments
        with one_blas_thread():
            block = self._open_block()
        if not block:
            return AllPairs.of_closed(moments)
        moments = moments._replace(centre=moments.centre.copy(), sums=moments.sums.copy(), seen=moments.seen.copy())
        y, m, g, weight, weight_far, _ = weigh(
            *block, self.rule, self.longest_square, moments.seen, moments.centre, moments.sums
        )
        return AllPairs(moments, y, m, g, weight, weight_far)

    def _open_block(self) -> tuple[Array, ...]:
        """Arguments for ``add_block``: the open block's items, what is summed of them, weights, factors of hashes.

        It is () if the block is empty. Callers limit BLAS to one thread.
        """
        *items, weights = self.state.open_block
        if not len(weights):
            return ()
        summed = items if self.state.sums_items else [projected(item, self.state.basis) for item in items]
        return (*items, *summed, weights, factors(self.state.mean))

    def _longest_square(self) -> float:
        """The squared length to which longer pairs are shortened."""
        return REACH * float((self.state.deviations.astype(np.float64) ** 2).sum())

    def _flush(self) -> None:
        """End the block: add its pairs to the moments. Callers limit BLAS to one thread."""
        if block := self._open_block():
            add_block(self.state.moments, *block, self.rule, self.longest_square, SYRK)
        self.state.counts[FILLED] = 0

    @property
    def shrinkage(self) -> float:
        """Variance added to each coordinate of near pairs of closed blocks, as a share of their mean variance."""
        return shrinkage(effective_pairs(self.state.moments), len(self.state.near))
