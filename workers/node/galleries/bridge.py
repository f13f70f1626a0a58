"""Exact answers under a new metric from an old embedding, before the gallery is embedded again (MATHS 9).

Let X be the change of ``A = concat sqrt(theta_i) W_i``, and c any fixed point. Then every distance moves by little:
``| |A_new (p - q)| - |A_old (p - q)| | <= |X (p - c)| + |X (q - c)|``, and ``|X z|^2 <= sum_i |X_i|^2 |z_i|^2``. So
the old embedding, each of its distances widened by that, says which items can be among the k closest. Only these are
read and embedded under the new metric.
"""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
from numpy.typing import NDArray

from omdml.blas import one_blas_thread
from omdml.errors import CorruptError, MeasureError
from omdml.metrics import CHUNK_ROWS, ProjectionMetric
from omdml.retrieval.codes import Candidates
from omdml.retrieval.distances import squared_distances
from omdml.retrieval.expansion import shares
from omdml.workers.node.galleries.gallery import Features, Gallery, Hits, Query, by_columns, closest_of

# A scan may leave four items for each that is asked for, FEWEST, or a SHARE of the gallery, whichever is most. If more
# are left, the old metric answers.
FEWEST = 500
SHARE = 0.02
# Items that are searched for to see whether a bridge answers at all, and how many answers each search asks for.
PROBES, PROBED_K = 4, 10
# Bounds are float32 sums of at most a few thousand terms.
ROUNDING = 1 + 1e-5


class Spread:
    """How far every item lies from the middle of the catalogue, in each modality.

    Parameters
    ----------
    features
        (n, d) of each modality; read once, a chunk of rows at a time.
    """

    def __init__(self, features: Features) -> None:
        self.names = tuple(features)
        self.middle = {name: matrix[:CHUNK_ROWS].mean(axis=0, keepdims=True) for name, matrix in features.items()}
        count = len(next(iter(features.values())))
        # Distances from the middle, a column for each modality.
        self.distances = np.empty((count, len(self.names)), np.float32)
        for start in range(0, count, CHUNK_ROWS):
            self.distances[start : start + CHUNK_ROWS] = self.of(
                {name: matrix[start : start + CHUNK_ROWS] for name, matrix in features.items()}
            )

    def grown(self, features: Features) -> Spread:
        """The spread of these items; the first of them are those that it has."""
        more = self.of({name: features[name][len(self.distances) :] for name in self.names})
        grown = copy.copy(self)
        grown.distances = np.concatenate([self.distances, more])
        return grown

    def of(self, table: Features) -> NDArray[np.float32]:
        """Distances (n, m) of these rows from the middle."""
        centred = [table[name] - self.middle[name] for name in self.names]
        # Squares of features below 1e-19 are too small for float32.
        squares = [np.einsum("ij,ij->i", factor, factor, dtype=np.float64) for factor in centred]
        return np.sqrt(np.stack(squares, axis=1)).astype(np.float32)


def change_norms(old: ProjectionMetric, new: ProjectionMetric) -> dict[str, float]:
    """Upper bounds of the spectral norm of ``sqrt(theta_new) W_new - sqrt(theta_old) W_old``, for each modality."""
    norms = {}
    with one_blas_thread():
        for name, matrix in new.matrices.items():
            change = np.sqrt(new.weights[name]) * matrix.astype(np.float64)
            change -= np.sqrt(old.weights[name]) * old.matrices[name].astype(np.float64)
            gram = change @ change.T if change.shape[0] <= change.shape[1] else change.T @ change
            norms[name] = float(np.sqrt(max(np.linalg.eigvalsh(gram)[-1], 0.0))) * ROUNDING
    return norms


