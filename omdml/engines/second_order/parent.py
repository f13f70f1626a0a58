"""The metric of another model that a DCA model begins with, how it is fitted, and how far it is trusted (MATHS 15)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsymm, dtrsm
from scipy.linalg.lapack import dpotrf

from omdml.blas import one_blas_thread
from omdml.engines.base import Array, fill
from omdml.engines.second_order.experts import FADED
from omdml.engines.second_order.moments import LEARNED, ROUNDING
from omdml.engines.second_order.near_last import AllPairs
from omdml.engines.second_order.state import State
from omdml.kernels.second_order.experts import trusted
from omdml.kernels.shared.counts import VERSION
from omdml.metrics.cosine import CosineMetric

# Share and matrix (r, D) of each expert of a metric.
Experts = dict[str, tuple[float, Array]]
# Prefix of the parent's arrays in a state. Names of modalities have no slash.
PREFIX = "parent/"
# Earlier states hold sums of plain differences of margins. A margin lies between -4 and 4, so these are at most 8.
LARGEST_SQUARE = 64.0
# What changes as the model learns.
CHANGING = ("fitted", "trust")
# That near pairs differ alike along all of the parent's directions counts as much as this many near pairs.
ALIKE = 50.0


class Parent(NamedTuple):
    """The metric that another model served when this one began. Only ``fitted`` and ``trust`` ever change."""

    # Rows of the parent's learned experts, one expert after the other.
    rows: Array  # (p, D)
    # Number of rows of each expert, in the order of LEARNED.
    sizes: Array  # (2,)
    # Share of the plain coordinates, then of each learned expert.
    shares: Array  # (3,)
    # The parent's version.
    version: Array  # (1,)
    # The rows that the last refresh fitted to the model's own near pairs, with these sizes and shares.
    fitted: Array  # (p, D)
    # Two choices, see :func:`omdml.kernels.second_order.experts.trusted`: of the parent, fitted or not, beside the
    # model's own metric; and of the parent as it was beside the fitted one.
    trust: Array  # (2, 5)

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
        if max(map(len, rows)) > len(mean):
            # Compiled code has working space for no more.
            raise ValueError(f"an expert has more rows than the {len(mean)} numbers of an item")
        shares = [metric.shares.get(name, 0.0) for name in ("plain", *LEARNED)]
        return cls(
            rows=np.concatenate(rows),
            fitted=np.concatenate(rows),
            sizes=np.array([len(array) for array in rows], np.int64),
            shares=np.array(shares),
            version=np.array([version], np.int64),
            trust=np.zeros((2, 5)),
        )

    @classmethod
    def absent(cls, mean: Array) -> Parent:
        """A stand-in for no parent, with an empty ``trust``: compiled code needs an argument of the same type."""
        return cls(
            rows=np.zeros((0, len(mean)), mean.dtype),
            fitted=np.zeros((0, len(mean)), mean.dtype),
            sizes=np.zeros(len(LEARNED), np.int64),
            shares=np.zeros(1 + len(LEARNED)),
            version=np.zeros(1, np.int64),
            trust=np.zeros((0, 5)),
        )

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], D: int, dtype: np.dtype[np.generic]) -> Parent | None:
        """The parent in these arrays of a state, None if it has none; raises KeyError or ValueError."""
        if not any(name.startswith(PREFIX) for name in tensors):
            return None
        if PREFIX + "fitted" not in tensors:
            # Before number 6 of the format the parent stayed as it was, and all comparisons were counted.
            trust = np.stack([np.append(tensors[PREFIX + "trust"], tensors["counts"][VERSION]), np.zeros(5)])
            tensors = {**tensors, PREFIX + "fitted": tensors[PREFIX + "rows"], PREFIX + "trust": trust}
        count = len(np.atleast_1d(tensors[PREFIX + "rows"]))
        parent = cls(
            rows=np.zeros((count, D), dtype),
            fitted=np.zeros((count, D), dtype),
            sizes=np.zeros(len(LEARNED), np.int64),
            shares=np.zeros(1 + len(LEARNED)),
            version=np.zeros(1, np.int64),
            trust=np.zeros((2, 5)),
        )
        for name in cls._fields:
            # Raises ValueError if shape or type differ.
            fill(getattr(parent, name), tensors[PREFIX + name], PREFIX + name)
        shares, sizes = parent.shares, parent.sizes
        if not (sizes.min() >= 0 and sizes.max() <= D and sizes.sum() == count and parent.version[0] >= 0):
            raise ValueError(f"{PREFIX}sizes are {sizes.tolist()}, of {count} rows of {D} numbers")
        if not (shares.min() >= 0 and abs(shares.sum() - 1) <= ROUNDING):
            raise ValueError(f"{PREFIX}shares are {shares.tolist()}, expected shares that add up to 1")
        for advantages, squares, weight, scored, counted in parent.trust.tolist():
            possible = advantages**2 <= weight * squares * (1 + ROUNDING) and squares <= LARGEST_SQUARE * weight
            if not (0 <= weight <= scored <= counted and possible):
                raise ValueError(f"{PREFIX}trust is {parent.trust.tolist()}: no advantages have these sums")
        return parent

    def to_tensors(self) -> dict[str, Array]:
        """The arrays as part of a state."""
        return {PREFIX + name: getattr(self, name) for name in self._fields}

    def experts(self, basis: Array, rows: Array | None = None) -> Experts:
        """Share and matrix of each expert that has one; the plain coordinates have the matrix ``basis``.

        The matrices are the parent's as they were, or these ``rows`` (p, D) in their place.
        """
        whole = self.rows if rows is None else rows
        matrices = dict(zip(LEARNED, np.split(whole, self.sizes.cumsum()[:-1]), strict=True))
        experts = {"plain": (float(self.shares[0]), basis)}
        experts |= {name: (float(share), matrices[name]) for name, share in zip(LEARNED, self.shares[1:], strict=True)}
        return {name: (share, matrix) for name, (share, matrix) in experts.items() if share > 0}

    def parts(self) -> dict[str, float]:
        """Shares of a model's own metric, of the parent as it was, and of the fitted one.

        A share below ``FADED`` is left out of what is served.
        """
        share, as_it_was = (float(trusted(trust)) for trust in self.trust)
        parts = {"own": 1 - share, "parent": share * as_it_was, "fitted": share * (1 - as_it_was)}
        parts = {name: part for name, part in parts.items() if part >= FADED}
        return {name: part / sum(parts.values()) for name, part in parts.items()}

    def share(self) -> float:
        """The share, from 0 to 1, of the parent, fitted or not, beside the model's own metric."""
        return float(trusted(self.trust[0]))


