"""What a node answers. Fields that a newer node adds are passed over."""

from __future__ import annotations

from typing import Any

import msgspec


class Item(msgspec.Struct, frozen=True):
    """One item of an answer.

    ``distance`` is the squared learned one (minus the score if the metric has no embedding). ``attributes`` are those
    that ``fields`` asked for, as far as the item has them. ``parts`` add up to the distance, if ``explain`` asked for
    them: one a modality, expert or matrix of the metric.
    """

    id: str
    distance: float
    attributes: dict[str, Any] = {}
    parts: dict[str, float] = {}


class Interleaved(msgspec.Struct, frozen=True):
    """Two rankings made an answer, for an experiment: the model's own, and that of ``against`` at its version."""

    experiment: str
    search: str
    against: str
    against_version: int


class Counts(msgspec.Struct, frozen=True):
    """Searches that an experiment interleaved since a time in seconds since the epoch, and who won those with clicks.

    ``failed`` were answered by the model alone. ``clicks`` are those on items of the first and of the second ranking.
    """

    since: float
    searches: int
    failed: int
    first: int
    second: int
    ties: int
    clicks: tuple[int, int]


class Experiment(msgspec.Struct, frozen=True):
    """What came of an experiment on one node: ``better`` is ``first``, ``second``, or None if nothing is sure.

    The first ranking is the model's own. Of the searches that either ranking won, the second one won the ``share``,
    which lies between ``low`` and ``high``.
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
    """The experiments of a node."""

    experiments: list[Experiment]


class Clicked(msgspec.Struct, frozen=True):
    """How many clicks were news."""

    counted: int


class Answer(msgspec.Struct, frozen=True):
    """The items closest to a query, closest first, and the version that says so.

    Before a model's first event its ``parent`` may answer, at ``parent_version``; its own version is 0 then.
    ``interleaved`` says that the answer is part of an experiment: send its clicks to it with ``Client.clicked``.
    """

    model: str
    version: int
    serial: int
    took_s: float
    items: list[Item]
    parent: str | None = None
    parent_version: int | None = None
    interleaved: Interleaved | None = None


class Answers(msgspec.Struct, frozen=True):
    """The items closest to each of several queries."""

    model: str
    version: int
    serial: int
    took_s: float
    answers: list[list[Item]]
    parent: str | None = None
    parent_version: int | None = None


class Side(msgspec.Struct, frozen=True):
    """The answer of one version."""

    version: int
    items: list[Item]


class Moved(msgspec.Struct, frozen=True):
    """An item of either answer: its ranks, from 1, and by how many it rose; None if it is not among the first 1,000."""

    id: str
    before: int | None
    after: int | None
    rose: int | None


class Comparison(msgspec.Struct, frozen=True):
    """Two versions' answers to one item, and the items whose rank is another."""

    model: str
    id: str
    before: Side
    after: Side
    moved: list[Moved]


class Changed(msgspec.Struct, frozen=True):
    """What became of changes of items.

    ``position`` counts the changes that the catalogue has seen by then. ``put``, ``attributes`` and ``deleted`` count
    changes; ``unknown`` are ids to delete that were not there.
    """

    model: str
    position: int
    put: int
    attributes: int
    deleted: int
    unknown: list[str]

    def then(self, later: Changed) -> Changed:
        """These changes and later ones."""
        counts = self.put + later.put, self.attributes + later.attributes, self.deleted + later.deleted
        return Changed(later.model, later.position, *counts, [*self.unknown, *later.unknown])


class Freshness(msgspec.Struct, frozen=True):
    """Seconds from a click to answers that know it, of a node's last swaps: at most a thousand."""

    p50_s: float
    p99_s: float
    count: int


class Live(msgspec.Struct, frozen=True):
    """What a node answers a model's searches with. If it is not ``ready`` yet, the other fields say nothing.

    ``live_since`` is the node's clock, in seconds since the epoch. ``parent`` is the model that answers in its place.
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


class Pointer(msgspec.Struct, frozen=True):
    """Which version answers from now on. A pinned one stays until it is unpinned, whatever is learned."""

    model: str
    version: int
    serial: int
    pinned: bool


class Line(msgspec.Struct, frozen=True):
    """A line of a model's history: ``what`` happened to a version, ``at`` seconds since the epoch, why, and by whom."""

    at: float
    what: str
    version: int
    serial: int = 0
    pinned: bool = False
    reason: str = ""
    actor: str = ""
