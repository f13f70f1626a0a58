"""What a node answers from: one immutable view for each model, replaced as a whole when a snapshot goes live."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from omdml.errors import FeedbackError, MeasureError
from omdml.snapshot import Snapshot
from omdml.streams.catalogues.changes.change import ShownRows
from omdml.streams.catalogues.inline import scaled_vectors
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.index import IndexAway, IndexRefused
from omdml.streams.protocols.store import Pointer
from omdml.workers.node.galleries.bridge import Spread
from omdml.workers.node.galleries.gallery import (
    AGGREGATE,
    ELEMENTS,
    VECTOR,
    Hits,
    Index,
    Query,
    Searchable,
)
from omdml.workers.node.galleries.reranking import Reranking
from omdml.workers.node.galleries.two_stage import TooFewCandidates, TwoStageGallery, TwoStageSearch
from omdml.workers.node.searching.answers import DEFAULT_K, FIRST_PAGE, MAX_K, Answer, Answers, Found, Paging, single
from omdml.workers.node.searching.options import (
    PLAIN,
    Options,
    SearchError,
    expanded_each,
    explained,
    nearest_each,
    too_large,
)

MAX_QUERY_ITEMS = 1000


@dataclass(frozen=True)
class View:
    """One snapshot, ready to answer.

    ``indexes`` holds an index for each task, under None that of the shared metric; tasks of one metric share an index.
    ``shown`` says which of the catalogue's rows are searched in, and which of these are items.
    ``made_at`` is in seconds since the epoch. Bridges can start from a view that has a ``spread``.
    ``origin`` is the view whose gallery this one answers from, None if it has its own.
    ``slow`` says that its gallery took long to embed, so that later views may answer from it at first.
    ``parent`` is the snapshot that answers for a model that has none.
    """

    pointer: Pointer
    snapshot: Snapshot
    catalogue: Catalogue
    shown: ShownRows
    indexes: Mapping[str | None, Index | TwoStageGallery]
    made_at: float
    spread: Spread | None = None
    origin: View | None = None
    parent: Snapshot | None = None
    slow: bool = False

    @property
    def complete(self) -> View:
        """The last view whose gallery was embedded whole."""
        return self.origin or self

    @property
    def names(self) -> Sequence[str]:
        """Ids of the items (or sets) that can be answered, in the order of the gallery's rows."""
        return self.catalogue.ids

    @cached_property
    def listed(self) -> Sequence[str]:
        """Ids of the items (or sets) that were not deleted."""
        alive = self._alive
        return self.names if alive is None else [self.names[row] for row in np.flatnonzero(alive).tolist()]

    @property
    def count(self) -> int:
        """How many rows a search looks at."""
        return self.shown.rows

    @property
    def position(self) -> int:
        """How many of the catalogue's changes the answers take into account."""
        return self.catalogue.shown.position if self.covers(self.catalogue) else self.shown.position

    def covers(self, catalogue: Catalogue) -> bool:
        """Whether this catalogue's items, as they are now, are the ones searched in."""
        shown = catalogue.shown
        return self.catalogue is catalogue and (self.shown.rows, self.shown.gone) == (shown.rows, shown.gone)

    @property
    def outdated(self) -> NDArray[np.int64]:
        """Rows that are items here, and that the catalogue has put again or deleted since."""
        now = self.catalogue.shown.alive
        if now is None or self.covers(self.catalogue):
            return np.empty(0, np.int64)
        gone = ~now[: self.count]
        return np.flatnonzero(gone if self._alive is None else gone & self._alive)

    @property
    def _alive(self) -> NDArray[np.bool_] | None:
        """Which of the indexes' rows still exist (n,); None: all do."""
        return self.shown.alive

    def _among_alive(self, queries: Sequence[Query]) -> Sequence[Query]:
        """The queries, restricted to rows that still exist."""
        alive = self._alive
        if alive is None:
            return queries
        return [query._replace(among=alive if query.among is None else query.among & alive) for query in queries]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the galleries take."""
        return sum(index.nbytes for index in {id(index): index for index in self.indexes.values()}.values())

    @property
    def two_stage(self) -> TwoStageGallery | None:
        """What answers from candidates of an index; None if the items are here."""
        index = self.complete.indexes[None]
        return index if isinstance(index, TwoStageGallery) else None

    @property
    def reranked(self) -> bool:
        """Whether candidates of an older version's gallery are ranked again."""
        return isinstance(self.indexes[None], Reranking)

    @property
    def work(self) -> int:
        """How many numbers a scan reads for one query."""
        return self.indexes[None].work

    def search(self, query: Query, k: int = DEFAULT_K, task: str | None = None, page: Paging = FIRST_PAGE) -> Answer:
        """The ``k`` closest items of a page under one snapshot; raises SearchError."""
        return single(self.search_each([query], k, task, page))

    def search_each(
        self,
        queries: Sequence[Query],
        k: int = DEFAULT_K,
        task: str | None = None,
        page: Paging = FIRST_PAGE,
        options: Options = PLAIN,
    ) -> Answers:
        """The same for several queries, which answer among the same items; raises SearchError."""
        began = time.perf_counter()
        if not 1 <= k <= MAX_K:
            raise SearchError(f"k is {k}, expected 1 to {MAX_K}", "bad_k")
        if not 0 <= page.offset <= MAX_K - k:
            raise SearchError(
                f"offset is {page.offset}, expected 0 to {MAX_K - k}: at most {MAX_K} together with k", "bad_k"
            )
        if len(page.exclude) > MAX_QUERY_ITEMS:
            message = f"{len(page.exclude)} ids to exclude, expected at most {MAX_QUERY_ITEMS}"
            raise SearchError(message, "invalid")
        hidden = len(page.exclude) + max(len(query.named) for query in queries)
        if task not in self.indexes:
            tasks = ", ".join(name for name in self.indexes if name is not None)
            raise SearchError(f"task {task!r}: model {self.snapshot.model!r} has {tasks or 'no tasks'}", "unknown_task")
        index, depth, candidates_version = self.indexes[task], page.offset + k + hidden, None
        if isinstance(index, TwoStageGallery):
            answers, candidates_version = self._answers_of_candidates(index, queries, depth, k, page, options)
        else:
            own_answers = self._answers(index, queries, depth, k, page, options)
            if own_answers is None:
                # One version answers all queries, even if this one could answer some of them.
                return self.complete.search_each(queries, k, task, page, options)
            answers = own_answers
            if isinstance(index, Reranking):
                candidates_version = index.version
        return Answers(
            model=self.snapshot.model,
            version=self.snapshot.version,
            serial=self.pointer.serial,
            took_s=time.perf_counter() - began,
            answers=answers,
            parent=self.parent.model if self.parent else None,
            parent_version=self.parent.version if self.parent else None,
            candidates_version=candidates_version,
        )

    def _answers_of_candidates(
        self, index: TwoStageGallery, queries: Sequence[Query], depth: int, k: int, page: Paging, options: Options
    ) -> tuple[list[list[Found]], int]:
        """The answers, and the version of the model that the index held for all of them; raises SearchError."""

        def answered(search: TwoStageSearch) -> tuple[list[list[Found]], int]:
            answers = self._answers(search, queries, depth, k, page, options)
            assert answers is not None
            return answers, search.version

        try:
            return index.run_search(answered)
        except (IndexAway, IndexRefused) as error:
            message = f"the candidates for model {self.snapshot.model!r} cannot be read: {error}"
            raise SearchError(message, "index_away") from error
        except TooFewCandidates as error:
            raise SearchError(str(error), error.reason) from error

    def _answers(
        self, index: Searchable, queries: Sequence[Query], depth: int, k: int, page: Paging, options: Options
    ) -> list[list[Found]] | None:
        """The items to answer each query with; None if the index cannot prove them. Raises SearchError."""
        try:
            expanded = expanded_each(index, queries, options.expand, self._alive)
            candidates = nearest_each(index, self._among_alive(expanded or []), depth)
        except MeasureError as error:
            raise SearchError(f"{too_large(queries)}: {error}", "not_finite") from error
        if expanded is None or candidates is None:
            return None
        answers = []
        for query, hits in zip(expanded, candidates, strict=True):
            rows, distances = self._shown(hits, {*page.exclude, *query.named}, slice(page.offset, page.offset + k))
            parts = explained(index, query, rows) if options.explain else None
            answers.append(self._in_answer(rows, distances, parts))
        return answers

    def _shown(self, hits: Hits, hidden: Set[str], part: slice) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The part of the hits that a page asks for, without what must not be answered."""
        if not hidden:
            return hits.rows[part], hits.distances[part]
        shown = np.array([self.names[row] not in hidden for row in hits.rows.tolist()], bool)
        return hits.rows[shown][part], hits.distances[shown][part]

    def _in_answer(
        self, rows: NDArray[np.int64], distances: NDArray[np.float64], parts: Sequence[dict[str, float]] | None
    ) -> list[Found]:
        ids, shares = self.names, parts or repeat(None, len(rows))
        columns = zip(rows.tolist(), distances.tolist(), shares, strict=True)
        return [Found(ids[row], distance, part) for row, distance, part in columns]

    def query(
        self,
        ids: Sequence[str] | None,
        features: Mapping[str, Sequence[float]] | None = None,
        by: str | None = None,
        rerank: int | None = None,
    ) -> Query:
        """The query for item ids, for features, or for the mean of both; raises SearchError."""
        if ids is None and features is None:
            raise SearchError("a query needs item ids, features, or both", "invalid")
        if ids is not None and features is not None:
            query = self.items_and_vectors(ids, features)
        else:
            query = self.items(ids) if ids is not None else self.vectors(features or {})
        return self.with_set_options(query, by, rerank)

    def items(self, ids: Sequence[str]) -> Query:
        """The query for the mean of these items; raises SearchError for an unknown one."""
        check_count(len(ids))
        rows = np.unique(self._rows(ids))
        if rows[-1] < self.count:
            return Query(rows)
        # Some were put since the gallery was embedded. The query is the mean of what each of them is embedded to.
        features = {name: matrix[rows] for name, matrix in self.catalogue.features.items()}
        return Query(rows[:0], features, named=tuple(ids))

    def items_and_vectors(self, ids: Sequence[str], raw: Mapping[str, Sequence[float]]) -> Query:
        """The query for the mean of these items and of one item's raw vectors; raises SearchError."""
        check_count(len(ids) + 1)
        rows, vectors = np.unique(self._rows(ids)), self.vectors(raw).features
        assert vectors is not None
        table = {name: np.concatenate([self.catalogue.features[name][rows], x]) for name, x in vectors.items()}
        named = tuple(ids) if rows[-1] >= self.count else ()
        return Query(rows[rows < self.count], table, named=named)

    def _rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Row numbers of these items; SearchError if one is unknown."""
        rows = self.catalogue.rows(ids)
        if rows.min() < 0:
            unknown = ids[int(rows.argmin())]
            message = f"the catalogue of model {self.snapshot.model!r} has no item {unknown!r}"
            raise SearchError(f"{message}: GET /items lists the ids", "unknown_item")
        return rows

    def with_set_options(self, query: Query, by: str | None, rerank: int | None) -> Query:
        """The query with options for sets; raises SearchError if the model has no sets."""
        if by is None and rerank is None:
            return query
        raise SearchError(
            f"`by` and `rerank` are for models of sets, and {self.snapshot.model!r} is not one", "invalid"
        )

    def vectors(self, raw: Mapping[str, Sequence[float]]) -> Query:
        """The query for one item's raw vectors, a modality each; raises SearchError if they do not fit."""
        try:
            return Query(np.empty(0, np.int64), scaled_vectors(self.catalogue, "the query's features", raw, some=True))
        except FeedbackError as error:
            dims = ", ".join(f"{name} ({dim} numbers)" for name, dim in self.catalogue.raw_dims.items())
            raise SearchError(f"{error}; send one or more of {dims}", error.reason) from error


