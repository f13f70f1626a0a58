"""What Prometheus sees of a retrieval node, and how fresh its answers are."""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from omdml.letter_reasons import REASONS
from omdml.snapshot import Trail
from omdml.streams.catalogues.changes.change import Changed, ChangeError
from omdml.workers.configuration.config import is_pattern
from omdml.workers.node.galleries.candidates import CandidateIndex
from omdml.workers.node.galleries.indexing import is_approximate
from omdml.workers.node.view import View
from omdml.workers.telemetry import traces
from omdml.workers.telemetry.registry import FAST, FRESH, STORE, Families, ModelLabels, at_zero
from omdml.workers.telemetry.single_models import SingleModels

# An event older than a day comes from a replayed log, or has a wrong time. So it says nothing about freshness.
OLD_NEWS_S = 86_400.0
# The freshness of this many swaps is kept for each model: more than a new model has in its first half minute.
REMEMBERED = 2000
# One publication counts in histograms for at most this many events.
WEIGHT = 1000
REFUSED = ("corrupt", "format", "catalogue", "store", "other")
STAGES = ("log", "learn", "publish", "fetch", "swap")
OUTCOMES = ("accepted", "refused", "failed")
ITEM_OUTCOMES = ("put", "attributes", "deleted", "unknown", "refused")
# Gauges of one model alone. /metrics has them for models that are configured by name, /metrics/models for all.
ALONE = {
    "snapshot_version": "Comparisons that the serving snapshot has learned",
    "snapshot_serial": "Serial of the live pointer that is served",
    "snapshot_timestamp_seconds": "When the serving snapshot was published",
    "pinned": "1 if an operator pinned the live version",
    "gallery_complete": "0 while the gallery of this version is being embedded and an older one helps to answer",
}
SINGLE = {**ALONE, "gallery_items": "Items that searches look at", "gallery_bytes": "Memory of its gallery"}


class RecentSwaps:
    """How fresh answers were at the last ``REMEMBERED`` swaps of a model, in 32 kB.

    Any thread may use it. If two add at the same moment, one of the two may be lost.
    """

    def __init__(self) -> None:
        # When a view was made, and how fresh it was. Pages that were never written to take no memory.
        self._swaps = np.empty((REMEMBERED, 2))
        self._count = 0

    def add(self, made_at: float, freshness: float) -> None:
        """Note a swap; the oldest one is forgotten for it."""
        self._swaps[self._count % REMEMBERED] = made_at, freshness
        self._count += 1

    def after(self, since: float) -> NDArray[np.float64]:
        """Seconds of the swaps to views made after ``since``, in no order."""
        made_at, freshness = self._swaps[: self._count].T
        return freshness[made_at > since]


