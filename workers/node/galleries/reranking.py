"""Answers under a new metric to which no bridge leads: candidates of the old gallery, ranked again (MATHS 9).

The old gallery finds the rows that are nearest under its own metric, with filters and exclusions as everywhere. These
are read, embedded under the new metric, and ranked exactly by it. No proof says that no other row is nearer. So it is
tried first with some items, whose nearest must lie far in front among the candidates.
"""

from __future__ import annotations

import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from omdml.errors import MeasureError
from omdml.metrics import Metric
from omdml.retrieval.distances import squared_distances
from omdml.retrieval.expansion import shares
from omdml.workers.node.galleries.gallery import (
    PROBED,
    PROBES,
    Array,
    Features,
    Gallery,
    Hits,
    Query,
    by_columns,
    closest,
)

# A search takes DEPTH candidates, or FOR_EACH for each item that is asked for if these are more. If they are more than
# MOST, the version before answers.
DEPTH, FOR_EACH, MOST = PROBED, 20, 5_000
# How many answers each search asks for that tries whether candidates will do.
PROBED_K = 10
# Of these answers at most this share may lie behind the first quarter of the candidates. Then few of the nearest lie
# behind all of them (benchmarks/searches/moved.py measures the recall).
BEHIND, FRONT = 0.01, DEPTH // 4
# This embeds PROBES * DEPTH rows. Smaller galleries are embedded whole in a few times as long.
LEAST_ROWS = 40_000
# Rows whose mean embedding stands for that of all.
SAMPLE = 1_000


class Reranking:
    """Answers under a new ``metric`` of a ``task`` from candidates of a gallery that an older ``version`` embedded.

    ``features`` belong to the items of ``gallery``. It holds nothing of its own: the features of candidates are read
    for each search.
    """

    def __init__(
        self, gallery: Gallery, metric: Metric, features: Features, version: int, task: str | None = None
    ) -> None:
        self.gallery, self.metric, self.features, self.version, self.task = gallery, metric, features, version, task

    @property
    def work(self) -> int:
        """How many numbers a scan reads for one query."""
        return self.gallery.work + DEPTH * sum(self.metric.dims.values())

    @property
    def nbytes(self) -> int:
        """Bytes of memory: those of the gallery."""
        return self.gallery.nbytes

    def grown(self, gallery: Gallery, features: Features) -> Reranking:
        """The same with these items; the first of them are those that it has."""
        grown = copy.copy(self)
        grown.gallery, grown.features = gallery, features
        return grown

    def holds(self) -> bool:
        """Whether the nearest under the new metric are among the candidates. Some items of the gallery are tried."""
        if len(self.gallery.embedding) < LEAST_ROWS:
            return False
        behind = 0
        try:
            for number in range(PROBES):
                query, candidates = self.gallery.probe(number)
                hits = self._ranked(candidates, self._point(query), PROBED_K)
                behind += int(np.count_nonzero(np.isin(candidates.rows[FRONT:], hits.rows)))
                if behind > BEHIND * PROBES * PROBED_K:
                    return False
        except MeasureError:
            return False
        return True

    def nearest(self, query: Query, k: int) -> Hits | None:
        """The k closest of the candidates under the new metric.

        None if too many would have to be compared, or if the distance of one is not finite. Only some items were tried,
        so the metric may have diverged for others.
        """
        depth = max(DEPTH, FOR_EACH * k)
        if depth > MOST:
            return None
        try:
            candidates = self.gallery.nearest(query._replace(place=query.old_place), depth)
            return self._ranked(candidates, self._point(query), k)
        except MeasureError:
            return None

    def expanded(self, query: Query, count: int) -> Query | None:
        """The query moved towards its nearest items, under the new metric and as much in the old gallery."""
        hits = self.nearest(query, count)
        if hits is None:
            return None
        point, nearest = self._point(query), self._embedded(hits.rows)
        weights = shares(point - self._centre, nearest - self._centre)
        old = np.concatenate([self.gallery.point(query)[None], self.gallery.embedding[hits.rows]])
        return query._replace(place=weights @ np.concatenate([point[None], nearest]), old_place=weights @ old)

    def parts(self, query: Query, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """Squared distances by the new metric's parts."""
        return by_columns(self.metric.columns(self.task), self._embedded(rows) - self._point(query))

    @cached_property
    def _centre(self) -> NDArray[np.float64]:
        """About the mean embedding (R,) of the items."""
        rows = np.linspace(0, len(self.gallery.embedding) - 1, SAMPLE).astype(np.int64)
        centre: NDArray[np.float64] = self._embedded(rows).mean(axis=0, dtype=np.float64)
        return centre

    def _point(self, query: Query) -> NDArray[np.float64]:
        """The query's place under the new metric."""
        if query.place is not None:
            return query.place
        if query.features is None:
            embedded = self._embedded(query.rows)
        else:
            embedded = self.metric.embed(query.features, self.task)
        point: NDArray[np.float64] = embedded.mean(axis=0, dtype=np.float64)
        return point

    def _embedded(self, rows: NDArray[np.int64]) -> Array:
        return self.metric.embed({name: self.features[name][rows] for name in self.metric.dims}, self.task)

    def _ranked(self, candidates: Hits, point: NDArray[np.float64], k: int) -> Hits:
        rows = np.sort(candidates.rows)
        embedded = self._embedded(rows).astype(np.float32, copy=False)
        return closest(rows, squared_distances(embedded, np.arange(len(rows)), point), k)
