"""A gallery that the node does not hold: an index proposes candidates, which are compared under the live metric.

The node keeps embeddings only of rows that the index lacks. It reads the features of candidates from the catalogue, a
few hundred rows for each search. Candidates come from one version of the index, distances from one version of the
model, which may be a later one.

The metric's embedding is turned as a whole so that it lies as close as possible to what the index holds, by a sample
of items that are in both (the orthogonal Procrustes problem, as ``omdml sync`` turns one version to the next). So the
node needs neither the index's own version nor the rotation that it was written with.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from omdml.blas import one_blas_thread
from omdml.errors import CorruptError, OmdmlError
from omdml.metrics import CHUNK_ROWS, Metric
from omdml.retrieval.distances import squared_distances
from omdml.retrieval.expansion import shares
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.index import IndexAway, IndexMoved
from omdml.workers.node.galleries.candidates import TRIES, CandidateIndex, Held
from omdml.workers.node.galleries.gallery import Features, Gallery, Hits, Query, by_columns, closest

Result = TypeVar("Result")
# At least DEPTH candidates are compared. The index is asked for at most MOST.
DEPTH, MOST = 200, 2_000
# If the rows that a filter leaves have at most this many numbers, all of them are compared, and the index is not asked:
# about 10 ms of work.
FEW_NUMBERS = 1_280_000
# If less than half of the candidates may be answered, all rows that may be are compared, up to this many.
MOST_COMPARED = 100_000


class TooFewCandidates(OmdmlError):
    """Fewer candidates than were asked for may be answered."""

    reason = "too_few_candidates"


class Fitted(NamedTuple):
    """How a metric's embedding is turned to lie on what an index holds, and the rows that are not in there yet.

    ``centre`` is the mean embedding of the sample of items that this was learned from.
    """

    held: Held
    turn: NDArray[np.float64]
    centre: NDArray[np.float64]
    later: Gallery | None


class TwoStageGallery:
    """The first ``count`` rows of a catalogue, among which an index proposes candidates.

    Raises
    ------
    CorruptError
        The metric embeds an item to a value that is not finite.
    """

    # A search waits for a database, so it must never run on the event loop.
    work = 1 << 40

    def __init__(self, metric: Metric, catalogue: Catalogue, count: int, index: CandidateIndex) -> None:
        self.metric, self.index = metric, index
        self._catalogue, self._count = catalogue, count
        self._features = self._rows_of(catalogue, count)
        self._fitting = threading.Lock()
        self._fitted: Fitted | None = None
        self._embedded(np.arange(min(count, DEPTH)))
        if index.read:
            self.fitted()

    @property
    def nbytes(self) -> int:
        """How many bytes of memory it takes."""
        fitted = self._fitted
        if fitted is None:
            return 0
        return fitted.turn.nbytes + fitted.held.places.nbytes + (fitted.later.nbytes if fitted.later else 0)

    def grown(self, count: int) -> TwoStageGallery:
        """The gallery of this many rows; the first of them are those that it has. Raises CorruptError."""
        grown = copy.copy(self)
        grown._count, grown._fitting = count, threading.Lock()
        grown._features = self._rows_of(self._catalogue, count)
        fitted = self._fitted
        if fitted is not None:
            grown._fitted = fitted._replace(later=grown._later(fitted.held, fitted.later))
        return grown

    def fitted(self) -> Fitted:
        """The fit to what the index holds now, as far as is known; raises IndexAway, IndexRefused, CorruptError."""
        held = self.index.held()
        with self._fitting:
            if self._fitted is None or self._fitted.held is not held:
                self._fitted = Fitted(held, *self._turn(held), self._later(held, None))
            return self._fitted

    def run_search(self, search: Callable[[TwoStageSearch], Result]) -> Result:
        """Run a search on one version of the index. It begins again if the index was switched meanwhile.

        Raises IndexAway, IndexRefused, and what the search raises.
        """
        for _ in range(TRIES):
            try:
                return search(TwoStageSearch(self, self.fitted()))
            except IndexMoved:
                self.index.look()
        raise IndexAway(f"{self.index} was switched {TRIES} times during one search")

    def _turn(self, held: Held) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The rotation from this metric's embedding to the index, and the mean embedding (r,) of the sample."""
        rows = self._catalogue.rows(held.ids)
        in_both = (rows >= 0) & (rows < min(self._count, held.indexed.rows or 0))
        embedded = self._embedded(rows[in_both])
        # If all of the sample were deleted, the middle of the items is not known.
        centre = embedded.mean(axis=0) if len(embedded) else np.zeros(embedded.shape[1])
        return turn_of(embedded, held.places[in_both].astype(np.float64)), centre

    def _later(self, held: Held, before: Gallery | None) -> Gallery | None:
        """The rows that came after what the index holds; ``before`` holds the first of them."""
        first = held.indexed.rows or 0
        if self._count <= first:
            return None
        features = {name: matrix[first:] for name, matrix in self._features.items()}
        return before.grown(features) if before else Gallery(self.metric, features)

    def _rows_of(self, catalogue: Catalogue, count: int) -> Features:
        return {name: catalogue.features[name][:count] for name in self.metric.dims}

    def _embedded(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Embeddings (m, r) of these rows under the metric; raises CorruptError if one is not finite."""
        embedded = self.metric.embed({name: matrix[rows] for name, matrix in self._features.items()})
        if not np.isfinite(embedded).all():
            raise CorruptError("the metric embeds items to values that are not finite: it diverged, roll back")
        return np.asarray(embedded, np.float64)


class TwoStageSearch:
    """Answers one search: every candidate comes from the same version of the index."""

    def __init__(self, gallery: TwoStageGallery, fitted: Fitted) -> None:
        self._gallery, self._fitted = gallery, fitted

    @property
    def version(self) -> int:
        """The version that the index holds."""
        return self._fitted.held.indexed.version

    def nearest(self, query: Query, k: int) -> Hits:
        """The k closest of the candidates, compared exactly.

        Raises IndexMoved, IndexAway, IndexRefused, and TooFewCandidates.
        """
        gallery, point = self._gallery, self._point(query)
        among = np.ones(gallery._count, np.bool_) if query.among is None else query.among.copy()
        among[query.rows] = False
        matching = int(np.count_nonzero(among))
        if matching * sum(gallery.metric.dims.values()) <= FEW_NUMBERS:
            return self._closest(np.flatnonzero(among), point, k)
        depth = max(DEPTH, 2 * k)
        # Fewer would do only as long as the metric is near to what the index holds.
        enough = min(depth // 2, matching)
        rows = self._candidates(query, point, among, depth, matching, enough)
        if len(rows) < enough:
            if matching <= MOST_COMPARED:
                rows = np.flatnonzero(among)
            elif len(rows) < k:
                raise TooFewCandidates(
                    f"{len(rows):,} of the candidates from the index may be answered, and {k:,} are asked for: ask for "
                    f"fewer, or with a filter that leaves at most {MOST_COMPARED:,} items (now {matching:,} are left)"
                )
        return self._closest(rows, point, k)

    def expanded(self, query: Query, count: int) -> Query:
        """The query moved towards its nearest candidates."""
        point, hits, centre = self._point(query), self.nearest(query, count), self._fitted.centre
        nearest = self._gallery._embedded(hits.rows)
        weights = shares(point - centre, nearest - centre)
        return query._replace(place=weights @ np.concatenate([point[None], nearest]))

    def parts(self, query: Query, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """Squared distances by the metric's parts."""
        return by_columns(self._gallery.metric.columns(), self._gallery._embedded(rows) - self._point(query))

    def _point(self, query: Query) -> NDArray[np.float64]:
        """The query's place under the live metric."""
        if query.place is not None:
            return query.place
        if query.features is None:
            mean: NDArray[np.float64] = self._gallery._embedded(query.rows).mean(axis=0)
        else:
            mean = np.asarray(self._gallery.metric.embed(query.features), np.float64).mean(axis=0)
        return mean

    def _candidates(
        self,
        query: Query,
        point: NDArray[np.float64],
        among: NDArray[np.bool_],
        depth: int,
        matching: int,
        enough: int,
    ) -> NDArray[np.int64]:
        """Rows, rising, that the index proposes or that it does not have yet, and that may be answered."""
        gallery, (held, turn, _, later) = self._gallery, self._fitted
        index, place, pushed = gallery.index, (point @ turn).astype(np.float32), query.pushed
        # If a filter leaves a tenth of the items, about a tenth of the candidates remain.
        count = min(MOST, max(depth, int(depth * len(among) / matching)))
        rows = np.empty(0, np.int64)
        # Proposing more items costs an index less than filtering (deploy/VECTORS.md). The index filters only if too few
        # of the proposed items would match.
        if not pushed or MOST * matching >= enough * len(among):
            rows = self._answerable(index.nearest(held, place, count), among)
        if pushed and len(rows) < enough:
            ids = index.nearest_among(held, place, depth if pushed.whole else count, pushed.condition)
            rows = self._answerable(index.nearest(held, place, MOST) if ids is None else ids, among)
        if later:
            first = held.indexed.rows or 0
            later_query = Query(rows[:0], among=among[first:], place=point - later.centre)
            rows = np.concatenate([rows, first + later.nearest(later_query, depth).rows])
        return np.unique(rows)

    def _answerable(self, ids: Sequence[str], among: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The rows of these ids that may be answered."""
        rows = self._gallery._catalogue.rows(ids)
        rows = rows[(rows >= 0) & (rows < len(among))]
        answerable: NDArray[np.int64] = rows[among[rows]]
        return answerable

    def _closest(self, rows: NDArray[np.int64], point: NDArray[np.float64], k: int) -> Hits:
        parts = []
        for start in range(0, len(rows), CHUNK_ROWS):
            embedded = self._gallery._embedded(rows[start : start + CHUNK_ROWS]).astype(np.float32)
            parts.append(squared_distances(embedded, np.arange(len(embedded)), point))
        return closest(rows, np.concatenate(parts) if parts else np.empty(0), k)


def turn_of(here: NDArray[np.float64], there: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rotation (r, w) that brings points (m, r) as close as possible to others (m, w); no length changes.

    Zeros are appended to the narrower ones.
    """
    widths = here.shape[1], there.shape[1]
    cross = np.zeros((max(widths), max(widths)))
    with one_blas_thread():
        cross[: widths[0], : widths[1]] = here.T @ there
        left, _, right = np.linalg.svd(cross)
        turn: NDArray[np.float64] = (left @ right)[: widths[0], : widths[1]]
    return turn
