"""The blocked exact engine from Python's side: state as arrays, learning that is all or nothing (MATHS 2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CorruptError, FeedbackError
from omdml.kernels import lomdml as kernel

Array = NDArray[Any]
BLOCK = 16  # events between flushes: part of the arithmetic, so changing it changes the bytes
WHOLE = tuple(name for name in kernel.Block._fields if name not in ("X", "P", "c"))  # arrays saved as they are


class Engine:
    """Matrices W_i (r_i, d_i) with Hedge weights, learned from comparisons at matrix-multiply speed.

    Parameters
    ----------
    start
        The matrices to begin with, one a modality, all of one floating type. Copied.
    rule
        Hyperparameters.
    """

    def __init__(self, start: Mapping[str, Array], rule: kernel.Rule) -> None:
        self.names = list(start)
        self.rule = rule
        r, n = np.array([matrix.shape for matrix in start.values()], np.int64).T.copy()
        dtype = next(iter(start.values())).dtype
        m, rows = len(self.names), 2 * BLOCK
        self.shape = kernel.Shape(n, r, _starts(r * n), _starts(rows * n), _starts(rows * r))
        self.block = kernel.Block(
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
        self.work = kernel.Work(
            D=np.zeros_like(self.block.X),
            PQ=np.zeros_like(self.block.P),
            grams=np.zeros((2, rows), dtype),
            f=np.zeros(m),
            weights=np.zeros(m),
        )

    def learn(self, rows: Array, tables: list[Array]) -> Array:
        """Learn comparisons in order, all of them or none.

        Parameters
        ----------
        rows : (T, 4)
            Near pair and far pair of each, int64, in range.
        tables
            The modalities' matrices, C-contiguous, of the engine's type.

        Returns
        -------
        f of each comparison before it was learned: (T,).

        Raises
        ------
        FeedbackError
            A comparison whose numbers are not finite; ``row`` says which.
        """
        addresses = np.array([table.__array_interface__["data"][0] for table in tables], np.uint64)
        scores = np.empty(len(rows))
        kept = self._keep(len(rows))
        done = kernel.walk(rows, addresses, self.shape, self.block, self.rule, self.work, scores)
        if done < len(rows):
            self._restore(kept)
            raise self._refusal(done, rows[done], tables)
        return scores

    def _keep(self, events: int) -> list[Array]:
        """What undoes this many events: a block only grows until it closes, so its rows are copied only then."""
        small = [self.block.used, self.block.counts, self.block.log_weights, self.block.losses]
        closes = self.block.counts[kernel.FILLED] + events >= BLOCK
        return [array.copy() for array in (self.block if closes else small)]

    def _restore(self, kept: list[Array]) -> None:
        small = [self.block.used, self.block.counts, self.block.log_weights, self.block.losses]
        for array, before in zip(self.block if len(kept) > len(small) else small, kept, strict=True):
            array[...] = before

    def _refusal(self, index: int, row: Array, tables: list[Array]) -> FeedbackError:
        for name, table in zip(self.names, tables, strict=True):
            for item in row:
                if not np.isfinite(table[item]).all():
                    message = f"comparison {index}: item in row {item} of modality {name!r} holds values not finite"
                    return FeedbackError(f"{message}; nothing was learned", reason="not_finite", row=index)
        message = f"comparison {index} (rows {row.tolist()}): learning it would overflow {self.block.W.dtype}"
        hint = "scale the features" + ("" if self.rule.exact else ", or use step='pa', which cannot diverge")
        return FeedbackError(f"{message}; nothing was learned: {hint}", reason="diverged", row=index)

    @property
    def weights(self) -> Array:
        """theta: (m,)."""
        shares = np.exp(self.block.log_weights - self.block.log_weights.max())
        return shares / shares.sum()

    def matrices(self) -> list[Array]:
        """W_i (r_i, d_i) as learned so far, open block included."""
        flat = self.block.W.copy()
        kernel.flush_all(self.shape, self.block, flat)
        return self._split(flat)

    def means(self) -> tuple[Array, list[Array]]:
        """Running means of the weights and of W, the open block taken in as far as it goes."""
        if not self.version:
            return self.weights, self.matrices()
        block = self.block._replace(
            W=self.block.W.copy(), mean_W=self.block.mean_W.copy(), mean_weights=self.block.mean_weights.copy()
        )
        kernel.flush_all(self.shape, block, block.W)
        if block.counts[kernel.FILLED]:
            kernel.blend(block, self.rule.average, self.weights)
        return block.mean_weights, self._split(block.mean_W)

    def _split(self, flat: Array) -> list[Array]:
        parts = np.split(flat, self.shape.at_w[1:])
        return [part.reshape(r, n) for part, r, n in zip(parts, self.shape.r, self.shape.n, strict=True)]

    version = property(lambda self: int(self.block.counts[kernel.VERSION]))
    mistakes = property(lambda self: int(self.block.counts[kernel.MISTAKES]))
    updates = property(lambda self: int(self.block.counts[kernel.UPDATES]))
    hedge_loss = property(lambda self: float(self.block.losses[-1]))
    fewest_mistakes = property(lambda self: float(self.block.losses[:-1].min()))

    def to_tensors(self) -> dict[str, Array]:
        """The state: of the open block, only the rows that count."""
        tensors = {name: getattr(self.block, name) for name in WHOLE}
        for i, name in enumerate(self.names):
            tensors |= dict(zip(_parts(name), self._rows(i), strict=True))
        return tensors

    @staticmethod
    def ranks(tensors: Mapping[str, Array], names: list[str]) -> dict[str, int]:
        """r_i of a state; raises CorruptError."""
        try:
            return {name: tensors[_parts(name)[1]].shape[1] for name in names}
        except (KeyError, IndexError) as error:
            raise CorruptError(f"state lacks the rows of a modality: {error}") from error

    def _rows(self, i: int) -> tuple[Array, Array, Array]:
        used, n, r = self.block.used[i], self.shape.n[i], self.shape.r[i]
        at_x, at_p = self.shape.at_x[i], self.shape.at_p[i]
        X = self.block.X[at_x : at_x + used * n].reshape(used, n)
        P = self.block.P[at_p : at_p + used * r].reshape(used, r)
        return X, P, self.block.c[i, :used]

    def restore(self, tensors: Mapping[str, Array]) -> None:
        """Take on the state in these tensors; raises CorruptError where they are not of this engine's shape."""
        try:
            for name in WHOLE:
                _fill(getattr(self.block, name), tensors[name], name)
            used = self.block.used
            if (used % 2).any() or used.min() < 0 or used.max() > 2 * BLOCK:
                raise ValueError(f"used is {used.tolist()}, expected even numbers up to {2 * BLOCK}")
            for i, name in enumerate(self.names):
                for part, target in zip(_parts(name), self._rows(i), strict=True):
                    _fill(target, tensors[part], part)
        except (KeyError, ValueError) as error:
            raise CorruptError(f"state does not fit the learner it names: {error}") from error


def _parts(name: str) -> tuple[str, str, str]:
    return f"{name}/X", f"{name}/P", f"{name}/c"


def _fill(target: Array, source: Array, name: str) -> None:
    if source.shape != target.shape or source.dtype != target.dtype:
        raise ValueError(f"{name} is {source.dtype} {source.shape}, expected {target.dtype} {target.shape}")
    target[...] = source


def _starts(sizes: Array) -> Array:
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
