"""What went live on a node, and when: for charts, for browsers that listen, and for the log."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import structlog

from omdml.streams.protocols.store import Pointer
from omdml.workers.node.metrics import STAGES, is_recent, stages_of
from omdml.workers.node.view import View
from omdml.workers.versions.inspection import weights

# Steps that are kept of a label. Beyond them, every second one of the older half is dropped: a list of any length
# keeps its shape.
MOST = 1000
# Steps that are kept in all: labels share them evenly, but each has room for some.
IN_ALL = 10_000
FEWEST = 50
# Seconds between two lines of the log about new versions, whichever models they are of.
LOG_EVERY_S = 60.0

log = structlog.get_logger(__name__)


class Step(msgspec.Struct, frozen=True, gc=False):
    """One change of the version that a node answers with.

    ``at`` is in seconds since the epoch. ``freshness_s`` is the age, at this step, of the oldest event that answers
    take into account only from this step on. ``stages`` are its parts in seconds. Both are null if no such
    event is known. ``newest_event_at`` is the time of the newest event that the version has learned.
    """

    number: int
    model: str
    what: str
    version: int
    serial: int
    pinned: bool
    at: float
    freshness_s: float | None
    stages: Mapping[str, float] | None
    newest_event_at: float | None
    figures: Mapping[str, float]
    weights: Mapping[str, float]


DECODER = msgspec.msgpack.Decoder(Step)


class Remark(msgspec.Struct, frozen=True, gc=False):
    """Something happened to a model that did not change what is live. ``at`` is in seconds since the epoch."""

    model: str
    what: str
    version: int
    at: float
    reason: str


class Kept(NamedTuple):
    """A step as it is kept: as bytes it takes half the memory that its parts take."""

    model: str
    step: bytes


class Steps:
    """The steps of a node, oldest first. Any number of threads may use it.

    Parameters
    ----------
    label
        The name or pattern that covers a model: models of a pattern share what is kept.
    """

    def __init__(self, label: Callable[[str], str]) -> None:
        self._label = label
        self._changing = threading.Lock()
        self._count = 0
        self._steps: dict[str, list[Kept]] = {}
        # The highest version of each model that answered.
        self._highest: dict[str, int] = {}
        self._listeners: set[Callable[[Step | Remark], None]] = set()
        # When new versions were last logged, and how many came since then. Steps are added one at a time.
        self._logged_at, self._swaps_not_logged = -math.inf, 0

    def add(self, model: str, before: View | None, view: View, took_s: float) -> None:
        """Note that a view of a model went live, and how many seconds it took to load."""
        live_at, what = time.time(), move_between(before.pointer, view.pointer) if before else "model_live"
        # Compared with the highest version that ever answered, not with the last one: if an operator went back to an
        # older version for a while, the events that were live before that are no news.
        highest = self._highest.get(model, 0) if before else 0
        newly_learned = [trail for trail in view.snapshot.trails if highest < trail.version]
        oldest = min(newly_learned, key=lambda trail: trail.oldest, default=None)
        stages = None
        if oldest and is_recent(oldest, live_at):
            passed = stages_of(oldest, (view.pointer.published_at, live_at - took_s, live_at))
            stages = dict(zip(STAGES, passed, strict=True))
        step = Step(
            number=0,
            model=model,
            what=what,
            version=view.snapshot.version,
            serial=view.pointer.serial,
            pinned=view.pointer.pinned,
            at=live_at,
            freshness_s=sum(stages.values()) if stages else None,
            stages=stages,
            newest_event_at=view.snapshot.event_time,
            figures=view.snapshot.progress,
            weights=weights(view.snapshot.metric),
        )
        with self._changing:
            self._highest[model] = max(highest, view.snapshot.version)
        self._keep(step)
        self._log(what, model, before, view)

    def add_deleted(self, model: str) -> None:
        """Note that somebody deleted a model: it answers as it begins, or not at all."""
        self._keep(Step(0, model, "model_deleted", 0, 0, False, time.time(), None, None, None, {}, {}))

    def _keep(self, step: Step) -> None:
        """Number a step, keep it, and tell those who listen."""
        with self._changing:
            self._count += 1
            step = msgspec.structs.replace(step, number=self._count)
            steps = self._steps.setdefault(self._label(step.model), [])
            steps.append(Kept(step.model, msgspec.msgpack.encode(step)))
            if len(steps) > min(MOST, max(FEWEST, IN_ALL // len(self._steps))):
                half = len(steps) // 2
                steps[:half] = steps[:half:2]
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(step)

    def _log(self, what: str, model: str, before: View | None, view: View) -> None:
        """Log a move of what is served: an operator's at once, new versions of all models once a minute together."""
        fields = {
            "model": model,
            "version": view.snapshot.version,
            "before": before.snapshot.version if before else None,
        }
        if before is None or what != "new_version":
            log.info(what, **fields)
            return
        self._swaps_not_logged += 1
        if time.monotonic() - self._logged_at >= LOG_EVERY_S:
            log.info(what, **fields, swaps=self._swaps_not_logged)
            self._logged_at, self._swaps_not_logged = time.monotonic(), 0

    def forget(self, model: str) -> None:
        """Forget a model that was dropped, except for its steps: a node may load many names one after another."""
        with self._changing:
            self._highest.pop(model, None)

    def of(self, model: str) -> list[Step]:
        """The remembered steps of a model, oldest first."""
        with self._changing:
            steps = [entry.step for entry in self._steps.get(self._label(model), ()) if entry.model == model]
        return [DECODER.decode(step) for step in steps]

    def newest(self) -> list[Step]:
        """The newest step of each model."""
        with self._changing:
            newest = {entry.model: entry.step for steps in self._steps.values() for entry in steps}
        return sorted((DECODER.decode(step) for step in newest.values()), key=lambda step: step.number)

    @property
    def has_listeners(self) -> bool:
        """Whether anybody listens: without listeners, nobody needs to make remarks."""
        return bool(self._listeners)

    def remark(self, remark: Remark) -> None:
        """Tell those who listen. Nothing is kept."""
        with self._changing:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(remark)

    def listen(self, listener: Callable[[Step | Remark], None]) -> Callable[[], None]:
        """Call this with each step and remark from now on, from any thread; returns what ends it."""
        with self._changing:
            self._listeners.add(listener)

        def end() -> None:
            with self._changing:
                self._listeners.discard(listener)

        return end


def move_between(old: Pointer, new: Pointer) -> str:
    """What a move of a pointer is called in the log; all but ``new_version`` are an operator's."""
    if new.version < old.version:
        return "rolled_back"
    if new.pinned:
        return "pinned"
    return "unpinned" if old.pinned else "new_version"
