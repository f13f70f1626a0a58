"""Models whose checkpoints cannot be read: they wait, and the mark with them, while the others go on."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from prometheus_client import Gauge

from omdml.errors import CorruptError, OmdmlError

# Seconds until such a model is claimed again.
AGAIN_S = 10.0

log = structlog.get_logger(__name__)


class Misplaced(CorruptError):
    """A sound checkpoint of a model that lives on another partition."""


class Blocked:
    """Those of one partition.

    Attributes
    ----------
    offsets
        Of each, where its first event lies that was not taken.
    cuts
        Of those that waited as the log was cut, where: its checkpoint may tell of what the log lost.
    """

    def __init__(self, clock: Callable[[], float], count: Gauge) -> None:
        self.offsets: dict[str, int] = {}
        self.cuts: dict[str, int] = {}
        self._clock, self._count = clock, count
        self._again: dict[str, float] = {}
        self._causes: dict[str, str] = {}

    def waits(self, name: str) -> bool:
        """Whether to leave a model's events alone for now."""
        return self._clock() < self._again.get(name, 0.0)

    def add(self, name: str, offset: int, error: OmdmlError) -> None:
        """A model could not be claimed, again perhaps."""
        if name not in self.offsets:
            self._causes[name] = "moved" if isinstance(error, Misplaced) else "damaged"
            self._count.labels(self._causes[name]).inc()
            then = f"its events wait in the log from offset {offset} on, the other models go on"
            log.error("model_waits", model=name, reason=str(error), action=then)
        self.offsets[name] = min(offset, self.offsets.get(name, offset))
        self._again[name] = self._clock() + AGAIN_S

    def due(self) -> str | None:
        """The model to look at again, the one first that was looked at least lately."""
        name = min(self.offsets, key=lambda model: self._again[model], default=None)
        return None if name is None or self.waits(name) else name

    def forget_before(self, name: str, offset: int) -> int:
        """The log begins there now: what it no longer holds is not waited for. Answers where the model waits."""
        before = self.offsets[name]
        if before < offset:
            self.offsets[name] = offset
            log.error("waiting_events_lost", model=name, first=before, behind=offset, reason="retention deleted them")
        return self.offsets[name]

    def cut(self, offset: int) -> None:
        """What the log holds from there on is new."""
        self.offsets = {name: min(blocked_at, offset) for name, blocked_at in self.offsets.items()}
        self.cuts = {name: min(offset, self.cuts.get(name, offset)) for name in self.offsets}

    def unblock(self, name: str) -> None:
        """A model was claimed; it may have waited."""
        if name in self.offsets:
            self._count.labels(self._causes.pop(name)).dec()
            log.info("model_waits_no_longer", model=name)
        self._again.pop(name, None)
        self.cuts.pop(name, None)
        self.offsets.pop(name, None)

    def forget(self) -> None:
        """Drop all entries, because another worker owns the partition now."""
        for cause in self._causes.values():
            self._count.labels(cause).dec()
        self._causes.clear()
        self.offsets.clear()
        self.cuts.clear()
