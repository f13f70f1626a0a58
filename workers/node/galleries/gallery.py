"""Galleries of items: exact nearest neighbours under one metric, by a scan over one-byte codes and a proof."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from omdml.errors import MeasureError
from omdml.metrics import Metric
from omdml.metrics.cosine import UnitVectors
from omdml.retrieval.cells import Cells
from omdml.retrieval.codes import Candidates, Codes
from omdml.retrieval.distances import squared_distances
from omdml.retrieval.expansion import shares
from omdml.streams.protocols.index import PushedFilter
from omdml.workers.node.galleries.embedding import embedded_centred, squares_of

Array = NDArray[Any]
Features = Mapping[str, Array]
# The largest squared distance. Its parts are summed in any order, so they must stay far below infinity.
LARGEST = float(np.finfo(np.float32).max) / 4
# Queries that one scan answers.
AT_ONCE = 16
# Candidates that are compared at once. Of more, the likely ones are compared first, which rules out most of the others.
FEW = 100
# To try whether nearest rows will do as candidates for another metric: the number of rows that serve as queries, and
# how many nearest rows each of them gets.
PROBES, PROBED = AT_ONCE, 500
# At least this many rows of the nearest cells are compared exactly.
DEPTH = 200
# If a filter leaves a smaller share of the rows, the nearest cells may hold few of them: all rows are scanned.
FEW_MATCH = 0.1
# How far rounding may change a distance: embeddings are float32 sums of at most a few thousand terms.
REFINED_ROUNDING = 1 + 1e-5
# What sets are searched by.
VECTOR, AGGREGATE, ELEMENTS = "vector", "aggregate", "elements"


class NoEmbedding(MeasureError):
    """A query cannot be expanded under a metric without an embedding."""


class Query(NamedTuple):
    """A query for the nearest items.

    Parameters
    ----------
    rows
        Rows of the gallery whose mean is the query, unless there are ``features``. These rows are no answers.
    features
        Vectors (e, d) of each modality, scaled like the gallery's. Their mean is the query; usually e is 1. If sets are
        searched, each row is an element of the query.
    by, rerank
        How sets are searched, and how many are ranked again by their elements.
    among : (n,)
        True for rows that may be answers; None: all may.
    pushed
        What an index outside this process can apply of the filter that ``among`` comes from; None: nothing.
    named
        Names of items that are no answers, because they were put again after the gallery was made.
    place : (R,)
        Where the query lies among the embedded items, if an expansion moved it.
    old_place
        The same in the old gallery that proposes candidates.
    """

    rows: NDArray[np.int64]
    features: Features | None = None
    by: str = VECTOR
    rerank: int = 0
    among: NDArray[np.bool_] | None = None
    pushed: PushedFilter | None = None
    named: Sequence[str] = ()
    place: NDArray[np.float64] | None = None
    old_place: NDArray[np.float64] | None = None

    @property
    def by_elements(self) -> bool:
        """Whether sets' elements are looked at one by one."""
        return self.rerank > 0 or self.by == ELEMENTS

    def hide(self, *distances: Array) -> None:
        """Set the distance of each row that is no answer to infinity, in place."""
        for distance in distances:
            distance[self.rows] = np.inf
            if self.among is not None:
                distance[~self.among] = np.inf

    def table(self, features: Features) -> Features:
        """The query as a table of one row; ``features`` are the gallery's."""
        if self.features is not None:
            return {name: matrix.mean(axis=0, keepdims=True) for name, matrix in self.features.items()}
        return {name: matrix[self.rows].mean(axis=0, keepdims=True) for name, matrix in features.items()}


class Hits(NamedTuple):
    """Rows of a gallery, closest first (ties: lowest row first), and their squared learned distances."""

    rows: NDArray[np.int64]
    distances: NDArray[np.float64]


