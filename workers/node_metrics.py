"""What Prometheus sees of a retrieval node, and how fresh its answers are."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from workers.view import View

REMEMBERED = 1000  # swaps a model whose freshness is kept
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0, 300.0)
SEARCH_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)


class NodeMetrics:
    """Counters and gauges of one node; models of a pattern share one label, the pattern."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.search = Histogram(
            "omdml_search_seconds", "Searching, without HTTP", ["model"], buckets=SEARCH_SECONDS, registry=registry
        )
        self.items = Gauge("omdml_gallery_items", "Items that are searched in", ["model"], registry=registry)
        self.swaps = Histogram(
            "omdml_swap_seconds", "From a moved pointer to answers", ["model"], buckets=SECONDS, registry=registry
        )
        self.stale = Gauge("omdml_stale_seconds", "Since the most outdated model was up to date", registry=registry)
        self.version = Gauge("omdml_snapshot_version", "Comparisons learned by what answers", ["model"], registry=registry)
        self.fresh = Histogram(
            "omdml_freshness_seconds", "From event to answers that know it", ["model"], buckets=SECONDS, registry=registry
        )
        self.snapshots = Counter("omdml_snapshots", "Snapshots met, by what became of them", ["outcome"], registry=registry)
        self.accepted = Counter("omdml_accepted_events", "Events taken by POST /feedback", registry=registry)
        self.refused = Counter(
            "omdml_refused_events", "Events refused by POST /feedback", ["reason"], registry=registry
        )
        self._recent: dict[str, deque[float]] = {}

    def watch_staleness(self, stale_seconds: Callable[[], float]) -> None:
        """Ask this for the staleness at every scrape."""
        self.stale.set_function(stale_seconds)

    def swapped(self, label: str, before: View | None, view: View, took_s: float) -> None:
        """A view went live just now. Freshness is that of the events which the view before it did not know."""
        self.snapshots.labels("live").inc()
        self.swaps.labels(label).observe(took_s)
        self.items.labels(label).set(view.count)
        self.version.labels(label).set(view.snapshot.version)
        oldest = view.snapshot.oldest_event_time
        if before and oldest is not None and view.snapshot.version > before.snapshot.version:
            freshness = max(0.0, time.time() - oldest)
            self.fresh.labels(label).observe(freshness)
            self._recent.setdefault(label, deque(maxlen=REMEMBERED)).append(freshness)

    def freshness(self, label: str) -> dict[str, float] | None:
        """``p50_s``, ``p99_s`` and ``count`` of the last swaps; None before the first."""
        recent = list(self._recent.get(label, ()))
        if not recent:
            return None
        p50, p99 = np.percentile(recent, [50, 99]).tolist()
        return {"p50_s": p50, "p99_s": p99, "count": len(recent)}