class NodeMetrics:
    """Counters and gauges of one node; models of a pattern share one label, the pattern.

    Parameters
    ----------
    models
        The values that the label ``model`` may have.
    """

    def __init__(self, registry: CollectorRegistry, models: ModelLabels | None = None) -> None:
        self.registry, self.models, new = registry, models or ModelLabels(), Families("omdml_node", registry)
        self.single = SingleModels("node", SINGLE)
        labels = self.models.all()
        self.searches = new.counter(
            "searches_total", "Searches answered", model=labels, exact=["true"], via=["gallery", "bridge"]
        )
        at_zero(self.searches, labels, ["false"], ["bridge", "index", "reranked"])
        self.search = new.seconds("search", "Seconds of a search, without HTTP", FAST, model=labels)
        self.swaps = new.seconds(
            "swap", "Seconds from noticing a new live version until the node answers with it", STORE, model=labels
        )
        self.fresh = new.seconds(
            "freshness",
            "Seconds from the oldest event of a publication until answers know it, counted once for each event in it",
            FRESH,
            model=labels,
        )
        self.stages = new.seconds(
            "event_stage",
            "Seconds of each stage on the way to answers, for the oldest event of a publication",
            FRESH,
            stage=STAGES,
        )
        self.future = new.counter(
            "events_from_future_total", "Events with a time in the future, by this node's clock", model=labels
        )
        self.stale = new.gauge(
            "stale_seconds", "Seconds for which the most outdated loaded model has been out of date, 0 if none is"
        )
        self.last_poll = new.gauge(
            "last_poll_timestamp_seconds", "When the store last answered about every model, 0 if it never did"
        )
        self.live = new.counter("snapshots_live_total", "Snapshots that went live here")
        self.refusals = new.counter(
            "snapshots_refused_total", "Snapshots that this node could not serve", reason=REFUSED
        )
        self.not_live = new.gauge(
            "refused_models", "Models whose live snapshot cannot be served: an older one answers, or none"
        )
        self.feedback = new.counter("feedback_events_total", "Events of POST /feedback", outcome=OUTCOMES)
        self.feedback_refused = new.counter(
            "feedback_refused_total", "Events refused by POST /feedback", reason=REASONS
        )
        self.queue = new.gauge("feedback_queue_requests", "Requests whose events are not durable yet")
        self.flush = new.seconds("feedback_flush", "Seconds to make the events of waiting requests durable", STORE)
        self.item_changes = new.counter(
            "item_changes_total",
            "Items changed by PUT, DELETE and POST /items; refused counts requests",
            outcome=ITEM_OUTCOMES,
        )
        self.item_change = new.seconds("item_change", "Seconds from a change's arrival until answers know it", STORE)
        self._recent: dict[str, RecentSwaps] = {}

    def watch(
        self, views: Mapping[str, View], label: Callable[[str], str], candidates: Mapping[str, CandidateIndex]
    ) -> None:
        """Export the live views, and the indexes that candidates come from, as metrics at every scrape."""
        self.registry.register(Views(views, label, self.models))
        self.registry.register(Indexes(candidates))
        self.single.ask = lambda: {name: partial(values_of, view) for name, view in dict(views).items()}

    def searched(self, label: str, view: View, version: int, took_s: float) -> None:
        """Count a search in a view. It is exact if the view's own ``version`` answered it, from an exact index."""
        label = self.models.of(label)
        exact = "true" if version == view.snapshot.version and not is_approximate(view) else "false"
        via = "index" if view.two_stage else "reranked" if view.reranked else "bridge" if view.origin else "gallery"
        self.searches.labels(label, exact, via).inc()
        self.search.labels(label).observe(took_s)

    def items_changed(self, result: Changed | ChangeError, took_s: float) -> None:
        """Count the changes of a request that were made, or the request if it was refused."""
        if isinstance(result, ChangeError):
            self.item_changes.labels("refused").inc()
            return
        counts = (result.put, result.attributes, result.deleted, len(result.unknown))
        for outcome, count in zip(ITEM_OUTCOMES, counts, strict=False):
            self.item_changes.labels(outcome).inc(count)
        self.item_change.observe(took_s)

    def refused_event(self, reason: str) -> None:
        """Count an event that POST /feedback refused."""
        self.feedback.labels("refused").inc()
        self.feedback_refused.labels(reason).inc()

    def refused_snapshot(self, reason: str) -> None:
        """Count a snapshot that this node cannot serve."""
        self.refusals.labels(reason if reason in REFUSED else "other").inc()

    def swapped(self, label: str, before: View | None, view: View, took_s: float) -> None:
        """Record that a view went live just now, and how fresh the events are that the view before it did not know."""
        label = self.models.of(label)
        if before is None or before.snapshot is not view.snapshot:
            self.live.inc()
        self.swaps.labels(label).observe(took_s)
        if before is None or view.snapshot.version <= before.snapshot.version:
            return
        now, trails = time.time(), view.snapshot.trails
        new = [trail for trail in trails if before.snapshot.version < trail.version and is_recent(trail, now)]
        for trail in new:
            self._observe(label, trail, (view.pointer.published_at, now - took_s, now))
        ages = [now - trail.oldest for trail in new]
        oldest = view.snapshot.oldest_event_time
        if not trails and oldest is not None and now - oldest <= OLD_NEWS_S:
            # A worker of an older release published it.
            ages = [now - oldest]
            self.fresh.labels(label).observe(max(0.0, ages[0]))
        if ages:
            self._recent.setdefault(label, RecentSwaps()).add(view.made_at, max(0.0, *ages))

    def _observe(self, label: str, trail: Trail, later: tuple[float, float, float]) -> None:
        """Observe how fresh the events of a publication are, which answers know from now on.

        ``later`` is when what answers was published, when this node began to load it, and now.
        """
        now = later[-1]
        age = now - trail.oldest
        if age < 0:
            self.future.labels(label).inc(trail.events)
        # One exemplar is enough to find the trace.
        exemplar = traces.exemplar(trail.trace)
        self.fresh.labels(label).observe(max(0.0, age), exemplar)
        for _ in range(min(trail.events, WEIGHT) - 1):
            self.fresh.labels(label).observe(max(0.0, age))
        for stage, seconds in zip(STAGES, stages_of(trail, later), strict=True):
            self.stages.labels(stage).observe(seconds, exemplar)
        traces.record_stage("node.swap", trail.trace, *later[1:], model=label, version=trail.version)

    def freshness(self, label: str, since: float = 0.0) -> dict[str, float] | None:
        """``p50_s``, ``p99_s`` and ``count`` of the last swaps to views made after ``since``; None before the first."""
        swaps = self._recent.get(self.models.of(label))
        recent = swaps.after(since) if swaps else np.empty(0)
        if not recent.size:
            return None
        p50, p99 = np.percentile(recent, [50, 99]).tolist()
        return {"p50_s": p50, "p99_s": p99, "count": len(recent)}