def mixed(parts: Mapping[str, float], experts: Mapping[str, Experts]) -> Experts:
    """Share and matrix of each expert of a mixture of metrics, given each metric's part and its experts.

    Names of experts that are not the model's own begin with the name of their metric. The plain coordinates are the
    same in all metrics, so their shares are added.
    """
    combined: Experts = {}
    for metric, part in parts.items():
        for name, (share, matrix) in experts[metric].items():
            whole = name if metric == "own" or name == "plain" else f"{metric} {name}"
            combined[whole] = combined.get(whole, (0.0, matrix))[0] + part * share, matrix
    return combined


def fitted_rows(parent: Parent, state: State, pairs: AllPairs) -> Array:
    """The parent's rows (p, D), fitted to the near pairs of the model itself (MATHS 15).

    A direction along which these near pairs differ much counts for less from then on.
    """
    fitted = [_fitted(rows, state, pairs) for rows in np.split(parent.rows, parent.sizes.cumsum()[:-1])]
    return np.concatenate(fitted)


def _fitted(rows: Array, state: State, pairs: AllPairs) -> Array:
    """The rows (k, D) of one expert: ``L^-1 A`` with ``L L' = (50 I + A N A' / s) / (50 + n)``, see MATHS 15."""
    count = float(pairs.moments.sums[0])
    if not len(rows) or not count:
        return rows
    A = rows.astype(np.float64)
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        over = A if state.sums_items or not len(state.basis) else A @ state.basis.T.astype(np.float64)
        # Coordinates that the parent leaves out come last. They need no product.
        used = 1 + int(np.flatnonzero(over.any(axis=0)).max(initial=0))
        over, near, new = over[:, :used], pairs.moments.near[:used, :used], pairs.near[:, :used] @ over[:, :used].T
        # BLAS stores matrices by columns: the lower triangle of the transpose is our upper triangle.
        scatter = pairs.weight * (over @ dsymm(1.0, near.T, over.T, lower=1)) + 0.5 * new.T @ new
        # Rows are scaled so that the parent's own near pairs had a variance of at most 1 along each.
        spread = min(1.0, float(scatter.trace()) / count / len(A))
        if not spread > 0:
            # The near pairs are alike by this expert.
            return rows
        # Relative to the spread, so that the rows stay about as long as they were, however alike the near pairs are.
        C = (ALIKE * np.eye(len(A)) + scatter / spread) / (ALIKE + count)
        L, failed = dpotrf(C, lower=1)
        fitted = dtrsm(1.0, L, A, lower=1).astype(rows.dtype)
    return rows if failed or not np.isfinite(fitted).all() else fitted


def same_parent(left: Parent | None, right: Parent | None) -> bool:
    """Whether both are the same metric of the same version, or both are None."""
    if left is None or right is None:
        return left is right
    constant = set(left._fields) - set(CHANGING)
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in constant)
