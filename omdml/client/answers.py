"""What a node answers. Fields that a newer node adds are passed over."""

from __future__ import annotations

from typing import Any

import msgspec


class Item(msgspec.Struct, frozen=True):
    """One item of an answer.

    ``distance`` is the squared learned one (minus the score if the metric has no embedding). ``attributes`` are those
    that ``fields`` asked for, as far as the item has them.
    """

    id: str
    distance: float
    attributes: dict[str, Any] = {}


class Answer(msgspec.Struct, frozen=True):
    """The items closest to a query, closest first, and the version that says so."""

    model: str
    version: int
    serial: int
    took_s: float
    items: list[Item]


class Freshness(msgspec.Struct, frozen=True):
    """Seconds from a click to answers that know it, of a node's last swaps: at most a thousand."""

    p50_s: float
    p99_s: float
    count: int


class Live(msgspec.Struct, frozen=True):
    """What a node answers a model's searches with. If it is not ``ready`` yet, the other fields say nothing.

    ``live_since`` is the node's clock, in seconds since the epoch.
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


class Pointer(msgspec.Struct, frozen=True):
    """Which version answers from now on. A pinned one stays until it is unpinned, whatever is learned."""

    model: str
    version: int
    serial: int
    pinned: bool


class Line(msgspec.Struct, frozen=True):
    """A line of a model's history: ``what`` happened to a version, ``at`` seconds since the epoch, and why."""

    at: float
    what: str
    version: int
    serial: int = 0
    pinned: bool = False
    reason: str = ""
