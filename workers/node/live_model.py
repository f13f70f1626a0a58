"""What a node answers from: one immutable view a model, replaced as a whole when a snapshot goes live."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError, FeedbackError, MeasureError
from omdml.metrics import Metric, ProjectionMetric, SetMetric
from omdml.snapshot import Snapshot
from omdml.streams.catalogues.changes.change import Shown
from omdml.streams.catalogues.inline import scaled_item
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.store import Pointer
from omdml.workers.node.galleries.bridge import Bridge, Spread
from omdml.workers.node.galleries.gallery import (
    AGGREGATE,
    ELEMENTS,
    VECTOR,
    Features,
    Gallery,
    Hits,
    Index,
    Query,
    ScoredGallery,
)
from omdml.workers.node.galleries.set_gallery import SetGallery
from omdml.workers.node.searching.answers import DEFAULT_K, FIRST_PAGE, MAX_K, Answer, Answers, Found, Page, single
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
# An embedding that takes longer is made in the background, behind a bridge.
PATIENCE_S = 0.02


@dataclass(frozen=True)
class View:
    """One snapshot, ready to answer.

    ``indexes`` holds one index a task, None being the shared metric; tasks of one metric have the same index.
    ``shown`` says which of the catalogue's rows are searched in, and which of these are items.
    ``complete`` is the last view whose gallery was embedded whole: this one, or the one that a bridge starts from.
    ``made_at`` is in seconds since the epoch. Bridges can start from a view that has a ``spread``.
    ``parent`` is the snapshot that answers for a model that has none.
    """

    pointer: Pointer
    snapshot: Snapshot
    catalogue: Catalogue
    shown: Shown
    indexes: Mapping[str | None, Index]
    made_at: float
    spread: Spread | None = None
    origin: View | None = None
    parent: Snapshot | None = None

    @property
    def complete(self) -> View:
        """The last view whose gallery was embedded whole."""
        return self.origin or self

    @property
    def names(self) -> Sequence[str]:
        """Ids of what is answered, in the order of the gallery's rows."""
        return self.catalogue.ids

    @cached_property
    def listed(self) -> Sequence[str]:
        """Ids of what may be answered."""
        alive = self.shown.alive
        return self.names if alive is None else [self.names[row] for row in np.flatnonzero(alive).tolist()]

    @property
    def count(self) -> int:
        """How many rows a search looks at."""
        return self.shown.rows

    @property
    def position(self) -> int:
        """Changes of the catalogue that are answered with."""
        return self.catalogue.shown.position if self.covers(self.catalogue) else self.shown.position

    def covers(self, catalogue: Catalogue) -> bool:
        """Whether this catalogue's items, as they are now, are the ones searched in."""
        shown = catalogue.shown
        return self.catalogue is catalogue and (self.shown.rows, self.shown.gone) == (shown.rows, shown.gone)

    @property
    def _alive(self) -> NDArray[np.bool_] | None:
        """Which of the indexes' rows are there still (n,); None: all are."""
        return self.shown.alive

    def _among_alive(self, queries: Sequence[Query]) -> Sequence[Query]:
        """The queries, with answers among what is there still."""
        alive = self._alive
        if alive is None:
            return queries
        return [query._replace(among=alive if query.among is None else query.among & alive) for query in queries]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the galleries take."""
        return sum(index.nbytes for index in {id(index): index for index in self.indexes.values()}.values())

    @property
    def work(self) -> int:
        """Numbers looked at to answer one query."""
        return self.indexes[None].work

    def search(self, query: Query, k: int = DEFAULT_K, task: str | None = None, page: Page = FIRST_PAGE) -> Answer:
        """The ``k`` closest items of a page under one snapshot; raises SearchError."""
        return single(self.search_each([query], k, task, page))

    def search_each(
        self,
        queries: Sequence[Query],
        k: int = DEFAULT_K,
        task: str | None = None,
        page: Page = FIRST_PAGE,
        options: Options = PLAIN,
    ) -> Answers:
        """The same for several queries, which answer among the same items; raises SearchError."""
        began = time.perf_counter()
        if not 1 <= k <= MAX_K:
            raise SearchError(f"k is {k}, expected 1 to {MAX_K}", "bad_k")
        if not 0 <= page.offset <= MAX_K - k:
            raise SearchError(f"offset is {page.offset}, expected 0 to {MAX_K - k}: {MAX_K} with k", "bad_k")
        if len(page.exclude) > MAX_QUERY_ITEMS:
            wrong = f"{len(page.exclude)} ids to exclude, expected at most {MAX_QUERY_ITEMS}"
            raise SearchError(wrong, "invalid")
        hidden = len(page.exclude) + max(len(query.named) for query in queries)
        if task not in self.indexes:
            tasks = ", ".join(name for name in self.indexes if name is not None)
            raise SearchError(f"task {task!r}: model {self.snapshot.model!r} has {tasks or 'none'}", "unknown_task")
        try:
            expanded = expanded_each(self.indexes[task], queries, options.expand, self._alive)
            candidates = nearest_each(self.indexes[task], self._among_alive(expanded or []), page.offset + k + hidden)
        except MeasureError as error:
            raise SearchError(f"{too_large(queries)}: {error}", "not_finite") from error
        if expanded is None or candidates is None:
            # One version answers all queries, even if this one could answer some of them.
            return self.complete.search_each(queries, k, task, page, options)
        answers = []
        for query, hits in zip(expanded, candidates, strict=True):
            rows, distances = self._shown(hits, {*page.exclude, *query.named}, slice(page.offset, page.offset + k))
            parts = explained(self.indexes[task], query, rows) if options.explain else None
            answers.append(self._found(rows, distances, parts))
        took_s = time.perf_counter() - began
        head = self.snapshot.model, self.snapshot.version, self.pointer.serial, took_s, answers
        return Answers(*head, self.parent.model, self.parent.version) if self.parent else Answers(*head)

    def _shown(self, hits: Hits, hidden: Set[str], part: slice) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The part of the hits that a page asks for, without what must not be answered."""
        if not hidden:
            return hits.rows[part], hits.distances[part]
        shown = np.array([self.names[row] not in hidden for row in hits.rows.tolist()], bool)
        return hits.rows[shown][part], hits.distances[shown][part]

    def _found(
        self, rows: NDArray[np.int64], distances: NDArray[np.float64], parts: Sequence[dict[str, float]] | None
    ) -> list[Found]:
        ids, shares = self.names, parts or repeat(None, len(rows))
        columns = zip(rows.tolist(), distances.tolist(), shares, strict=True)
        return [Found(ids[row], distance, part) for row, distance, part in columns]

    def items(self, ids: Sequence[str]) -> Query:
        """The query for the mean of these items; raises SearchError for an unknown one."""
        check_count(len(ids))
        rows = np.unique(self._known(ids))
        if rows[-1] < self.count:
            return Query(rows)
        # Some were put since the gallery was embedded.
        return Query(rows[:0], Query(rows).table(self.catalogue.features), named=tuple(ids))

    def mixed(self, ids: Sequence[str], raw: Mapping[str, Sequence[float]]) -> Query:
        """The query for the mean of these items and of one item's raw vectors; raises SearchError."""
        check_count(len(ids) + 1)
        rows, vectors = np.unique(self._known(ids)), self.vectors(raw).features
        assert vectors is not None
        table = {name: np.concatenate([self.catalogue.features[name][rows], x]) for name, x in vectors.items()}
        named = tuple(ids) if rows[-1] >= self.count else ()
        return Query(rows[rows < self.count], table, named=named)

    def _known(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Row numbers of these items; SearchError if one is unknown."""
        rows = self.catalogue.rows(ids)
        if rows.min() < 0:
            unknown = ids[int(rows.argmin())]
            raise SearchError(f"the catalogue of model {self.snapshot.model!r} has no item {unknown!r}", "unknown_item")
        return rows

    def searched(self, query: Query, by: str | None, rerank: int | None) -> Query:
        """The query as sets are to be searched; raises SearchError if there are none."""
        if by is None and rerank is None:
            return query
        raise SearchError(f"model {self.snapshot.model!r} is none of sets, which `by` and `rerank` are for", "invalid")

    def vectors(self, raw: Mapping[str, Sequence[float]]) -> Query:
        """The query for one item's raw vectors, a modality each; raises SearchError if they do not fit."""
        try:
            return Query(np.empty(0, np.int64), scaled_item(self.catalogue, "query", raw, some=True))
        except FeedbackError as error:
            raise SearchError(str(error), error.reason) from error


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
        rows = np.unique(np.concatenate([sets[one] if one in sets else self._known([one]) for one in ids]))
        check_count(len(rows))
        places = [self._places[item] for item in ids if item in self._places] if self.sets else rows[rows < self.count]
        return Query(np.array(places, np.int64), {name: x[rows] for name, x in self.catalogue.features.items()})

    def mixed(self, ids: Sequence[str], raw: Mapping[str, Sequence[float]]) -> Query:
        """The query for these elements, and one of raw vectors; raises SearchError."""
        named, vectors = self.items(ids), self.vectors(raw).features
        assert named.features is not None
        assert vectors is not None
        return named._replace(features={name: np.concatenate([x, vectors[name]]) for name, x in named.features.items()})

    def searched(self, query: Query, by: str | None, rerank: int | None) -> Query:
        """The query as it asks for sets."""
        if by not in (None, VECTOR, AGGREGATE, ELEMENTS):
            raise SearchError(f"by is {by!r}, expected {VECTOR}, {AGGREGATE} or {ELEMENTS}", "invalid")
        if rerank is not None and not (1 <= rerank <= MAX_K and by != ELEMENTS):
            message = f"rerank is {rerank}, expected 1 to {MAX_K}, and none where every set is searched by its elements"
            raise SearchError(message, "invalid")
        return query._replace(by=by or VECTOR, rerank=rerank or 0)


def check_count(count: int) -> None:
    """Refuse a query of no item, or of too many."""
    if not 1 <= count <= MAX_QUERY_ITEMS:
        raise SearchError(f"{count} query items, expected 1 to {MAX_QUERY_ITEMS}", "invalid")


def embedded_view(
    pointer: Pointer,
    snapshot: Snapshot,
    catalogue: Catalogue,
    before: View | None = None,
    patience_s: float = PATIENCE_S,
) -> View:
    """A view with the whole gallery embedded, and ready for bridges if that takes longer than ``patience_s``.

    Raises
    ------
    CatalogueError
        The snapshot was learned on other items than the catalogue's.
    CorruptError
        The metric makes no finite embedding of them.
    """
    check_fit(snapshot, catalogue)
    if before and same_metric(before.complete.snapshot.metric, snapshot.metric):
        grown = grown_view(before.complete, catalogue)
        if grown:
            return replace(grown, pointer=pointer, snapshot=snapshot, made_at=time.time())
    began = time.perf_counter()
    metric, sets, shown = snapshot.metric, catalogue.sets, catalogue.shown
    count = shown.rows
    features = {name: catalogue.features[name][:count] for name in metric.dims}
    if isinstance(metric, SetMetric):
        members = list(sets.values()) or list(np.arange(count)[:, None])
        gallery = SetGallery(metric, features, members)
        return SetView(pointer, snapshot, catalogue, shown, {None: gallery}, time.time(), sets=sets)
    kind = Gallery if metric.euclidean else ScoredGallery
    same = {task: metric.same_as(task) for task in (None, *metric.tasks)}
    galleries = {task: kind(metric, features, task) for task in dict.fromkeys(same.values())}
    indexes = {task: galleries[own] for task, own in same.items()}
    spread = None
    if time.perf_counter() - began > patience_s and isinstance(metric, ProjectionMetric):
        spread = spread_of(features, catalogue, before)
    return View(pointer, snapshot, catalogue, shown, indexes, time.time(), spread)


def grown_view(view: View, catalogue: Catalogue) -> View | None:
    """The view of what the catalogue holds now; None if it must be made again.

    Rows are only ever added, so those that are searched in stay as they are, and the new ones are embedded. The numbers
    are those of a view that is made again, up to the last digits of float32: a product of few rows is summed in another
    order than one of many.
    """
    shown = catalogue.shown
    if view.covers(catalogue):
        return view
    if view.catalogue is not catalogue or isinstance(view, SetView) or shown.rows < view.count:
        return None
    origin = None if view.origin is None else grown_view(view.origin, catalogue)
    if origin is None and view.origin is not None:
        return None
    if origin is not None:
        # It may have come later, and hold more.
        shown = origin.shown
    if shown.rows == view.count:
        return replace(view, shown=shown, origin=origin)
    features = {name: catalogue.features[name][: shown.rows] for name in view.snapshot.metric.dims}
    spread = view.spread
    if spread is not None:
        spread = origin.spread if origin is not None else spread.grown(features)
    made: dict[int, Index] = {}
    for index in view.indexes.values():
        if id(index) in made:
            continue
        if isinstance(index, Bridge):
            assert origin is not None
            assert spread is not None
            gallery = origin.indexes[None]
            assert isinstance(gallery, Gallery)
            made[id(index)] = index.grown(gallery, features, spread)
        elif isinstance(index, Gallery | ScoredGallery):
            made[id(index)] = index.grown(features)
        else:
            return None
    indexes = {task: made[id(index)] for task, index in view.indexes.items()}
    return replace(view, shown=shown, indexes=indexes, spread=spread, origin=origin)


def same_metric(metric: Metric, other: Metric) -> bool:
    """Whether two metrics are the same numbers: some learners learn many events before they change what is served."""
    (tensors, _), (others, _) = metric.to_tensors(), other.to_tensors()
    same = metric.kind == other.kind and list(tensors) == list(others)
    return same and all(np.array_equal(tensor, others[name]) for name, tensor in tensors.items())


def spread_of(features: Features, catalogue: Catalogue, before: View | None) -> Spread:
    """The spread of these items, taken over from the view before if it is theirs."""
    if before and before.spread and before.catalogue is catalogue:
        known = before.spread
        if known.names == tuple(features) and len(known.squares) == len(next(iter(features.values()))):
            return known
    return Spread(features)


def bridged_view(origin: View, pointer: Pointer, snapshot: Snapshot, catalogue: Catalogue) -> View | None:
    """A view of a new snapshot over the gallery of a complete ``origin``; None if no bridge leads there."""
    grown = grown_view(origin, catalogue) if origin.spread is not None else None
    if grown is None or grown.spread is None:
        return None
    origin = grown
    gallery, old, new = origin.indexes[None], origin.snapshot.metric, snapshot.metric
    if not (isinstance(gallery, Gallery) and isinstance(old, ProjectionMetric) and isinstance(new, ProjectionMetric)):
        return None
    if shapes(old) != shapes(new):
        return None
    check_fit(snapshot, catalogue)
    features = {name: catalogue.features[name][: origin.count] for name in new.dims}
    bridge = Bridge(gallery, old, new, features, grown.spread)
    return View(pointer, snapshot, catalogue, origin.shown, {None: bridge}, time.time(), origin.spread, origin)


def shapes(metric: ProjectionMetric) -> dict[str, tuple[int, ...]]:
    """The shape (r, d) of each modality's projection."""
    return {name: matrix.shape for name, matrix in metric.matrices.items()}


def check_fit(snapshot: Snapshot, catalogue: Catalogue) -> None:
    """Raise CatalogueError if a snapshot was not learned on this catalogue."""
    where = f"snapshot of model {snapshot.model!r}, version {snapshot.version}"
    if snapshot.generation != catalogue.generation:
        raise CatalogueError(
            f"{where}: learned on catalogue generation {snapshot.generation!r}, this node has "
            f"{catalogue.generation!r}: give both the same catalogue, and restart the node if it was built again"
        )
    got: dict[str, Any] = dict(snapshot.metric.dims)
    if wrong := {name: dim for name, dim in got.items() if catalogue.dims.get(name) != dim}:
        raise CatalogueError(f"{where}: dimensions {wrong}, the catalogue has {dict(catalogue.dims)}: rebuild one")