class Searchable(Protocol):
    """The items of a view under one metric, as queries are answered from them: embedded, scored, or over a bridge."""

    def nearest(self, query: Query, k: int) -> Hits | None:
        """The k closest rows, fewer if there are no more; None if the index cannot prove its answer.

        Raises MeasureError if float32 cannot hold a distance from the query.
        """

    def expanded(self, query: Query, count: int) -> Query | None:
        """The query moved towards its ``count`` nearest rows (MATHS 16); None as for ``nearest``.

        Raises NoEmbedding if the metric has none to move it in.
        """

    def parts(self, query: Query, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """What each part of the metric adds to the distances (n,) of these rows.

        Raises MeasureError if the distance is no sum of parts.
        """


class Index(Searchable, Protocol):
    """A gallery in this process that can be searched."""

    @property
    def work(self) -> int:
        """How many numbers a scan reads for one query."""

    @property
    def nbytes(self) -> int:
        """How many bytes of memory it takes."""


class Gallery:
    """Embedded items of a Euclidean metric.

    Parameters
    ----------
    features
        (n, d) a modality, scaled; read a chunk of rows at a time.
    units
        The unit vectors that each expert of the metric makes of the items, if there are any. The gallery keeps them,
        and is embedded by them.

    Raises
    ------
    CorruptError
        The metric embeds an item to a value that is not finite.
    """

    def __init__(
        self, metric: Metric, features: Features, task: str | None = None, units: UnitVectors | None = None
    ) -> None:
        self.metric, self.task = metric, task
        self.units = units
        self._embedded, self.centre = embedded_centred(metric, features, task, units)
        self.reach = float(np.sqrt(squares_of(self.embedding, 0).max(initial=0.0)))
        self.codes = Codes(self.embedding)
        self.cells: Cells | None = None
        self._probes: dict[int, tuple[Query, Hits]] = {}

    @property
    def embedding(self) -> NDArray[np.float32]:
        """The embedded items (n, R), a row for each item."""
        return self._embedded.rows

    @property
    def work(self) -> int:
        """How many numbers a scan reads for one query."""
        return self.embedding.size

    @property
    def nbytes(self) -> int:
        """How many bytes of memory it takes."""
        others = self.cells, self.units
        return self.embedding.nbytes + self.codes.nbytes + sum(part.nbytes for part in others if part)

    def grown(self, features: Features) -> Self:
        """The gallery of these items; the first of them are those that it has. Raises CorruptError."""
        have = len(self.embedding)
        more = self.metric.embed({name: matrix[have:] for name, matrix in features.items()}, self.task)
        more = (more - self.centre.astype(more.dtype)).astype(np.float32)
        squares = squares_of(more, have)
        grown = copy.copy(self)
        # The unit vectors lack the new rows.
        grown.units = None
        grown._embedded, grown.codes = self._embedded.grown(more), self.codes.grown(more)
        grown.reach = max(self.reach, float(np.sqrt(squares.max(initial=0.0))))
        # A copy, because probes of the grown gallery may find rows that this one lacks, and both may be tried at once.
        grown._probes = self._probes.copy()
        return grown

    def probe(self, number: int) -> tuple[Query, Hits]:
        """One of ``PROBES`` rows as a query, and the rows nearest to it, which are searched for only once."""
        if number not in self._probes:
            query = Query(np.array([number * (len(self.embedding) - 1) // (PROBES - 1)]))
            self._probes[number] = query, self.nearest(query, PROBED)
        return self._probes[number]

    @property
    def outside(self) -> int:
        """How many rows are in no cell of the index."""
        return len(self.embedding) - (self.cells.count if self.cells else 0)

    def with_cells(self) -> Self:
        """The same gallery, whose searches look at few cells: most of the nearest rows, compared exactly."""
        made = copy.copy(self)
        made.cells = Cells(self.embedding)
        return made

    def point(self, query: Query) -> NDArray[np.float64]:
        """The query's place (R,) among the embedded items."""
        if query.place is not None:
            return query.place
        if query.features is None:
            mean: NDArray[np.float64] = self.embedding[query.rows].mean(axis=0, dtype=np.float64)
            return mean
        embedded = self.metric.embed(query.features, self.task)
        point: NDArray[np.float64] = (embedded[0] if len(embedded) == 1 else embedded.mean(axis=0)) - self.centre
        return point

    def candidates(
        self,
        queries: Sequence[Query],
        points: NDArray[np.float64],
        k: int,
        radii: NDArray[np.float32] | None = None,
        widths: NDArray[np.float64] | float = 0.0,
        most: int | None = None,
    ) -> list[Candidates]:
        """The rows that can be among each query's k nearest.

        All queries, which lie at ``points`` (Q, R), ask among the same rows. ``radii`` (n,) and ``widths`` (one a
        query) say how far rows, with their codes, and queries may be from where they should be. The list is empty if a
        query has more rows than ``most``. Raises MeasureError if float32 cannot hold a distance.
        """
        for norm in np.sqrt(np.einsum("ij,ij->i", points, points)).tolist():
            if not (self.reach + norm) ** 2 < LARGEST:
                raise MeasureError(f"its embedding has length {norm:.3g}, whose square float32 cannot hold")
        hidden, among = [np.sort(query.rows) for query in queries], queries[0].among
        if self.cells and (among is None or np.count_nonzero(among) > FEW_MATCH * len(among)):
            return [self._in_cells(self.cells, *asked, k, among) for asked in zip(points, hidden, strict=True)]
        return self.codes.candidates(points, k, among, hidden, radii, widths, most=most)

    def _in_cells(
        self,
        cells: Cells,
        point: NDArray[np.float64],
        hidden: NDArray[np.int64],
        k: int,
        among: NDArray[np.bool_] | None,
    ) -> Candidates:
        """What the nearest cells hold, and the nearest of the rows that are in no cell."""
        depth = max(DEPTH, 2 * k)
        near = cells.nearest(point, depth + len(hidden), among)
        near = near[~np.isin(near, hidden)]
        if len(near) < depth // 2:
            # What the filter leaves may lie in other cells, or more rows are asked for than these cells hold.
            return self.codes.candidates(point[None], depth, among, [hidden])[0]
        later = self.codes.candidates(point[None], depth, among, [hidden], begin=cells.count)[0]
        rows = np.concatenate([near, later.rows])
        return Candidates(rows, np.zeros(len(rows)))

    def nearest(self, query: Query, k: int) -> Hits:
        """The k closest rows, proven: every row that can be one of them is compared in float64."""
        return self.nearest_each([query], k)[0]

    def nearest_each(self, queries: Sequence[Query], k: int) -> list[Hits]:
        """The same for several queries among the same rows: one scan answers ``AT_ONCE`` of them."""
        answers = []
        for start in range(0, len(queries), AT_ONCE):
            part = queries[start : start + AT_ONCE]
            points = np.stack([self.point(query) for query in part])
            for point, candidates in zip(points, self.candidates(part, points, k), strict=True):
                answers.append(closest_of(candidates, k, partial(self._squared_distances, point=point)))
        return answers

    def _squared_distances(self, rows: NDArray[np.int64], point: Array) -> NDArray[np.float64]:
        return squared_distances(self.embedding, rows, point)

    def expanded(self, query: Query, count: int) -> Query:
        """The query moved towards its nearest items, whatever may be answered."""
        point, hits = self.point(query), self.nearest(query, count)
        nearest = self.embedding[hits.rows]
        return query._replace(place=shares(point, nearest) @ np.concatenate([point[None], nearest]))

    def parts(self, query: Query, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """Squared distances by the metric's parts."""
        return by_columns(self.metric.columns(self.task), self.embedding[rows] - self.point(query))


class ScoredGallery:
    """Items under a metric that has no embedding: each query is scored against every one."""

    def __init__(self, metric: Metric, features: Features, task: str | None = None) -> None:
        self.metric, self.task, self.features = metric, task, features
        self.work = sum(matrix.size for matrix in features.values())
        self.nbytes = 0

    def grown(self, features: Features) -> ScoredGallery:
        """The gallery of these items; the first of them are those that it has."""
        return ScoredGallery(self.metric, features, self.task)

    def nearest(self, query: Query, k: int) -> Hits:
        """The k rows of highest score; a distance is minus the score, and may be negative."""
        scores = self.metric.score(query.table(self.features), self.features, self.task)
        if not np.isfinite(scores).all():
            raise MeasureError("its score of an item is not finite")
        distances = -np.asarray(scores, np.float64)
        query.hide(distances)
        rows = lowest(distances, k)
        return closest(rows, distances[rows], k)

    def expanded(self, query: Query, count: int) -> Query:
        """Raise NoEmbedding: this metric scores pairs, and has no embedding to move a query in."""
        raise NoEmbedding(f"a {self.metric.kind} metric has no embedding in which a query could be expanded")

    def parts(self, query: Query, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """Minus what each part adds to the score; may be negative, as scores may."""
        items = {name: matrix[rows] for name, matrix in self.features.items()}
        scores = self.metric.score_parts(query.table(self.features), items, self.task)
        return {name: -np.asarray(part, np.float64) for name, part in scores.items()}


def by_columns(columns: Mapping[str, int], differences: Array) -> dict[str, NDArray[np.float64]]:
    """Squared lengths of the parts of these rows: this many columns each."""
    blocks = np.split(np.asarray(differences, np.float64), np.cumsum(list(columns.values()))[:-1], axis=1)
    return {name: np.einsum("ij,ij->i", block, block) for name, block in zip(columns, blocks, strict=True)}


def closest_of(candidates: Candidates, k: int, exact: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> Hits:
    """The k closest candidates.

    ``exact`` says the squared distances of rows. Those of the likely ones leave few others that can be as close.
    """
    if len(candidates.rows) <= max(FEW, 2 * k):
        return closest(candidates.rows, exact(candidates.rows), k)
    likely = candidates.likely(k)
    first = closest(likely, exact(likely), k)
    near = candidates.within(math.sqrt(first.distances.max(initial=0.0)) * REFINED_ROUNDING)
    rows = np.union1d(likely, near)
    if len(rows) == len(likely):
        return first
    return closest(rows, exact(rows), k)


def lowest(distances: Array, k: int, slack: float = 0.0) -> NDArray[np.int64]:
    """Rows, rising, whose finite distance is at most ``slack`` above the k-th lowest."""
    if k >= len(distances):
        return np.flatnonzero(np.isfinite(distances))
    bound = np.partition(distances, k - 1)[k - 1] + slack
    return np.flatnonzero(distances <= min(bound, np.finfo(distances.dtype).max))


def closest(rows: NDArray[np.int64], distances: NDArray[np.float64], k: int) -> Hits:
    """The k closest of these rows, which rise; ties fall to the lowest. MeasureError if a distance is not finite."""
    if not np.isfinite(distances).all():
        raise MeasureError("its distance from an item is not finite")
    order = np.argsort(distances, kind="stable")[:k]
    return Hits(rows[order], distances[order])
