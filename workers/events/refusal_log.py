"""The log line about dead letters: at most one a minute, with their number by reason."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import structlog

from omdml.errors import shortened
from omdml.workers.events.decoding import Refusal

EVERY_S = 60.0
HINT = "omdml letters list; omdml letters explain PARTITION/OFFSET; resend, once the cause is fixed"
HINTS = {
    "wrong_partition": "send with the model's name as key and the partitioner of log.partitioner: see omdml doctor",
    "unknown_model": "add [models.NAME], or correct the name that the senders use",
    "unknown_item": "put the items into the catalogue (omdml catalogue put), or have events bring their vectors",
}

log = structlog.get_logger(__name__)


class RefusalLog:
    """Counts the refusals of all partitions of a worker, and says so: at once, then a minute later if there are more.

    Parameters
    ----------
    clock
        In seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._first: Refusal | None = None
        self._logged_at: float | None = None

    def note(self, refusal: Refusal) -> None:
        """Count a refused event by its reason, and remember the first one for the log."""
        self._counts[refusal.error.reason] += 1
        self._first = self._first or refusal

    def tell(self, at_once: bool = False) -> None:
        """Write the line if it is due and there is something to say."""
        now = self._clock()
        due = at_once or self._logged_at is None or now - self._logged_at >= EVERY_S
        if not self._first or not due:
            return
        record, error, model, _ = self._first
        counts = self._counts.most_common()
        log.warning(
            "dead_letters",
            count=self._counts.total(),
            reasons=", ".join(f"{count} {reason}" for reason, count in counts),
            first=f"{record.partition.number}/{record.offset}",
            model=model,
            reason=shortened(str(error), 300),
            hint=HINTS.get(counts[0][0], HINT),
        )
        self._counts.clear()
        self._first, self._logged_at = None, now
