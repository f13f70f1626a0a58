"""The engine of LOMDML: low-rank matrices with Hedge weights, in the blocked exact form (MATHS 2.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from omdml.engines.base import BLOCK, Array, HedgeEngine, fill, near_and_far, starts
from omdml.errors import CorruptError
from omdml.kernels import lowrank as kernel
from omdml.kernels.shared.counts import FILLED

# The most sizes of models whose working space is remembered.
SIZES = 16


class LowRankEngine(HedgeEngine):
    """Matrices W_i (r_i, d_i) with Hedge weights.

    Parameters
    ----------
    start
        The matrices to begin with, one for each modality, all of one floating type. Copied.
    rule
        Hyperparameters.
    """

    # A walk leaves nothing in the working space that another one needs. It holds Python's lock, so no other walk writes
    # there at the same time. So all engines of one size share the space, those that are read from checkpoints, too.
    shared = HedgeEngine.shared | {"work"}
    at_close = frozenset({"W", "X", "P", "c", "mean_W", "mean_weights"})
    grown = frozenset({"X", "P", "c"})
    remedy = "scale the features, or with step='ogd' take a lower eta"

    def __init__(self, start: Mapping[str, Array], rule: kernel.Rule) -> None:
        self.rule = rule
        r, n = np.array([matrix.shape for matrix in start.values()], np.int64).T.copy()
        dtype = next(iter(start.values())).dtype
        m, rows = len(start), 2 * BLOCK
        self.shape = kernel.Shape(n, r, starts(r * n), starts(rows * n), starts(rows * r))
        self.state: kernel.Block
        state = kernel.Block(
            W=np.concatenate([matrix.ravel() for matrix in start.values()]),
            X=np.zeros(rows * n.sum(), dtype),
            P=np.zeros(rows * r.sum(), dtype),
            c=np.zeros((m, rows), dtype),
            used=np.zeros(m, np.int64),
            counts=np.zeros(4, np.int64),
            log_weights=np.zeros(m),
            losses=np.zeros(m + 1),
            mean_W=np.zeros((r * n).sum() if rule.average else 0, dtype),
            mean_weights=np.zeros(m),
        )
        super().__init__(list(start), state)
        self.work = _working_space(len(state.X), len(state.P), rows, m, dtype)

    def _walk(self, rows: Array, addresses: Array, columns: Sequence[Array], scores: Array) -> int:
        return kernel.walk(near_and_far(rows), addresses, self.shape, self.state, self.rule, self.work, scores)

    def matrices(self) -> list[Array]:
        """W_i (r_i, d_i) of all comparisons learned so far, open block included."""
        flat = self.state.W.copy()
        kernel.flush_all(self.shape, self.state, flat)
        return self._split(flat)

    def means(self) -> tuple[Array, list[Array]]:
        """Running means of the weights (m,) and of each W_i (r_i, d_i), open block included."""
        if not self.version:
            return self.weights, self.matrices()
        block = self.state._replace(
            W=self.state.W.copy(), mean_W=self.state.mean_W.copy(), mean_weights=self.state.mean_weights.copy()
        )
        kernel.flush_all(self.shape, block, block.W)
        if block.counts[FILLED]:
            kernel.blend(block, self.rule.average, self.weights)
        return block.mean_weights, self._split(block.mean_W)

    def _split(self, flat: Array) -> list[Array]:
        places = zip(self.shape.w_starts.tolist(), self.shape.r.tolist(), self.shape.n.tolist(), strict=True)
        return [flat[start : start + r * n].reshape(r, n) for start, r, n in places]

    def to_tensors(self) -> dict[str, Array]:
        """The state as arrays by name; of the open block, only the rows that count."""
        tensors = super().to_tensors()
        for i, name in enumerate(self.names):
            tensors |= dict(zip(_parts(name), self._rows(i), strict=True))
        return tensors

    @staticmethod
    def ranks(tensors: Mapping[str, Array], names: Sequence[str]) -> dict[str, int]:
        """The rank r_i of each modality in a state; raises CorruptError if the state has none."""
        try:
            ranks = {name: tensors[_parts(name)[1]].shape[1] for name in names}
        except (KeyError, IndexError) as error:
            raise CorruptError(f"state lacks the rows of a modality: {error}") from error
        if min(ranks.values()) < 1:
            raise CorruptError(f"state has the ranks {ranks}, expected at least 1 for each modality")
        return ranks

    def _rows(self, i: int) -> tuple[Array, Array, Array]:
        used, n, r = self.state.used[i], self.shape.n[i], self.shape.r[i]
        x_start, p_start = self.shape.x_starts[i], self.shape.p_starts[i]
        X = self.state.X[x_start : x_start + used * n].reshape(used, n)
        P = self.state.P[p_start : p_start + used * r].reshape(used, r)
        return X, P, self.state.c[i, :used]

    def _fill(self, tensors: Mapping[str, Array]) -> None:
        super()._fill(tensors)
        filled, used = self.state.counts[FILLED], self.state.used
        if (used % 2).any() or used.min() < 0 or used.max() > 2 * filled:
            raise ValueError(
                f"used has {used.tolist()} rows of {filled} comparisons, expected an even number, at most 2 for each"
            )
        for i, name in enumerate(self.names):
            for part, target in zip(_parts(name), self._rows(i), strict=True):
                fill(target, tensors[part], part)


@lru_cache(SIZES)
def _working_space(numbers: int, projected: int, rows: int, m: int, dtype: np.dtype[Any]) -> kernel.Work:
    """Working space for all engines of this size."""
    return kernel.Work(
        D=np.zeros(numbers, dtype),
        PQ=np.zeros(projected, dtype),
        grams=np.zeros((2, rows), dtype),
        f=np.zeros(m),
        weights=np.zeros(m),
    )


def _parts(name: str) -> tuple[str, str, str]:
    return f"{name}/X", f"{name}/P", f"{name}/c"
