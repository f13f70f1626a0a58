"""The engine of Diagonal and Signed: one weight for each coordinate or group of coordinates (MATHS 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from omdml.engines.base import Array, Engine, near_and_far, starts
from omdml.kernels import diagonal as kernel


class DiagonalEngine(Engine):
    """Weights w of coordinates, or of groups of them, on all modalities side by side.

    Parameters
    ----------
    start
        The weights to begin with: (d_i,) for each modality, all of one floating type, equal within a group.
    rule
        Hyperparameters.
    group
        (sum d_i,) Number of the weight that each coordinate shares, without gaps; None: each has a weight of its own.
    """

    remedy = "scale the features, or with step='ogd' take a lower eta"

    def __init__(self, start: Mapping[str, Array], rule: kernel.Rule, group: Array | None = None) -> None:
        self.rule, self.group = rule, group
        n = np.array([len(weights) for weights in start.values()], np.int64)
        w, v = np.concatenate(list(start.values())), np.zeros(n.sum())
        # Coordinates of a group that lie side by side are a run, which the kernel adds up at once. Without groups there
        # are no runs, and ``folded`` is ``v`` itself.
        run_starts = run_groups = np.empty(0, np.int64)
        folded = v
        if group is not None:
            begin = np.flatnonzero(np.diff(group, prepend=-1))
            run_starts, run_groups = np.append(begin, len(group)), group[begin]
            w = w[np.unique(group, return_index=True)[1]]
            folded = np.zeros(len(w))
        self.shape = kernel.Shape(n, starts(n), run_starts, run_groups)
        self.work = kernel.Work(v, folded)
        self.state: kernel.State
        super().__init__(list(start), kernel.State(w=w, counts=np.zeros(4, np.int64)))

    def _walk(self, rows: Array, addresses: Array, columns: Sequence[Array], scores: Array) -> int:
        pairs = near_and_far(rows)
        return int(kernel.walk(pairs, *columns, addresses, self.shape, self.state, self.rule, self.work, scores))

    def weights(self) -> list[Array]:
        """w_i (d_i,): the weight of every coordinate."""
        flat = self.state.w.copy() if self.group is None else self.state.w[self.group]
        return np.split(flat, self.shape.starts[1:])
