"""What a node answers from: one immutable view a model, replaced as a whole when a snapshot goes live."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError, FeedbackError, MeasureError, OmdmlError
from omdml.metrics import Metric, ProjectionMetric, SetMetric
from omdml.snapshot import Snapshot
from omdml.streams.catalogues.inline import scaled_item
from omdml.streams.protocols import Catalogue, Pointer
from omdml.workers.node.bridge import Bridge, Spread
from omdml.workers.node.gallery import AGGREGATE, ELEMENTS, VECTOR, Features, Gallery, Hits, Index, Query, ScoredGallery
from omdml.workers.node.set_gallery import SetGallery

MAX_K = 10_000
MAX_QUERY_ITEMS = 1000
DEFAULT_K = 10
# An embedding that takes longer is made in the background, behind a bridge.
PATIENCE_S = 0.02


class SearchError(OmdmlError):
    """A query that cannot be answered; ``reason`` is a code that never changes."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Found(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One item of an answer; ``distance`` is the squared learned one (minus the score, where there is no embedding).

    ``attributes`` are those that were asked for, as far as the item has them.
    """

    id: str
    distance: float
    attributes: dict[str, bool | int | float | str | list[str]] | None = None


class Page(NamedTuple):
    """Which part of an answer is asked for: ``offset`` items are passed over, those to ``exclude`` never count."""

    offset: int = 0
    exclude: Sequence[str] = ()


FIRST_PAGE = Page()


class Answer(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The items closest to a query, closest first, and the snapshot that says so.

    A model without a snapshot answers with what its ``parent`` serves; its version is 0, that of the parent beside it.
    """

    model: str
    version: int
    serial: int
    took_s: float
    items: list[Found]
    parent: str | None = None
    parent_version: int | None = None


