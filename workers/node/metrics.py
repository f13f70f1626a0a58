"""What Prometheus sees of a retrieval node, and how fresh its answers are."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from workers.node.live_model import View

# Events older than a day are a log replayed, or a wrong clock: they say nothing of freshness.
OLD_NEWS_S = 86_400.0
REMEMBERED = 1000  # swaps a model whose freshness is kept
SWAP_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0, 300.0)
SEARCH_SECONDS = (0.00005, 0.0001, 0.0002, 0.0005, *SWAP_SECONDS[:-2])


class NodeMetrics:
    """Counters and gauges of one node; models of a pattern share one label, the pattern."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"omdml_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"omdml_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"omdml_{name}_seconds", text, ["model"], buckets=buckets, registry=registry)

        self.registry = registry
        self.search = seconds("search", "Searching, without HTTP", SEARCH_SECONDS)
        self.swaps = seconds("swap", "From the look that finds a moved pointer to answers under it", SWAP_SECONDS)
        self.fresh = seconds("freshness", "From the oldest event of a snapshot to answers that know it", SWAP_SECONDS)
        self.items = gauge("gallery_items", "Items that are searched in", "model")
        self.version = gauge("snapshot_version", "Comparisons learned by what answers", "model")
        self.stale = gauge("stale_seconds", "Since the most outdated model was up to date, 0 where all are")
        self.snapshots = counter("snapshots_total", "Snapshots met, by what became of them", "outcome")
        self.not_live = gauge(
            "refused_models", "Models whose live snapshot cannot be served: an older one answers, or none"
        )
        self.accepted = counter("accepted_events_total", "Events taken by POST /feedback")
        self.refused = counter("refused_events_total", "Events refused by POST /feedback", "reason")
        self._recent: dict[str, deque[tuple[float, float]]] = {}  # when a view was made, and its freshness

    def watch_staleness(self, stale_seconds: Callable[[], float]) -> None:
        """Ask this for the staleness at every scrape."""
        self.stale.set_function(stale_seconds)

    def watch_refusals(self, models: Callable[[], float]) -> None:
        """Ask this for the number of models whose live snapshot cannot be served, at every scrape."""
        self.not_live.set_function(models)

    def swapped(self, label: str, before: View | None, view: View, took_s: float) -> None:
        """A view went live just now. Freshness is that of the events which the view before it did not know."""
        if before is None or before.snapshot is not view.snapshot:
            self.snapshots.labels("live").inc()
        self.swaps.labels(label).observe(took_s)
        self.items.labels(label).set(view.count)
        self.version.labels(label).set(view.snapshot.version)
        oldest = view.snapshot.oldest_event_time
        if before and oldest is not None and view.snapshot.version > before.snapshot.version:
            freshness = max(0.0, time.time() - oldest)
            if freshness > OLD_NEWS_S:
                return
            self.fresh.labels(label).observe(freshness)
            self._recent.setdefault(label, deque(maxlen=REMEMBERED)).append((view.made_at, freshness))

    def freshness(self, label: str, since: float = 0.0) -> dict[str, float] | None:
        """``p50_s``, ``p99_s`` and ``count`` of the last swaps to views made after ``since``; None before the first."""
        recent = [freshness for made_at, freshness in tuple(self._recent.get(label, ())) if made_at > since]
        if not recent:
            return None
        p50, p99 = np.percentile(recent, [50, 99]).tolist()
        return {"p50_s": p50, "p99_s": p99, "count": len(recent)}
