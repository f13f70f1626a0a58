"""How far a worker is behind the log, since when, and how much is not saved."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial

from omdml.errors import OmdmlError, StoreError
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.configuration.wording import amount
from omdml.workers.learning.metrics import GUARD_DOUBT, GUARD_MARGIN
from omdml.workers.learning.partition.owned_partition import OwnedPartition
from omdml.workers.learning.partition.pending_letters import LettersAway
from omdml.workers.learning.services import Services
from omdml.workers.model.owned_model import OwnedModel
from omdml.workers.telemetry.condition import STARTING, Condition
from omdml.workers.telemetry.single_models import MakeValues

# Seconds without a turn of the loop. They are more than the timeouts of any store or log.
STUCK_AFTER_S = 60.0
# This many ends of a partition are remembered. If there are more, every other one is forgotten.
LOOKS = 600
# The gauges of single models. They are read while the loop learns, so each is made of plain numbers.
SINGLE = {
    "version": "Comparisons learned",
    "published_version": "Comparisons that the newest publication had learned, -1 until this worker publishes one",
    "mistake_ratio": "Share of mistakes among the last thousand comparisons or so",
    "withheld": "1 if the guard withholds the newest version",
    "guard_margin": GUARD_MARGIN,
    "guard_doubt": GUARD_DOUBT,
    "unsaved_seconds": "Age of the oldest unsaved change, 0 if everything is saved",
    "resident_bytes": "Bytes in memory",
    "partition": "Number of the model's home partition",
}


class Arrivals:
    """Estimates when a record came that was not fetched yet: when its partition's end was first seen behind it.

    The time stamp of a record is known only after it was fetched. Until then the estimate is right to a second. A
    record that was there at the first look, as in a backlog, came after those before it. So its estimate is the time of
    the newest record that was taken; before any was taken, it is the time of the look.
    """

    def __init__(self) -> None:
        # Times and the ends seen then, ascending.
        self._seen: dict[Partition, deque[tuple[float, int]]] = {}
        # The ends at the first look.
        self._first: dict[Partition, int] = {}

    def oldest(
        self, partition: Partition, position: int, end: int, now: float, taken: float | None = None
    ) -> float | None:
        """When the record at this position was first known to be there; None if nothing lies before the end.

        ``taken`` is when the newest record that was taken had been logged.
        """
        seen, first = self._seen.setdefault(partition, deque()), self._first.setdefault(partition, end)
        while seen and seen[0][1] <= position:
            seen.popleft()
        if end <= position:
            return None
        if not seen or seen[-1][1] < end:
            seen.append((now, end))
        if len(seen) > LOOKS:
            self._seen[partition] = seen = deque(list(seen)[::2])
        return seen[0][0] if taken is None or position >= first else min(taken, seen[0][0])

    def forget(self, partition: Partition) -> None:
        """Drop the values of a partition that another worker owns now."""
        self._seen.pop(partition, None)
        self._first.pop(partition, None)


class Measures:
    """Measures the log and the partitions, and sets the metrics."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._arrivals = Arrivals()
        # Monotonic time at which the last turn of the loop began.
        self._turned_at: float | None = None
        self._away: list[str] = []

    def begin_turn(self) -> None:
        """Note that a turn of the worker's loop begins."""
        self._turned_at = time.monotonic()
        self._services.metrics.loop.last_turn.set(time.time())

    def condition(self, stopping: bool, partitions: int) -> Condition:
        """The condition of the worker. Any thread may call this."""
        idle = 0.0 if self._turned_at is None else time.monotonic() - self._turned_at
        alive, away = idle < STUCK_AFTER_S, list(self._away)
        if self._turned_at is None:
            status = STARTING.status
        elif not alive:
            status = f"stuck: the loop has not turned for {idle:.0f} s, restart this worker"
        elif stopping:
            status = "draining: what was learned is being saved"
        elif away:
            status = f"waiting for {' and '.join(away)}: nothing is learned, nothing is lost"
        else:
            status = f"learning, {amount(partitions, 'partition')}"
        started = self._turned_at is not None
        ready = started and alive and not stopping and not away
        return Condition(started, alive, ready, stopping, status)

    def set_backlog(self, polled: Mapping[Partition, list[Record]]) -> None:
        """Set how far each partition is behind. ``polled`` are records that were not taken yet."""
        source, intake = self._services.source, self._services.metrics.intake
        for partition, (position, end) in source.progress().items():
            logged_at = None
            if records := polled.get(partition):
                position, logged_at = records[0].offset, records[0].timestamp
            seen_at = self._arrivals.oldest(partition, position, end, time.time(), intake.newest.get(partition))
            intake.set_backlog(partition, source.backlog(position, end), seen_at if logged_at is None else logged_at)

    def set_unsaved(self, partitions: Mapping[Partition, OwnedPartition]) -> None:
        """Set the age of the oldest unsaved change, and how much memory and byte rate is left."""
        services = self._services
        # The first of each partition is the oldest.
        unsaved = [next(iter(owned.models.unsaved.values())) for owned in partitions.values() if owned.models.unsaved]
        since = time.time() - services.clock() + min(model.changed_at for model in unsaved) if unsaved else None
        services.metrics.loop.set_memory(services.memory, services.allowance, since)
        services.metrics.intake.owned.set(len(partitions))

    def single_models(self, partitions: Iterable[OwnedPartition]) -> dict[str, MakeValues]:
        """The models in memory by name, and how to measure each. Any thread may call this."""
        return {
            name: partial(self._single, owned, model)
            for owned in partitions
            for name, model in dict(owned.models.loaded).items()
        }

    def _single(self, owned: OwnedPartition, model: OwnedModel) -> dict[str, float]:
        unsaved = model.name in owned.models.unsaved
        counts = {
            "version": model.learner.version,
            "published_version": model.published,
            "mistake_ratio": model.progress.mistakes.recent_mistake_rate,
            "withheld": bool(model.judge.withheld),
            "unsaved_seconds": self._services.clock() - model.changed_at if unsaved else 0.0,
            "resident_bytes": model.size,
            "partition": owned.partition.number,
        }
        if compared := model.judge.guard.compared:
            counts |= {"guard_margin": compared.margin, "guard_doubt": compared.doubt}
        return counts

    def set_outage(self, error: OmdmlError | None) -> None:
        """Set what is out of reach, so that learning waits for it, from the outcome of a turn."""
        if error is None:
            away = ["log"] if self._services.source.away else []
        elif isinstance(error, LettersAway):
            away = ["letters"]
        else:
            away = ["store" if isinstance(error, StoreError) else "log"]
        self._away = away
        self._services.metrics.loop.set_waiting(*away)

    def forget(self, partition: Partition) -> None:
        """Drop the values of a partition that another worker owns now."""
        self._arrivals.forget(partition)
        self._services.metrics.remove_partition(partition)
