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


class WaitingModels:
    """The models of one partition that wait.

    Attributes
    ----------
    offsets
        For each model, the offset of its first event that was not taken.
    cuts
        For each model that waited when the log was cut, the offset of the cut: its checkpoint may tell of events that
        the log lost.
    """

    def __init__(self, clock: Callable[[], float], count: Gauge) -> None:
        self.offsets: dict[str, int] = {}
        self.cuts: dict[str, int] = {}
        self._clock, self._count = clock, count
        self._retry_at: dict[str, float] = {}
        self._causes: dict[str, str] = {}

    def waits(self, name: str) -> bool:
        """Whether to leave a model's events alone for now."""
        return self._clock() < self._retry_at.get(name, 0.0)

    def add(self, name: str, offset: int, error: OmdmlError) -> None:
        """Note that a model could not be claimed, perhaps not for the first time."""
        if name not in self.offsets:
            self._causes[name] = "moved" if isinstance(error, Misplaced) else "damaged"
            self._count.labels(self._causes[name]).inc()
            action = f"its events wait in the log from offset {offset} on, the other models go on"
            log.error("model_waits", model=name, reason=str(error), action=action)
        self.offsets[name] = min(offset, self.offsets.get(name, offset))
        self._retry_at[name] = self._clock() + AGAIN_S

    def due(self) -> str | None:
        """The model that was claimed in vain longest ago, if it is time to try it again."""
        name = min(self.offsets, key=lambda model: self._retry_at[model], default=None)
        return None if name is None or self.waits(name) else name

    def forget_before(self, name: str, offset: int) -> int:
        """Wait no longer for events before this offset, where the log begins now; returns where the model waits."""
        before = self.offsets[name]
        if before < offset:
            self.offsets[name] = offset
            log.error("waiting_events_lost", model=name, first=before, behind=offset, reason="retention deleted them")
        return self.offsets[name]

    def cut(self, offset: int) -> None:
        """Note that the log was cut at this offset: all that it holds from there on is new."""
        self.offsets = {name: min(first, offset) for name, first in self.offsets.items()}
        self.cuts = {name: min(offset, self.cuts.get(name, offset)) for name in self.offsets}

    def remove(self, name: str) -> None:
        """Note that a model was claimed; it may have waited."""
        if name in self.offsets:
            self._count.labels(self._causes.pop(name)).dec()
            log.info("model_waits_no_longer", model=name)
        self._retry_at.pop(name, None)
        self.cuts.pop(name, None)
        self.offsets.pop(name, None)

    def forget(self) -> None:
        """Drop all entries, because another worker owns the partition now."""
        for cause in self._causes.values():
            self._count.labels(cause).dec()
        self._causes.clear()
        self.offsets.clear()
        self.cuts.clear()