@dataclass(frozen=True)
class SetView(View):
    """One snapshot of a metric of sets: answers are the catalogue's ``sets``, or its items if it has none."""

    sets: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    @cached_property
    def names(self) -> Sequence[str]:
        """The ids of the sets in the order of their rows; the ids of the items if there are no sets."""
        return list(self.sets) or self.catalogue.ids

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {name: place for place, name in enumerate(self.sets)}

    def covers(self, catalogue: Catalogue) -> bool:
        """Whether this catalogue's sets are the ones searched in."""
        return super().covers(catalogue) and self.sets is catalogue.sets

    @property
    def _alive(self) -> NDArray[np.bool_] | None:
        return None if self.sets else self.shown.alive

    def items(self, ids: Sequence[str]) -> Query:
        """The query for these elements, a set standing for its own; raises SearchError for an unknown one."""
        check_count(len(ids))
        sets = self.catalogue.sets
        rows = np.unique(np.concatenate([sets[item] if item in sets else self._rows([item]) for item in ids]))
        check_count(len(rows))
        places = [self._places[item] for item in ids if item in self._places] if self.sets else rows[rows < self.count]
        return Query(np.array(places, np.int64), {name: x[rows] for name, x in self.catalogue.features.items()})

    def items_and_vectors(self, ids: Sequence[str], raw: Mapping[str, Sequence[float]]) -> Query:
        """The query for these elements, and one of raw vectors; raises SearchError."""
        named, vectors = self.items(ids), self.vectors(raw).features
        assert named.features is not None
        assert vectors is not None
        return named._replace(features={name: np.concatenate([x, vectors[name]]) for name, x in named.features.items()})

    def with_set_options(self, query: Query, by: str | None, rerank: int | None) -> Query:
        """The query with options for sets; raises SearchError if they make no sense."""
        if by not in (None, VECTOR, AGGREGATE, ELEMENTS):
            raise SearchError(f"by is {by!r}, expected {VECTOR}, {AGGREGATE} or {ELEMENTS}", "invalid")
        if rerank is not None and not (1 <= rerank <= MAX_K and by != ELEMENTS):
            message = f"rerank is {rerank}, expected 1 to {MAX_K}, and none if every set is searched by its elements"
            raise SearchError(message, "invalid")
        return query._replace(by=by or VECTOR, rerank=rerank or 0)


def check_count(count: int) -> None:
    """Refuse a query of no item, or of too many."""
    if not 1 <= count <= MAX_QUERY_ITEMS:
        raise SearchError(f"{count} query items, expected 1 to {MAX_QUERY_ITEMS}", "invalid")