class Bridge:
    """Answers under the ``new`` metric with the help of a gallery that was embedded under the ``old`` one.

    Both metrics have the same shapes; ``features`` and ``spread`` belong to the items of ``gallery``. Answers are exact
    as far as float32 embeddings are: their rounding is not part of the bounds.

    Raises
    ------
    CorruptError
        The new metric is so far away that float32 cannot hold the distance.
    """

    def __init__(
        self, gallery: Gallery, old: ProjectionMetric, new: ProjectionMetric, features: Features, spread: Spread
    ) -> None:
        self.gallery, self.metric, self.features, self.spread = gallery, new, features, spread
        norms = change_norms(old, new)
        self._squared_norms = np.array([norms[name] for name in spread.names]) ** 2
        self._radii = self._widened(gallery.codes.radii, spread.distances)

    @property
    def work(self) -> int:
        """How many numbers a scan reads for one query."""
        return self.gallery.work + FEWEST * sum(self.metric.dims.values())

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the bridge takes."""
        return self.gallery.nbytes + self._radii.nbytes

    def grown(self, gallery: Gallery, features: Features, spread: Spread) -> Bridge:
        """The bridge of these items; the first of them are those that it has."""
        grown = copy.copy(self)
        grown.gallery, grown.features, grown.spread = gallery, features, spread
        count = len(self._radii)
        new_radii = self._widened(gallery.codes.radii[count:], spread.distances[count:])
        grown._radii = np.concatenate([self._radii, new_radii])
        return grown

    def holds(self) -> bool:
        """Whether queries can be answered under the new metric. A few items of the gallery are tried."""
        rows = np.linspace(0, len(self._radii) - 1, PROBES).astype(np.int64)
        queries = [Query(rows[place : place + 1]) for place in range(PROBES)]
        try:
            return all(self._candidates(query, query.table(self.features), PROBED_K) for query in queries)
        except MeasureError:
            return False

    def nearest(self, query: Query, k: int) -> Hits | None:
        """The k closest rows under the new metric; None if too many items could be among them."""
        table = query.table(self.features)
        candidates = self._candidates(query, table, k)
        return closest_of(candidates[0], k, partial(self._refined, table=table)) if candidates else None

    def _candidates(self, query: Query, table: Features, k: int) -> list[Candidates]:
        """The rows that could be among the k closest to a query with these features; none if they are too many."""
        # Both ends of a distance move: a row by at most its radius, the query by at most this width. A row whose old
        # distance, minus both, is above the k-th smallest old distance plus both cannot be an answer.
        width = self._width(self.spread.of(table)).astype(np.float64)
        # What is left is read and embedded one by one, which costs more for each row than a scan. If the metric moved
        # so far that many rows remain, the scan ends early: the caller then answers by the version before.
        most = max(4 * k, FEWEST, int(SHARE * len(self._radii)))
        points = self.gallery.point(query)[None]
        return self.gallery.candidates([query], points, k, self._radii, width, most)

    def expanded(self, query: Query, count: int) -> Query | None:
        """The query moved towards its nearest items under the new metric.

        The metric is linear, so the query's features are moved instead of its embedding.
        """
        hits = self.nearest(query, count)
        if hits is None:
            return None
        query_table = query.table(self.features)
        table = {name: np.concatenate([query_table[name], self.features[name][hits.rows]]) for name in self.metric.dims}
        embedded = self.metric.embed(table) - self.metric.embed(self.spread.middle)
        weights = shares(embedded[0], embedded[1:])
        moved = {name: (weights @ x)[None].astype(np.float32) for name, x in table.items()}
        return query._replace(features=moved)

    def parts(self, query: Query, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """Squared distances by the new metric's parts."""
        embedded = self.metric.embed({name: matrix[rows] for name, matrix in self.features.items()})
        point = self.metric.embed(query.table(self.features))[0].astype(np.float64)
        return by_columns(self.metric.columns(), embedded - point)

    def _widened(self, radii: NDArray[np.float32], distances: NDArray[np.float32]) -> NDArray[np.float32]:
        """How far rows' codes, which are within ``radii`` of the old embedding, may be from the new one."""
        widened: NDArray[np.float32] = (radii + self._width(distances)) * np.float32(ROUNDING)
        if not np.isfinite(widened).all():
            raise CorruptError("the metric moved further than float32 can say: it diverged, roll back")
        return widened

    def _width(self, distances: NDArray[np.float32]) -> NDArray[np.float32]:
        # float64 holds the square of any float32. einsum converts as it goes, without a copy of the distances.
        squares = np.einsum("ij,ij,j->i", distances, distances, self._squared_norms, dtype=np.float64)
        width: NDArray[np.float32] = np.sqrt(squares).astype(np.float32) * np.float32(ROUNDING)
        return width

    def _refined(self, rows: NDArray[np.int64], table: Features) -> NDArray[np.float64]:
        """Squared distances of these rows under the new metric."""
        embedded = self.metric.embed({name: matrix[rows] for name, matrix in self.features.items()})
        point = self.metric.embed(table)[0].astype(np.float64)
        return squared_distances(embedded, np.arange(len(rows)), point)
