"""What Prometheus and probes see of ``omdml sync``."""

from __future__ import annotations

import threading

from prometheus_client import CollectorRegistry, Counter, Gauge

from omdml.workers.telemetry.condition import STARTING, Condition
from omdml.workers.telemetry.registry import at_zero


class SyncMetrics:
    """Counters and gauges of one ``omdml sync``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        rows = Counter(
            "omdml_sync_rows_total", "Rows written to the draft, or removed from it", ["what"], registry=registry
        )
        self._rows = at_zero(rows, ["written", "removed"])
        switches = Counter("omdml_sync_versions_total", "Versions brought to readers", ["how"], registry=registry)
        self._versions = at_zero(switches, ["switched", "unmoved"])
        self._failures = Counter(
            "omdml_sync_failures_total", "Attempts that failed and are made again", registry=registry
        )
        self._pending = Gauge("omdml_sync_pending_rows", "Rows to write before the next switch", registry=registry)
        self._items = Gauge("omdml_sync_items", "Items that readers see", registry=registry)
        self._version = Gauge("omdml_sync_version", "Version that readers see", registry=registry)
        self._newest = Gauge("omdml_sync_newest_version", "Live version of the model", registry=registry)
        self._current_at = Gauge(
            "omdml_sync_current_timestamp_seconds", "When readers last had the live version", registry=registry
        )

    def newest(self, version: int) -> None:
        """This version of the model is live."""
        self._newest.set(version)

    def pending(self, rows: int) -> None:
        """So many rows are still to be written."""
        self._pending.set(rows)

    def wrote(self, what: str, rows: int) -> None:
        """Rows are committed to the draft."""
        self._rows.labels(what).inc(rows)
        self._pending.dec(rows)

    def current(self, version: int, items: int) -> None:
        """Readers see this version."""
        self._version.set(version)
        self._items.set(items)
        self._current_at.set_to_current_time()

    def checked(self) -> None:
        """Readers still have the live version."""
        self._current_at.set_to_current_time()

    def brought(self, how: str) -> None:
        """A version was brought to readers."""
        self._versions.labels(how).inc()

    def failed(self) -> None:
        """An attempt failed."""
        self._failures.inc()


class SyncState:
    """How a sync is, for its probes; asked from any thread."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self.version: int | None = None
        self.waiting = ""

    def __call__(self) -> Condition:
        """How it is just now."""
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
