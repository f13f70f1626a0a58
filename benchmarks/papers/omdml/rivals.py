"""Peers of OMDML on one descriptor, learned from triplets: Euclidean distance, RCA, LMNN (written here) and OASIS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from benchmarks.papers.omdml.retrieval import Case, Scorer, near
from omdml import OASIS
from omdml.initial import start_matrices
from omdml.pooling import unit

Array = NDArray[Any]
RCA, LMNN, PUSH = "RCA", "LMNN", "LMNN without pull"
# LMNN's L has RANK rows. OASIS gets SQUARE principal directions.
RANK, SQUARE = 50, 256
# Variance below this share of the largest one counts as none.
NOTHING = 1e-12
# LMNN's first step moves L by this share of |L|. Its rate grows by this factor after a step that helped.
FIRST_STEP, GROWTH = 0.1, 1.1


def rca(x: Array, rows: Array) -> Array:
    """L (d, d) of relevant component analysis (Bar-Hillel et al., 2003): what differs within near pairs is whitened.

    Parameters
    ----------
    x : (n, d)
        On principal directions, as the authors advise: a direction in which near pairs do not differ stays out.
    rows : (T, 3)
        Triplets; each query with its relevant item is a chunklet of two.
    """
    near = x[rows[:, 0]] - x[rows[:, 1]]
    values, vectors = np.linalg.eigh(near.T @ near / len(near))
    used = values > NOTHING * values[-1]
    return (vectors * np.where(used, 1 / np.sqrt(np.where(used, values, 1.0)), 0.0)).T


def lmnn(x: Array, rows: Array, L: Array, looks: Sequence[int], pull: float = 1.0) -> list[Array]:
    """L (r, d) of large margin nearest neighbours (Weinberger and Saul, 2009), after each number of descents.

    The loss is the mean over triplets of ``pull D(q, r) + max(0, 1 + D(q, r) - D(q, s))``. The authors choose near
    pairs and impostors by label and distance; here the triplets say both, as they do to every competitor. The rate
    halves if the loss would rise, else it grows.
    """
    x, L = x.astype(np.float32), L.astype(np.float32)
    loss, slope = objective(x, rows, L, pull)
    rate = FIRST_STEP * float(np.linalg.norm(L) / np.linalg.norm(slope))
    results = []
    for step in range(1, max(looks) + 1):
        tried = L - rate * slope
        lower, steeper = objective(x, rows, tried, pull)
        if lower < loss:
            L, loss, slope, rate = tried, lower, steeper, rate * GROWTH
        else:
            rate /= 2
        if step in looks:
            results.append(L)
    return results


def objective(x: Array, rows: Array, L: Array, pull: float) -> tuple[float, Array]:
    """LMNN's loss, and its gradient (r, d) up to a factor."""
    q, r, s = rows.T
    z = x @ L.T
    a, b = z[q] - z[r], z[q] - z[s]
    close = np.einsum("ij,ij->i", a, a)
    push = np.maximum(0, 1 + close - np.einsum("ij,ij->i", b, b))
    active = (push > 0).astype(z.dtype)
    weights, ends = np.concatenate([pull + active, -active]), np.concatenate([r, s])
    edges = coo_array((weights, (np.concatenate([q, q]), ends)), shape=(len(x), len(x))).tocsr()
    laplacian = (edges.sum(axis=0) + edges.sum(axis=1))[:, None] * z - edges @ z - edges.T @ z
    return float((pull * close + push).mean()), laplacian.T @ x / len(rows)


class Vector(NamedTuple):
    """A descriptor, or all in one."""

    whole: Array  # (n, d)
    reduced: Array  # (n, SQUARE or d): on principal directions, as RCA and OASIS are usually run


def plain(vector: Vector, case: Case, values: Sequence[float]) -> list[Scorer]:
    """The scorer of Euclidean distance, which learns nothing and is the same for every value."""
    return [near(vector.whole.astype(float)) for _ in values]


def whitened(vector: Vector, case: Case, values: Sequence[float]) -> list[Scorer]:
    """RCA on each number of principal directions."""
    reduced = [vector.reduced[:, : int(size)] for size in values]
    return [near(z @ rca(z, case.rows).T) for z in reduced]


def pushed(vector: Vector, case: Case, values: Sequence[float], pull: float = 1.0) -> list[Scorer]:
    """LMNN after each number of descents, from PCA at unit spread."""
    x = vector.whole
    start = start_matrices({"x": x[case.train]}, {"x": min(RANK, x.shape[1])}, "pca", case.seed)["x"]
    return [near(x @ L.T.astype(float)) for L in lmnn(x, case.rows, start, [int(look) for look in values], pull)]


def unpulled(vector: Vector, case: Case, values: Sequence[float]) -> list[Scorer]:
    """LMNN without the term that pulls near pairs together."""
    return pushed(vector, case, values, pull=0.0)


def bilinear(vector: Vector, case: Case, values: Sequence[float]) -> list[Scorer]:
    """OASIS with each C, every item at unit norm, as OASIS's paper has it: a bilinear score ranks by length too."""
    z = unit(vector.reduced)

    def learned(C: float) -> Scorer:
        model = case.model(OASIS, {"x": z}, C=C)
        model.learn_many(case.rows, {"x": z})
        directions = z @ model.matrices["x"]
        return lambda queries: directions[queries] @ z.T

    return [learned(C) for C in values]


FITS: dict[str, Callable[[Vector, Case, Sequence[float]], list[Scorer]]] = {
    "Eucl": plain, RCA: whitened, LMNN: pushed, "OASIS": bilinear, PUSH: unpulled,
}  # fmt: skip
