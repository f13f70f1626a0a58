"""The engine of SetNet: all parameters in one buffer, one step for each judgement (MATHS 8)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from omdml.engines.base import Array, Engine
from omdml.errors import CorruptError
from omdml.kernels.sets import walk as kernel
from omdml.kernels.sets.netvlad import Shape


class SetsEngine(Engine):
    """Assignment A, bias, centres c, reduction P, p0, and the logistic parameters w, b.

    Parameters
    ----------
    dims
        Dimension of each modality, in the order in which they lie side by side.
    start
        These parameters by name, and the factors ``scale`` (m,) of the modalities, all of one floating type. Copied.
    rule
        Hyperparameters.
    whiten
        Whether to keep moments of the vectors of judged sets.
    """

    remedy = "scale the features, or with step='ogd' take a lower eta"

    def __init__(self, dims: Mapping[str, int], start: Mapping[str, Array], rule: kernel.Rule, whiten: bool) -> None:
        self.rule = rule
        n = np.array(list(dims.values()), np.int64)
        (K, D), r = start["c"].shape, len(start["P"])
        blocks = np.cumsum([0, K * D + K, K * D, r * K * D + r, 2])
        self.shape = Shape(D, K, r, n, blocks)
        theta = np.concatenate([start[name].ravel() for name in ("A", "bias", "c", "P", "p0", "w", "b")])
        lengths = np.sqrt([kernel.square(theta[begin:end]) for begin, end in itertools.pairwise(blocks)])
        size = r if whiten else 0
        self.state: kernel.State
        state = kernel.State(
            theta=theta,
            velocity=np.zeros_like(theta),
            lengths=np.where(lengths > 0, lengths, 1.0),
            scale=start["scale"].copy(),
            sizes=np.array([K, r]),
            counts=np.zeros(4, np.int64),
            judged=np.zeros(1, np.int64),
            mean=np.zeros(size, theta.dtype),
            second=np.zeros((size, size), theta.dtype),
        )
        super().__init__(list(dims), state)
        self.gradient = np.zeros_like(theta)

    def _walk(self, rows: Array, addresses: Array, columns: Sequence[Array], scores: Array) -> int:
        ends, group_counts = columns
        return int(
            kernel.walk(
                rows[:, 0], ends, group_counts, addresses, self.shape, self.state, self.rule, self.gradient, scores
            )
        )

    def _rows_by_comparison(self, rows: Array, columns: Sequence[Array]) -> Sequence[Array]:
        """Row numbers of the elements of each judgement."""
        ends, group_counts = columns
        return np.split(rows[:, 0], ends[group_counts.sum(axis=1).cumsum() - 1])[:-1]

    def _copies_for_undo(self, count: int) -> list[tuple[Array, Array]]:
        """Nothing for one judgement with capped steps: if it cannot be learned, the walk leaves the state alone."""
        return [] if count == 1 and self.rule.exact else super()._copies_for_undo(count)

    def parameters(self) -> dict[str, Array]:
        """Copies of A, bias, c, P, p0, w, b and scale, as learned so far."""
        D, K, r = self.shape.D, self.shape.K, self.shape.r
        shapes = {"A": (K, D), "bias": (K,), "c": (K, D), "P": (r, K * D), "p0": (r,), "w": (), "b": ()}
        ends = np.cumsum([np.prod(shape, dtype=np.int64) for shape in shapes.values()])
        flat = np.split(self.state.theta.copy(), ends[:-1])
        learned = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), flat, strict=True)}
        return {**learned, "scale": self.state.scale.copy()}

    def moments(self) -> tuple[int, Array, Array]:
        """The number of judged sets in the moments, the mean (r,) of their vectors, and their covariance (r, r)."""
        mean = self.state.mean.astype(np.float64)
        return int(self.state.judged[0]), mean, self.state.second - np.outer(mean, mean)

    @staticmethod
    def sizes(tensors: Mapping[str, Array]) -> tuple[int, int]:
        """K and r of a state; raises CorruptError if the state has no such numbers."""
        sizes = tensors.get("sizes")
        if sizes is None or sizes.shape != (2,) or sizes.dtype != np.int64 or sizes.min() < 1:
            raise CorruptError("state of setnet has no valid 'sizes', expected two int64 of at least 1: K and r")
        return int(sizes[0]), int(sizes[1])