@dataclass(frozen=True)
class View:
    """One snapshot, ready to answer.

    ``indexes`` holds one index a task, None being the shared metric; tasks of one metric have the same index.
    ``complete`` is the last view whose gallery was embedded whole: this one, or the one that a bridge starts from.
    ``made_at`` is in seconds since the epoch. Bridges can start from a view that has a ``spread``.
    ``parent`` is the snapshot that answers for a model that has none.
    """

    pointer: Pointer
    snapshot: Snapshot
    catalogue: Catalogue
    count: int
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

    def covers(self, catalogue: Catalogue) -> bool:
        """Whether this catalogue's items are the ones searched in."""
        return self.catalogue is catalogue and self.count == len(catalogue.ids)

    @property
    def nbytes(self) -> int:
        """Memory held by the galleries."""
        return sum(index.nbytes for index in {id(index): index for index in self.indexes.values()}.values())

    @property
    def work(self) -> int:
        """Numbers looked at to answer one query."""
        return self.indexes[None].work

    def search(self, query: Query, k: int = DEFAULT_K, task: str | None = None, page: Page = FIRST_PAGE) -> Answer:
        """The ``k`` closest items of a page under one snapshot; raises SearchError."""
        began = time.perf_counter()
        if not 1 <= k <= MAX_K:
            raise SearchError(f"k is {k}, expected 1 to {MAX_K}", "bad_k")
        if not 0 <= page.offset <= MAX_K - k:
            raise SearchError(f"offset is {page.offset}, expected 0 to {MAX_K - k}: {MAX_K} with k", "bad_k")
        left_out = self._left_out(page.exclude)
        if task not in self.indexes:
            tasks = ", ".join(name for name in self.indexes if name is not None)
            raise SearchError(f"task {task!r}: model {self.snapshot.model!r} has {tasks or 'none'}", "unknown_task")
        try:
            hits = self.indexes[task].nearest(query, page.offset + k + len(left_out))
        except MeasureError as error:
            raise SearchError(f"{too_large(query)}: {error}", "not_finite") from error
        if hits is None:
            return self.complete.search(query, k, task, page)
        if len(left_out):
            shown = ~np.isin(hits.rows, left_out)
            hits = Hits(hits.rows[shown], hits.distances[shown])
        part = slice(page.offset, page.offset + k)
        return self._answer(Hits(hits.rows[part], hits.distances[part]), time.perf_counter() - began)

    def _left_out(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Rows of what must not be answered; what is not there is not answered anyway. SearchError for too many."""
        if len(ids) > MAX_QUERY_ITEMS:
            raise SearchError(f"{len(ids)} ids to exclude, expected at most {MAX_QUERY_ITEMS}", "invalid")
        rows = self._rows(ids)
        return np.unique(rows[rows >= 0])

    def _rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Rows of the gallery, -1 for an unknown id."""
        return self.catalogue.rows(ids) if ids else np.empty(0, np.int64)

    def _answer(self, hits: Hits, took_s: float) -> Answer:
        ids = self.names
        items = [Found(ids[row], d) for row, d in zip(hits.rows.tolist(), hits.distances.tolist(), strict=True)]
        told = self.snapshot.model, self.snapshot.version, self.pointer.serial, took_s, items
        return Answer(*told, self.parent.model, self.parent.version) if self.parent else Answer(*told)

    def items(self, ids: Sequence[str]) -> Query:
        """The query for the mean of these items; raises SearchError for an unknown one."""
        check_count(len(ids))
        rows = np.unique(self._known(ids))
        if rows[-1] < self.count:
            return Query(rows)
        return Query(rows[:0], Query(rows).table(self.catalogue.features))  # added since the gallery was embedded

    def _known(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Rows of these items."""
        rows = self.catalogue.rows(ids)
        if rows.min() < 0:
            unknown = ids[int(rows.argmin())]
            raise SearchError(f"the catalogue of model {self.snapshot.model!r} has no item {unknown!r}", "unknown_item")
        return rows

    def searched(self, query: Query, by: str | None, rerank: int | None) -> Query:
        """The query as sets are to be searched; raises SearchError where there are none."""
        if by is None and rerank is None:
            return query
        raise SearchError(f"model {self.snapshot.model!r} is none of sets, which `by` and `rerank` are for", "invalid")

    def vectors(self, raw: Mapping[str, Sequence[float]]) -> Query:
        """The query for one item's raw vectors, a modality each; raises SearchError where they do not fit."""
        try:
            return Query(np.empty(0, np.int64), scaled_item(self.catalogue, "query", raw))
        except FeedbackError as error:
            raise SearchError(str(error), error.reason) from error


def too_large(query: Query) -> str:
    """What of a query lies too far out to be compared."""
    if query.features is None:
        return "the query items lie too far from others"
    sizes = {name: float(np.abs(table).max()) for name, table in query.features.items()}
    name = max(sizes, key=lambda name: sizes[name])
    return f"query: modality {name!r} is too large, it holds {sizes[name]:.3g} as the catalogue scales it"


@dataclass(frozen=True)
class SetView(View):
    """One snapshot of a metric of sets: answers are the catalogue's ``sets``, or its items where it has none."""

    sets: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    @cached_property
    def names(self) -> Sequence[str]:
        """Ids of the sets."""
        return list(self.sets) or self.catalogue.ids

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {one: place for place, one in enumerate(self.sets)}

    def covers(self, catalogue: Catalogue) -> bool:
        """Whether this catalogue's sets are the ones searched in."""
        return super().covers(catalogue) and self.sets is catalogue.sets

    def _rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        return np.array([self._places.get(one, -1) for one in ids], np.int64) if self.sets else super()._rows(ids)

    def items(self, ids: Sequence[str]) -> Query:
        """The query for these elements, a set standing for its own; raises SearchError for an unknown one."""
        check_count(len(ids))
        sets = self.catalogue.sets
        rows = np.unique(np.concatenate([sets[one] if one in sets else self._known([one]) for one in ids]))
        check_count(len(rows))
        places = [self._places[one] for one in ids if one in self._places] if self.sets else rows[rows < self.count]
        return Query(np.array(places, np.int64), {name: x[rows] for name, x in self.catalogue.features.items()})

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
    """A view with the whole gallery embedded, and ready for bridges where that takes longer than ``patience_s``.

    Raises
    ------
    CatalogueError
        The snapshot was learned on other items than the catalogue's.
    CorruptError
        The metric makes no finite embedding of them.
    """
    check_fit(snapshot, catalogue)
    if before and before.complete.covers(catalogue) and same_metric(before.complete.snapshot.metric, snapshot.metric):
        return replace(before.complete, pointer=pointer, snapshot=snapshot, made_at=time.time())
    began = time.perf_counter()
    metric, sets, count = snapshot.metric, catalogue.sets, len(catalogue.ids)
    features = {name: catalogue.features[name][:count] for name in metric.dims}
    if isinstance(metric, SetMetric):
        members = list(sets.values()) or list(np.arange(count)[:, None])
        gallery = SetGallery(metric, features, members)
        return SetView(pointer, snapshot, catalogue, count, {None: gallery}, time.time(), sets=sets)
    kind = Gallery if metric.euclidean else ScoredGallery
    same = {task: metric.same_as(task) for task in (None, *metric.tasks)}
    galleries = {task: kind(metric, features, task) for task in dict.fromkeys(same.values())}
    indexes = {task: galleries[own] for task, own in same.items()}
    spread = None
    if time.perf_counter() - began > patience_s and isinstance(metric, ProjectionMetric):
        spread = spread_of(features, catalogue, before)
    return View(pointer, snapshot, catalogue, count, indexes, time.time(), spread)


def same_metric(one: Metric, other: Metric) -> bool:
    """Whether two metrics are the same numbers: some learners learn many events before they change what is served."""
    (tensors, _), (others, _) = one.to_tensors(), other.to_tensors()
    same = one.kind == other.kind and list(tensors) == list(others)
    return same and all(np.array_equal(tensor, others[name]) for name, tensor in tensors.items())


def spread_of(features: Features, catalogue: Catalogue, before: View | None) -> Spread:
    """The spread of these items, taken over from the view before where it is theirs."""
    if before and before.spread and before.catalogue is catalogue:
        known = before.spread
        if known.names == tuple(features) and len(known.squares) == len(next(iter(features.values()))):
            return known
    return Spread(features)


def bridged_view(origin: View, pointer: Pointer, snapshot: Snapshot, catalogue: Catalogue) -> View | None:
    """A view of a new snapshot over the gallery of a complete ``origin``; None where no bridge leads there."""
    gallery, old, new = origin.indexes[None], origin.snapshot.metric, snapshot.metric
    if origin.spread is None or not origin.covers(catalogue):
        return None
    if not (isinstance(gallery, Gallery) and isinstance(old, ProjectionMetric) and isinstance(new, ProjectionMetric)):
        return None
    if shapes(old) != shapes(new):
        return None
    check_fit(snapshot, catalogue)
    features = {name: catalogue.features[name][: origin.count] for name in new.dims}
    bridge = Bridge(gallery, old, new, features, origin.spread)
    return View(pointer, snapshot, catalogue, origin.count, {None: bridge}, time.time(), origin.spread, origin)


def shapes(metric: ProjectionMetric) -> dict[str, tuple[int, ...]]:
    """(r, d) of each modality."""
    return {name: matrix.shape for name, matrix in metric.matrices.items()}


def check_fit(snapshot: Snapshot, catalogue: Catalogue) -> None:
    """Raise CatalogueError where a snapshot was not learned on this catalogue."""
    where = f"snapshot of model {snapshot.model!r}, version {snapshot.version}"
    if snapshot.generation != catalogue.generation:
        raise CatalogueError(
            f"{where}: learned on catalogue generation {snapshot.generation!r}, this node has "
            f"{catalogue.generation!r}: give both the same catalogue, and restart the node where it was built anew"
        )
    got: dict[str, Any] = dict(snapshot.metric.dims)
    if wrong := {name: dim for name, dim in got.items() if catalogue.dims.get(name) != dim}:
        raise CatalogueError(f"{where}: dimensions {wrong}, the catalogue has {dict(catalogue.dims)}: rebuild one")