def is_recent(trail: Trail, now: float) -> bool:
    """Whether a publication says something about freshness: its oldest event is recent."""
    return now - trail.oldest <= OLD_NEWS_S


def stages_of(trail: Trail, later: tuple[float, float, float]) -> list[float]:
    """Seconds that the oldest event of a publication spent in each of ``STAGES``.

    ``later`` is when what answers was published, when this node began to load it, and when it went live.
    """
    times = (trail.oldest, trail.taken, trail.learned, *later)
    return [max(0.0, end - begin) for begin, end in pairwise(times)]


class Views(Collector):
    """What answers: sums by label, and what describes one model alone of those that are configured by name."""

    def __init__(self, views: Mapping[str, View], label: Callable[[str], str], models: ModelLabels) -> None:
        self._views, self._label, self._models = views, label, models

    def collect(self) -> Iterator[Any]:
        loaded: dict[str, Counts[str]] = {label: Counts() for label in self._models.all()}
        single = {name: family(name, text) for name, text in ALONE.items()}
        for model, view in dict(self._views).items():
            label = self._models.of(self._label(model))
            sums = loaded.setdefault(label, Counts())
            sums.update(models=1, items=view.shown.items, bytes=view.nbytes)
            if is_pattern(label) or label != model:
                continue
            values = values_of(view)
            for name, value in single.items():
                value.add_metric([label], values[name])
        summed = {
            "models": "Models that can answer",
            "items": "Items that searches look at",
            "bytes": "Memory of galleries",
        }
        for name, text in summed.items():
            total = family("loaded_models" if name == "models" else f"gallery_{name}", text)
            for label, sums in loaded.items():
                total.add_metric([label], sums[name])
            yield total
        yield from single.values()


class Indexes(Collector):
    """The indexes that candidates come from."""

    def __init__(self, candidates: Mapping[str, CandidateIndex]) -> None:
        self._candidates = candidates

    def collect(self) -> Iterator[Any]:
        """What each index holds now, and whether it can be read."""
        version = family("candidates_version", "Version that the index of candidates holds")
        away = family("candidates_away", "1 while the index of candidates cannot be read")
        for model, index in self._candidates.items():
            if index.version is not None:
                version.add_metric([model], index.version)
            away.add_metric([model], float(bool(index.away)))
        yield version
        yield away


def values_of(view: View) -> dict[str, float]:
    """The values of ``SINGLE`` for the view that answers for a model."""
    return {
        "snapshot_version": view.snapshot.version,
        "snapshot_serial": view.pointer.serial,
        "snapshot_timestamp_seconds": view.pointer.published_at,
        "pinned": float(view.pointer.pinned),
        "gallery_complete": float(view.origin is None),
        "gallery_items": view.shown.items,
        "gallery_bytes": view.nbytes,
    }


def family(name: str, text: str) -> GaugeMetricFamily:
    """An empty gauge with the label ``model``, to which samples are added."""
    return GaugeMetricFamily(f"omdml_node_{name}", text, labels=["model"])
