"""The engine of DCA: moments of near and far pairs, and the metrics made from them (MATHS 12).

Learning a pair only adds to sums, which is cheap. Computing a metric from these sums (a *refresh*) takes
eigendecompositions, a thousand times the work. So two metrics exist:

- The rows ``W`` of the state score each triplet before it is learned. They are computed at versions that depend on the
  number of comparisons only (:func:`next_refresh`), so the scores, and with them everything in the state, do not
  depend on how comparisons were batched or when somebody asked.
- The metric that is *served* is computed when it is asked for, and changes nothing in the state. Right after a refresh
  it consists of ``W``. Later, directions are searched in all sums: near ``W`` by one step of subspace iteration, which
  takes a quarter to a third of the time of a search of all directions, or else in all directions. Of the two experts,
  the one with the smaller weight is searched only if the comparisons since the refresh matter for it; until then its
  rows in ``W`` are served (MATHS 12 (k)). From 4,096 comparisons on, most refreshes take the step of subspace
  iteration, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from omdml.blas import one_blas_thread
from omdml.comparisons import LEAST_WEIGHT
from omdml.engines.base import MOST_COMPARISONS, Array, fill, with_copies
from omdml.engines.second_order.discriminant import symmetric
from omdml.engines.second_order.distinct import factors
from omdml.engines.second_order.experts import learned_rows, own_experts, plain_share
from omdml.engines.second_order.moments import LEARNED, ROUNDING, turned
from omdml.engines.second_order.near_last import AllPairs
from omdml.engines.second_order.parent import Experts, Parent, fitted_rows, mixed
from omdml.engines.second_order.refresh_schedule import next_refresh, searches_all
from omdml.engines.second_order.state import BLOCK, CONSTANT, OPEN, PARTLY_USED, SYMMETRIC
from omdml.engines.second_order.summing import SummingEngine
from omdml.initial import check_axes
from omdml.kernels.second_order.blas import GEMM, SYRK
from omdml.kernels.second_order.covariance import TILE, learn
from omdml.kernels.second_order.experts import hedged
from omdml.kernels.shared.counts import FILLED, VERSION
from omdml.metrics.cosine import CosineMetric

# If there is a ``memory``, the least number of refreshes in as many comparisons as it says.
REFRESHES_PER_MEMORY = 10
# What stands for infinity in ``hedge``: states hold finite numbers only.
UNBOUNDED = 1e300


class CovarianceEngine(SummingEngine):
    """Sums of near and far pairs, and metrics computed from them. See :class:`SummingEngine` for parameters."""

    # The metric of another model that this one began with. It takes part in scores and in what is served.
    parent: Parent | None = None

    def __init__(self, dims: Mapping[str, int], start: Mapping[str, Array], memory: float) -> None:
        super().__init__(dims, start, memory)
        # The most comparisons between two refreshes.
        self.stride = max(1, int(memory / REFRESHES_PER_MEMORY)) if memory else MOST_COMPARISONS
        self.weights = np.zeros(len(LEARNED))
        self.no_parent = Parent.absent(start["mean"])

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """An independent engine in the same state. What it knows of the catalogue never changes, and is shared."""
        memo.update({id(array): array for array in (getattr(self.state, name) for name in CONSTANT)})
        if self.parent:
            memo[id(self.parent.rows)] = self.parent.rows
        # Of these arrays only the used rows are copied. Fresh zeros take no memory until they are written to.
        partly = (getattr(self.state, name) for name in PARTLY_USED)
        memo.update({id(array): np.zeros(array.shape, array.dtype) for array in partly})
        twin = super().__deepcopy__(memo)
        for copied_part, part in zip(twin._used(), self._used(), strict=True):
            copied_part[...] = part
        return twin

    def _copies_for_undo(self, count: int) -> list[tuple[Array, Array]]:
        """See the base class. Until the open block closes or a refresh is due, only the counters need a copy."""
        state, filled = self.state, self.state.counts[FILLED]
        trust = [self._trust]
        if filled + count < BLOCK and state.counts[VERSION] + count < state.next[0]:
            return with_copies([state.hedge, state.asked, state.counts, *trust])
        fitted = [self.parent.fitted] if self.parent else []
        others = (getattr(state, name) for name in state._fields if name not in (*CONSTANT, *PARTLY_USED))
        return with_copies([*others, *self._used(), *trust, *fitted])

    @property
    def _trust(self) -> Array:
        """The trust in the parent, see :class:`Parent`; empty without a parent."""
        return self.parent.trust if self.parent else np.zeros((0, 5))

    def _used(self) -> list[Array]:
        """Views of the used parts of the arrays in ``PARTLY_USED``."""
        state = self.state
        return [*state.open_block, state.W[: len(state.mean) * int(state.used.sum())]]

    def _walk(self, rows: Array, addresses: Array, columns: Sequence[Array], scores: Array) -> int:
        state, t, (weights,) = self.state, 0, columns
        # Addresses of this process, which would be wrong in a pickled engine.
        products_by = GEMM[state.mean.dtype.name], SYRK
        constants = (
            self.shape,
            self.limit,
            factors(state.mean),
            self.rule,
            self.longest_square,
            *products_by,
            state.sums_items,
        )
        parent = self.parent or self.no_parent
        # Allocated for each call, so that thousands of models do not each keep working space.
        items = np.zeros((3 * TILE, len(state.mean)), state.mean.dtype)
        products = np.empty(len(LEARNED) * items.size, items.dtype)
        with one_blas_thread():
            while t < len(rows):
                end = min(len(rows), t + int(state.next[0]) - int(state.counts[VERSION]))
                triplets = rows[t:end], weights[t:end], addresses
                t += int(learn(*triplets, *constants, state, parent, items, products, scores[t:end]))
                full, due = state.counts[FILLED] == BLOCK, state.counts[VERSION] == state.next[0]
                if t < end and not full:
                    return t
                if full or due:
                    self._flush()
                if due:
                    # If old pairs fade, the directions change all the time.
                    self.refresh(self.rule != 1.0 or searches_all(int(state.made[0]), int(state.counts[VERSION])))
        return t

    def add_pairs(self, pairs: Array, tables: Sequence[Array], caller_rows: Array) -> None:
        """Add near pairs (n, 2) in order, scoring none, and refresh; see :meth:`add_unscored`."""
        # A triplet whose irrelevant item is its query is a near pair alone.
        self.add_unscored(np.ascontiguousarray(pairs[:, (0, 1, 0)]), np.ones(len(pairs)), tables, caller_rows)
        self.refresh()

    def served(self) -> dict[str, tuple[float, Array]]:
        """Share and matrix (r, D) of each expert of the metric that is served, including the parent's experts.

        Names of the parent's experts begin with ``parent``, and with ``fitted`` if they are fitted to this model.
        """
        fresh, pairs = bool(self.state.made[0] == self.version), self.all_pairs()
        parts = self.parent.parts() if self.parent else {"own": 1.0}
        experts: dict[str, Experts] = {}
        if "own" in parts:
            experts["own"] = own_experts(self.state, pairs, self._weights(), fresh)
        if self.parent and "parent" in parts:
            experts["parent"] = self.parent.experts(self.state.basis)
        if self.parent and "fitted" in parts:
            rows = self.parent.fitted.copy() if fresh else fitted_rows(self.parent, self.state, pairs)
            experts["fitted"] = self.parent.experts(self.state.basis, rows)
        return mixed(parts, experts)

    def _weights(self) -> dict[str, float]:
        """Hedge's weight of each learned expert, 1 in total."""
        hedged(self.state.hedge, self.weights)
        return dict(zip(LEARNED, self.weights.tolist(), strict=True))

    def refresh(self, search_all: bool = True) -> None:
        """Compute from the closed blocks the rows that score the next triplets, and set the next refresh's version.

        All directions are searched, or only those near the last rows.
        """
        state, moments = self.state, self.state.moments
        last = {} if search_all else {name: rows for name, rows in zip(LEARNED, state.rows, strict=True) if len(rows)}
        rows = learned_rows(state, AllPairs.of_closed(moments), LEARNED, last)
        state.share[0] = plain_share(moments) if rows else 1.0
        state.used[:] = [len(rows.get(name, ())) for name in LEARNED]
        for name, part in zip(LEARNED, state.rows, strict=True):
            if name in rows:
                part[...] = rows[name]
        if self.parent:
            self.parent.fitted[...] = fitted_rows(self.parent, state, AllPairs.of_closed(moments))
        state.made[0] = version = int(state.counts[VERSION])
        state.next[0] = min(next_refresh(version), version + self.stride)

    @property
    def hedge_loss(self) -> float:
        """Sum of the weighted loss of both learned experts, from 0 to 1 per triplet."""
        return float(self.state.hedge[len(LEARNED)])

    @property
    def hedge_loss_bound(self) -> float:
        """An upper bound of ``hedge_loss``; infinite if anything has faded."""
        least = float(self.state.hedge[: len(LEARNED)].min())
        bound = least + self._regret()
        return bound if bound < UNBOUNDED and self.rule == 1.0 else math.inf

    def refresh_in_time(self) -> None:
        """Bring the next refresh forward to the version that this ``memory`` asks for, if it is due later."""
        state = self.state
        state.next[0] = min(state.next[0], max(self.version + 1, int(state.made[0]) + self.stride))

    def unbound_hedge_loss(self) -> None:
        """Make the bound infinite, because from now on losses fade in another way than before."""
        self.state.hedge[-1] = UNBOUNDED

    def _regret(self) -> float:
        """The most by which ``hedge_loss`` exceeds the better expert's (Cesa-Bianchi and Lugosi 2006, Theorem 2.3)."""
        count, merged = map(float, self.state.hedge[-2:])
        experts = math.log(len(LEARNED))
        return merged + 2 * math.sqrt(count / 2 * experts) + math.sqrt(experts / 8)

    def begin_from(self, metric: CosineMetric, version: int) -> None:
        """Have a parent; raises ValueError for a metric that cannot be one."""
        self.parent = Parent.of(metric, version, self.state.mean, self.state.basis)

    def near_covariance(self) -> Array:
        """The covariance (d, d) of all near pairs so far, in principal coordinates."""
        state, moments = self.state, self.moments()
        with one_blas_thread():
            near = turned(moments.near, state.basis) if state.sums_items else moments.near
        covariance: Array = symmetric(near) / (moments.sums[0] or 1.0)
        return covariance

    def turn_older_sums(self) -> None:
        """Turn the sums of principal coordinates of an older state into sums of items, if this engine sums items."""
        state = self.state
        if state.sums_items:
            with one_blas_thread():
                moments = state.moments.turned(state.basis.T)
            for name in SYMMETRIC:
                matrix = getattr(state, name)
                matrix[...] = np.triu(getattr(moments, name))
                # If all pairs are alike in a number, its sum is 0. Rounding can make that negative, and a state
                # with a negative sum is refused.
                np.fill_diagonal(matrix, np.maximum(matrix.diagonal(), 0.0))
            state.centre[:] = moments.centre

    def absorb(self, other: CovarianceEngine) -> None:
        """Add the sums and counts of another engine of the same basis, open blocks included, and refresh."""
        with one_blas_thread():
            self._flush()
        regrets = self._regret() + other._regret()
        self.add_all(other)
        self.state.hedge[-1] = regrets
        self._trust[:] += other._trust
        self.refresh()

    def add_all(self, other: CovarianceEngine) -> None:
        """Add the sums, losses and counts of another engine of the same basis, its open block included.

        The block of this engine must be closed. Nothing is refreshed. If this engine began with nothing, the bound of
        its loss becomes what it would be if the parts so far had been merged by :meth:`absorb`.
        """
        state, before = self.state, self.state.counts.copy()
        bound = float(state.hedge[-1]) + other._regret()
        self.add_sums(other.moments(), other.version, other.state.asked)
        state.hedge[:] = [*(state.hedge + other.state.hedge)[:-1], bound]
        state.counts[:] = before + other.state.counts
        state.counts[FILLED] = 0

    def to_tensors(self) -> dict[str, Array]:
        """The state as arrays by name: used rows of the open block and of W, one triangle of each symmetric matrix."""
        state, tensors = self.state, super().to_tensors()
        for name in SYMMETRIC:
            # The upper triangle, row by row. To index by pairs of row and column takes three times as long.
            tensors[name] = np.concatenate([row[index:] for index, row in enumerate(getattr(state, name))])
        tensors |= dict(zip(OPEN, state.open_block, strict=True))
        tensors["W"] = np.concatenate(state.rows)
        return tensors | (self.parent.to_tensors() if self.parent else {})

    def _fill(self, tensors: Mapping[str, Array]) -> None:
        state, d = self.state, len(self.state.near)
        for name in state._fields:
            if name not in (*SYMMETRIC, *OPEN, "W"):
                fill(getattr(state, name), tensors[name], name)
        filled, used = self._filled(), state.used
        if not (used.min() >= 0 and used.max() <= d and 0 <= state.share[0] <= 1):
            raise ValueError(f"{used} rows and share {state.share[0]}, expected at most {d} rows and a share up to 1")
        *losses, count, _ = state.hedge.tolist()
        if not (state.hedge.min() >= 0 and max(losses) <= count * (1 + ROUNDING) and count <= self.version):
            raise ValueError(f"hedge is {state.hedge}, expected losses up to 1 for each of {self.version} triplets")
        check_axes(state.basis, state.deviations)
        self.parent = Parent.from_tensors(tensors, len(state.mean), state.mean.dtype)
        for name in SYMMETRIC:
            triangle = np.zeros(d * (d + 1) // 2)
            fill(triangle, tensors[name], name)
            getattr(state, name)[np.triu_indices(d)] = triangle
        self.longest_square = self._longest_square()
        state.moments.check(self.version, self.longest_square)
        *block, weights = state.open_block
        # Before number 4 of the format every triplet counted for 1.
        fill(weights, tensors.get("weights", np.ones(filled)), "weights")
        if not ((weights >= LEAST_WEIGHT) & (weights <= 1)).all():
            raise ValueError(f"weights of the open block are {weights}, expected {LEAST_WEIGHT} to 1")
        for name, items in zip(OPEN, block, strict=False):
            fill(items, tensors[name], name)
            if (np.einsum("ij,ij->i", items, items, dtype=np.float64) > self.limit * (1 + ROUNDING)).any():
                raise ValueError(f"{name} holds items too large to be squared")
        rows = np.zeros((int(used.sum()), len(state.mean)), state.W.dtype)
        fill(rows, tensors["W"], "W")
        for part, restored in zip(state.rows, np.split(rows, used[:-1]), strict=True):
            part[...] = restored

    def _filled(self) -> int:
        last, version, due = int(self.state.made[0]), self.state.counts[VERSION], self.state.next[0]
        if not 0 <= last <= version < due <= next_refresh(last):
            got = f"counts are {self.state.counts.tolist()}, with refreshes at version {last} and next at {due}"
            expected = f"the version {version} between these, and the next one at {next_refresh(last)} at most"
            raise ValueError(f"{got}, expected {expected}")
        return super()._filled()
