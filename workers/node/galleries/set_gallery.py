"""Sets to search in: one vector for each set, and greedy matching of elements for exact ones (MATHS 8; SETNET 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CorruptError, MeasureError
from omdml.metrics import SetMetric
from omdml.workers.node.galleries.gallery import (
    AGGREGATE,
    ELEMENTS,
    Array,
    Features,
    Hits,
    NoEmbedding,
    Query,
    closest,
    lowest,
)


class SetGallery:
    """Sets of items under a metric of sets. A query's ``features`` are its elements, a row each.

    Parameters
    ----------
    features
        (n, d) of each modality, scaled; read some rows at a time.
    sets
        Row numbers of each set's elements.

    Raises
    ------
    CorruptError
        The metric embeds a set to a value that is not finite.
    """

    def __init__(self, metric: SetMetric, features: Features, sets: Sequence[NDArray[np.int64]]) -> None:
        self.metric, self.features = metric, features
        self.vectors = metric.embed_sets(features, sets)
        if not np.isfinite(self.vectors).all():
            place = int(np.flatnonzero(~np.isfinite(self.vectors).all(axis=1))[0])
            raise CorruptError(f"the metric embeds set {place} to values that are not finite: it diverged, roll back")
        self.ends = np.cumsum([len(rows) for rows in sets])
        self._rows, self._members = np.unique(np.concatenate(sets), return_inverse=True)
        self.work = self.vectors.size
        self.nbytes = self.vectors.nbytes + len(self._rows) * self.metric.size * self.vectors.itemsize

    @cached_property
    def elements(self) -> Array:
        """Vectors of the items that are in sets, made when a query first asks for them."""
        return self.metric.embed({name: matrix[self._rows] for name, matrix in self.features.items()})

    def nearest(self, query: Query, k: int) -> Hits:
        """The k sets of highest score; a distance is minus the score.

        ``by`` says what a score is. ``vector``: the sum of the scores of the query's elements. ``aggregate``: the score
        of one vector for all of them. ``elements``: greedy matching with each set's elements by their cosines. If
        ``rerank`` is N, the best N sets are ordered again by that matching.
        """
        assert query.features is not None
        all_sets = np.arange(len(self.vectors))
        if query.by == ELEMENTS:
            distances = self._unmatched(query.features, all_sets)
        else:
            distances = -self.metric.score_sets(self._asked(query), self.vectors).astype(np.float64)
        query.hide(distances)
        best = max(k, query.rerank)
        rows = lowest(distances, best)
        if query.rerank:
            rows = np.sort(closest(rows, distances[rows], best).rows)
            return closest(rows, self._unmatched(query.features, rows), k)
        return closest(rows, distances[rows], k)

    def expanded(self, query: Query, count: int) -> Query:
        """Raise NoEmbedding: a query for sets has several elements, and no single place."""
        raise NoEmbedding("a query for sets has several elements, and no single place to expand")

    def parts(self, query: Query, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """Raise MeasureError: a distance of sets has no parts by modality."""
        raise MeasureError("a metric of sets compares a set as a whole: its score is no sum over modalities or experts")

    def _asked(self, query: Query) -> Array:
        """The vectors that sets are scored by: (Q, r), or (1, r)."""
        assert query.features is not None
        count = len(next(iter(query.features.values())))
        if query.by == AGGREGATE:
            return self.metric.embed_sets(query.features, [np.arange(count)])
        return self.metric.embed(query.features)

    def _unmatched(self, features: Features, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Minus the sums of cosines, by greedy matching, of the sets at these places."""
        parts = [self._members[begin:end] for begin, end in zip(self._begins[places], self.ends[places], strict=True)]
        members, sizes = np.concatenate([self._members[:0], *parts]), [len(part) for part in parts]
        return -self.metric.match(self.metric.embed(features), self.elements[members], np.array(sizes, np.int64))

    @property
    def _begins(self) -> NDArray[np.int64]:
        return np.concatenate([[0], self.ends[:-1]])
