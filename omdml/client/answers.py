"""The answers of a node. Unknown fields, which a newer node may send, are ignored."""

from __future__ import annotations

from typing import Any

import msgspec


# No garbage collection looks through items: it would take ten times as long as decoding a thousand of them.
class Item(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An item of an answer.

    ``distance`` is the squared learned distance, or minus the score if the learner learns a score and no distance.
    Lower is closer. ``attributes`` are those that ``fields`` asked for, if the item has them. With ``explain``,
    ``parts`` add up to the distance: one for each modality, expert or matrix of the metric.
    """

    id: str
    distance: float
    attributes: dict[str, Any] = {}
    parts: dict[str, float] = {}


class Interleaved(msgspec.Struct, frozen=True):
    """An experiment that made an answer from two rankings: the model's own, and that of ``against`` at its version."""

    experiment: str
    search: str
    against: str
    against_version: int


class Counts(msgspec.Struct, frozen=True):
    """Searches of an experiment, and the results of those with clicks.

    ``since`` is in seconds since the epoch. ``failed`` counts searches that the model answered alone, because the other
    side could not answer. Of the searches with clicks, the model's own ranking won ``first``, the other one ``second``,
    and neither won ``ties``. ``clicks`` counts clicks on items of the first and of the second ranking.
    """

    since: float
    searches: int
    failed: int
    first: int
    second: int
    ties: int
    clicks: tuple[int, int]


class Experiment(msgspec.Struct, frozen=True):
    """The result of an experiment on one node: ``better`` is ``first``, ``second``, or None if nothing is certain.

    The first ranking is the model's own, the second that of ``against`` at ``against_version`` (None: at whatever is
    live). The second ranking won the ``share`` of the searches that either ranking won (None if there are none); the
    true share lies between ``low`` and ``high``, with a confidence of 95 %. ``confidence``, 0 to 1, is how sure it is
    that the two rankings differ.
    """

    name: str
    model: str
    against: str
    against_version: int | None
    counts: Counts
    better: str | None
    share: float | None
    low: float
    high: float
    confidence: float


class Experiments(msgspec.Struct, frozen=True):
    """The answer of ``GET /experiments``: the experiments of the node."""

    experiments: list[Experiment]


class Clicked(msgspec.Struct, frozen=True):
    """The answer of ``POST /clicks``: how many clicks had not been counted before."""

    counted: int


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The items closest to a query, closest first, and the version of the model that ranked them.

    ``version`` is the number of comparisons that the model has learned. ``serial`` rises each time another version goes
    live, even at a rollback. ``took_s`` is the time of the search in the node, in seconds. Before a model's first event
    its ``parent`` may answer, at ``parent_version``; its own version is 0 then. An index in a vector database or the
    gallery of an older version may propose the candidates. Then ``candidates_version`` is the version of this index or
    gallery, and items may be missing. If the answer is part of an experiment, ``interleaved`` describes it: report
    clicks with ``Client.clicked``.
    """

    model: str
    version: int
    serial: int
    took_s: float
    items: list[Item]
    parent: str | None = None
    parent_version: int | None = None
    candidates_version: int | None = None
    interleaved: Interleaved | None = None


class Answers(msgspec.Struct, frozen=True, omit_defaults=True):
    """The items closest to each of several queries, all under one version."""

    model: str
    version: int
    serial: int
    took_s: float
    answers: list[list[Item]]
    parent: str | None = None
    parent_version: int | None = None
    candidates_version: int | None = None


class Side(msgspec.Struct, frozen=True):
    """The answer of one version to a query."""

    version: int
    items: list[Item]


class Moved(msgspec.Struct, frozen=True):
    """An item of either answer: its ranks before and after, from 1, and by how many places it rose.

    A rank is None if the item is not among the first 1,000. Then ``rose`` is None, too.
    """

    id: str
    before: int | None
    after: int | None
    rose: int | None


class Comparison(msgspec.Struct, frozen=True):
    """The answers of two versions to the same query, and the items whose ranks differ."""

    model: str
    id: str
    before: Side
    after: Side
    moved: list[Moved]


class ListedItem(msgspec.Struct, frozen=True):
    """An item of the catalogue, with those of the requested attributes that it has."""

    id: str
    attributes: dict[str, Any] = {}


class Listed(msgspec.Struct, frozen=True):
    """Some items of the catalogue, in its order.

    ``total`` is the number of items that fit the request, those not listed included. ``position`` is the number of
    changes of the catalogue that this answer includes, and ``attributes`` are the names that ``fields`` may have.
    """

    items: list[ListedItem]
    total: int
    position: int
    attributes: list[str] = []


class Listing(msgspec.Struct, frozen=True):
    """The answer of ``GET /items``: ids, and beside them the attributes of each item if they were asked for."""

    items: list[str]
    total: int
    position: int
    attributes: list[str] = []
    values: list[dict[str, Any]] | None = None

    @property
    def listed(self) -> Listed:
        """The same, item by item."""
        values = self.values or [{} for _ in self.items]
        items = [ListedItem(*pair) for pair in zip(self.items, values, strict=True)]
        return Listed(items, self.total, self.position, self.attributes)


class Changed(msgspec.Struct, frozen=True):
    """The result of changes of items.

    ``position`` is the number of changes that the catalogue has had. ``put``, ``attributes`` and ``deleted`` count
    changes; ``unknown`` are ids to delete that did not exist.
    """

    model: str
    position: int
    put: int
    attributes: int
    deleted: int
    unknown: list[str]

    def then(self, later: Changed) -> Changed:
        """The combined result of these changes and of later ones."""
        counts = self.put + later.put, self.attributes + later.attributes, self.deleted + later.deleted
        return Changed(later.model, later.position, *counts, [*self.unknown, *later.unknown])


class Freshness(msgspec.Struct, frozen=True):
    """Seconds from a click until the node answers with what was learned from it: median and 99th percentile.

    They are those of the last ``count`` versions that went live on the node, a thousand at most.
    """

    p50_s: float
    p99_s: float
    count: int


class Live(msgspec.Struct, frozen=True):
    """The version that answers searches of a model. If the node is not ``ready``, the other fields mean nothing.

    ``generation`` is that of the catalogue, and ``items`` the number of its items. ``live_since`` is by the node's
    clock, in seconds since the epoch. ``parent`` is the model that answers instead, or None. ``begins_with`` is the
    parent by configuration, whether or not the model has learned something of its own.
    """

    model: str
    ready: bool
    version: int = 0
    serial: int = 0
    pinned: bool = False
    learner: str = ""
    generation: str = ""
    items: int = 0
    tasks: list[str] = []
    live_since: float = 0.0
    freshness: Freshness | None = None
    parent: str | None = None
    begins_with: str | None = None


class Pointer(msgspec.Struct, frozen=True):
    """The version that answers from now on. A pinned version stays until it is unpinned, whatever is learned."""

    model: str
    version: int
    serial: int
    pinned: bool


class Line(msgspec.Struct, frozen=True):
    """A line of a model's history: what happened to a version, why, by whom, and ``at`` which time.

    The time is in seconds since the epoch.
    """

    at: float
    what: str
    version: int
    serial: int = 0
    pinned: bool = False
    reason: str = ""
    actor: str = ""


class Accepted(msgspec.Struct, frozen=True):
    """The answer of ``POST /feedback``: how many events were accepted."""

    accepted: int


class Models(msgspec.Struct, frozen=True):
    """The answer of ``GET /models``: single models that answer, and the patterns of the configuration."""

    models: list[Live]
    patterns: list[str] = []


class History(msgspec.Struct, frozen=True):
    """The answer of ``GET /models/{model}/history``: publications and moves, the newest last."""

    lines: list[Line]
