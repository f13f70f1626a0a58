"""The metrics and probes of ``omdml sync``."""

from __future__ import annotations

import threading

from prometheus_client import CollectorRegistry

from omdml.workers.telemetry.condition import STARTING, Condition
from omdml.workers.telemetry.registry import Families


class SyncMetrics:
    """Counters and gauges of one ``omdml sync``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        new = Families("omdml_sync", registry)
        self._rows = new.counter(
            "rows_total", "Rows written to the draft, or removed from it", what=["written", "removed"]
        )
        self._versions = new.counter(
            "versions_total",
            "Versions that readers got; unmoved: without a switch, because their rows are near enough to the version",
            how=["switched", "unmoved"],
        )
        self._failures = new.counter("failures_total", "Attempts that failed; each is repeated")
        self._pending = new.gauge("pending_rows", "Rows to write before the next switch")
        self._items = new.gauge("items", "Items that readers see")
        self._version = new.gauge("version", "Version that readers see")
        self._newest = new.gauge("newest_version", "Live version of the model")
        self._current_at = new.gauge("current_timestamp_seconds", "Time at which readers last had the live version")

    def newest(self, version: int) -> None:
        """Set the live version of the model."""
        self._newest.set(version)

    def pending(self, rows: int) -> None:
        """Set how many rows are still to be written."""
        self._pending.set(rows)

    def wrote(self, what: str, rows: int) -> None:
        """Count rows that were committed to the draft; ``what`` is ``written`` or ``removed``."""
        self._rows.labels(what).inc(rows)
        self._pending.dec(rows)

    def current(self, version: int, items: int) -> None:
        """Set the version and the number of items that readers see now."""
        self._version.set(version)
        self._items.set(items)
        self._current_at.set_to_current_time()

    def checked(self) -> None:
        """Note that readers still have the live version."""
        self._current_at.set_to_current_time()

    def brought(self, how: str) -> None:
        """Count a version that readers got; ``how`` is ``switched`` or ``unmoved``."""
        self._versions.labels(how).inc()

    def failed(self) -> None:
        """Count an attempt that failed; it will be repeated."""
        self._failures.inc()


class SyncState:
    """The state of a sync, for its probes. Any thread may ask."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self.version: int | None = None
        self.waiting = ""

    def __call__(self) -> Condition:
        """The condition at this moment, for the probes."""
        stopping, ready = self._stop.is_set(), self.version is not None and not self.waiting
        if stopping:
            status = "stopping after the batch that is being written"
        elif self.waiting:
            status = f"waiting: {self.waiting}"
        elif self.version is None:
            return STARTING._replace(started=True)
        else:
            status = f"readers see version {self.version:,}"
        return Condition(started=True, alive=True, ready=ready and not stopping, stopping=stopping, status=status)
