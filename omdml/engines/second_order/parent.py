"""The metric of another model that a DCA model begins with, and how far it is trusted (MATHS 15)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from omdml.engines.base import Array, fill
from omdml.engines.second_order.moments import LEARNED, ROUNDING
from omdml.kernels.second_order.experts import trusted
from omdml.metrics.cosine import CosineMetric

# Prefix of the parent's arrays in a state. Names of modalities have no slash.
PREFIX = "parent/"
# Earlier states hold sums of plain differences of margins. A margin lies between -4 and 4, so these are at most 8.
LARGEST_SQUARE = 64.0


class Parent(NamedTuple):
    """The metric that another model served when this one began. Only ``trust`` ever changes."""

    # Rows of the parent's learned experts, one expert after the other.
    rows: Array  # (p, D)
    # Number of rows of each expert, in the order of LEARNED.
    sizes: Array  # (2,)
    # Share of the plain coordinates, then of each learned expert.
    shares: Array  # (3,)
    # The parent's version.
    version: Array  # (1,)
    # See :func:`omdml.kernels.second_order.experts.trusted`.
    trust: Array  # (4,)

    @classmethod
    def of(cls, metric: CosineMetric, version: int, mean: Array, basis: Array) -> Parent:
        """The parent of a model with this mean (D,) and basis (d, D) or (0, D).

        Raises ValueError if the metric has other coordinates, or a parent itself.
        """
        if unknown := sorted(set(metric.experts) - {"plain", *LEARNED}):
            raise ValueError(f"its experts are {', '.join(unknown)}: it has a parent itself")
        plain = metric.experts.get("plain", basis)
        if metric.mean.dtype != mean.dtype or not (np.array_equal(metric.mean, mean) and np.array_equal(plain, basis)):
            raise ValueError("it began from different items, or in different coordinates")
        rows = [metric.experts.get(name, np.zeros((0, len(mean)), mean.dtype)) for name in LEARNED]
        shares = [metric.shares.get(name, 0.0) for name in ("plain", *LEARNED)]
        return cls(
            rows=np.concatenate(rows),
            sizes=np.array([len(array) for array in rows], np.int64),
            shares=np.array(shares),
            version=np.array([version], np.int64),
            trust=np.zeros(4),
        )

    @classmethod
    def absent(cls, mean: Array) -> Parent:
        """A stand-in for no parent, with an empty ``trust``: compiled code needs an argument of the same type."""
        return cls(
            rows=np.zeros((0, len(mean)), mean.dtype),
            sizes=np.zeros(len(LEARNED), np.int64),
            shares=np.zeros(1 + len(LEARNED)),
            version=np.zeros(1, np.int64),
            trust=np.zeros(0),
        )

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], D: int, dtype: np.dtype[np.generic]) -> Parent | None:
        """The parent in these arrays of a state, None if it has none; raises KeyError or ValueError."""
        if not any(name.startswith(PREFIX) for name in tensors):
            return None
        count = len(np.atleast_1d(tensors[PREFIX + "rows"]))
        parent = cls(
            rows=np.zeros((count, D), dtype),
            sizes=np.zeros(len(LEARNED), np.int64),
            shares=np.zeros(1 + len(LEARNED)),
            version=np.zeros(1, np.int64),
            trust=np.zeros(4),
        )
        for name in cls._fields:
            # Raises ValueError if shape or type differ.
            fill(getattr(parent, name), tensors[PREFIX + name], PREFIX + name)
        shares, (advantages, squares, weight, scored) = parent.shares, parent.trust.tolist()
        if not (parent.sizes.min() >= 0 and parent.sizes.sum() == count and parent.version[0] >= 0):
            raise ValueError(f"{PREFIX}sizes are {parent.sizes.tolist()}, of {count} rows")
        if not (shares.min() >= 0 and abs(shares.sum() - 1) <= ROUNDING):
            raise ValueError(f"{PREFIX}shares are {shares.tolist()}, expected shares that add up to 1")
        possible = advantages**2 <= weight * squares * (1 + ROUNDING) and squares <= LARGEST_SQUARE * weight
        if not (0 <= weight <= scored and possible):
            raise ValueError(f"{PREFIX}trust is {parent.trust.tolist()}: no advantages have these sums")
        return parent

    def to_tensors(self) -> dict[str, Array]:
        """The arrays as part of a state."""
        return {PREFIX + name: getattr(self, name) for name in self._fields}

    def experts(self, basis: Array) -> dict[str, tuple[float, Array]]:
        """Share and matrix of each expert that has one; the plain coordinates have the matrix ``basis``."""
        matrices = dict(zip(LEARNED, np.split(self.rows, self.sizes.cumsum()[:-1]), strict=True))
        experts = {"plain": (float(self.shares[0]), basis)}
        experts |= {name: (float(share), matrices[name]) for name, share in zip(LEARNED, self.shares[1:], strict=True)}
        return {name: (share, matrix) for name, (share, matrix) in experts.items() if share > 0}

    def beside(
        self, own: Mapping[str, tuple[float, Array]], share: float, basis: Array
    ) -> dict[str, tuple[float, Array]]:
        """Share and matrix of each expert: of a model's ``own``, and of its parent's, which get ``share`` in total."""
        total = share + (1 - share) * bool(own)
        combined = {name: ((1 - share) * part / total, matrix) for name, (part, matrix) in own.items()}
        for name, (part, matrix) in self.experts(basis).items():
            # The plain coordinates are the same for both, so their shares are added.
            before = combined["plain"][0] if name == "plain" and name in combined else 0.0
            combined[name if name == "plain" else f"parent {name}"] = before + share * part / total, matrix
        return combined

    def share(self, version: int) -> float:
        """The parent's share, from 0 to 1, beside a model that learned ``version`` comparisons."""
        return float(trusted(self.trust, version))


def same_parent(left: Parent | None, right: Parent | None) -> bool:
    """Whether both are the same metric of the same version, or both are None."""
    if left is None or right is None:
        return left is right
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in left._fields if name != "trust")
