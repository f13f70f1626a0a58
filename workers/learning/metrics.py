"""What Prometheus sees of a worker. Models of a pattern share one label, the pattern: gauges tell of the one that was
published last, but ``snapshot_held`` counts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streams.protocols import Partition
from workers.configuration.process import SECONDS

if TYPE_CHECKING:
    from workers.model.owned_model import OwnedModel


class WorkerMetrics:
    """Counters and gauges of one worker process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"omdml_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"omdml_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"omdml_{name}", text, labels, buckets=SECONDS, registry=registry)

        self.registry = registry
        self.events = counter("events_total", "Events taken from the log", "model", "kind", "outcome")
        self.ahead = counter("events_ahead_total", "Events that said they happened after they were logged", "model")
        self.mistakes = counter("mistakes_total", "Comparisons the metric had the wrong way round", "model")
        self.mistake_ratio = gauge("mistake_ratio", "Share of mistakes among the last thousand comparisons", "model")
        self.updates = counter("updates_total", "Comparisons that changed the metric", "model")
        self.learn_seconds = seconds("learn_seconds", "Looking up and learning one batch", "model")
        self.hedge_loss = gauge("hedge_loss", "Loss of what Hedge weighs, modalities or experts", "model")
        self.hedge_loss_bound = gauge("hedge_loss_bound", "What hedge_loss can at most be", "model")
        self.weight = gauge("modality_weight", "Weight of a modality", "model", "modality")
        self.version = gauge("learned_version", "Comparisons learned", "model")
        self.stage = counter("stage_seconds_total", "Where the worker's time goes", "stage")
        self.publish_seconds = seconds("publish_seconds", "Publication of one snapshot")
        self.checkpoint_seconds = seconds("checkpoint_seconds", "Saving of one checkpoint")
        self.checkpoint_age = gauge("checkpoint_age_seconds", "Time since everything taken was last made durable")
        self.snapshots = counter("snapshots_total", "Publications", "outcome")
        self.held = gauge("snapshot_held", "Models whose newest metric the guard keeps from going live", "model")
        self.waiting = gauge("models_waiting", "Models whose checkpoints cannot be read: their events wait in the log")
        self.unread = gauge(
            "partitions_unread", "Partitions added to the topic since omdml topics rehome: nobody reads them"
        )
        # By label: its models, and where each is at home.
        self._held: dict[str, dict[str, Partition | None]] = {}
        self.drift = counter("drift_total", "Alarms that mistakes became more frequent", "model")
        self.letters = counter("dead_letters_total", "Events that could not be learned", "reason")
        self.fenced = counter("fenced_total", "Writes refused because another worker owns the model")
        self.lag = gauge("lag_events", "Offsets to the log's end: events in Kafka, bytes in a file", "partition")
        self.lag_seconds = gauge("lag_seconds", "Age of the event taken last, 0 at the end of the log")
        self._caught_up = time.time()
        self._saved = time.monotonic()
        self.checkpoint_age.set_function(lambda: time.monotonic() - self._saved)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the time inside to a stage: fetch (what brought records), decode, look-up, learn, publish, save."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.spent(stage, time.perf_counter() - begin)

    @contextmanager
    def share_of(self, seconds: Histogram, count: int) -> Iterator[None]:
        """Observe the time inside, in which ``count`` of the same were done: each took its share."""
        begin = time.perf_counter()
        yield
        for _ in range(count):
            seconds.observe((time.perf_counter() - begin) / count)

    def spent(self, stage: str, seconds: float) -> None:
        """Time that went into a stage."""
        self.stage.labels(stage).inc(seconds)

    def taken(self, label: str, kinds: Mapping[str, int], outcome: str) -> None:
        """Events of one batch by kind, and what became of them."""
        for kind, count in kinds.items():
            self.events.labels(label, kind, outcome).inc(count)

    def refused(self, label: str, kind: str, reason: str, count: int = 1) -> None:
        """Dead letters."""
        self.events.labels(label, kind, "refused").inc(count)
        self.letters.labels(reason).inc(count)

    def published(self, label: str, model: OwnedModel, outcome: str) -> None:
        """A publication, or a snapshot put on record as withheld."""
        self.snapshots.labels(outcome).inc()
        held = self._held.setdefault(label, {})
        held.pop(model.name, None)
        if model.withheld:
            held[model.name] = model.home
        self.held.labels(label).set(len(held))
        for name, before in model.counted.items():
            model.counted[name] = getattr(model.learner, name)
            getattr(self, name).labels(label).inc(model.counted[name] - before)

    def describe(self, label: str, model: OwnedModel) -> None:
        """What a model looks like at its publication; the last one speaks for all that share a label."""
        learner = model.learner
        self.version.labels(label).set(learner.version)
        self.mistake_ratio.labels(label).set(model.progress.mistakes.recent_mistake_rate)
        for name in ("hedge_loss", "hedge_loss_bound"):
            if hasattr(learner, name):
                getattr(self, name).labels(label).set(getattr(learner, name))
        for modality, weight in getattr(learner, "weights", {}).items():
            self.weight.labels(label, modality).set(weight)

    def saved(self) -> None:
        """Everything taken is durable."""
        self._saved = time.monotonic()

    def behind(self, progress: Mapping[Partition, tuple[int, int]], last_event: float | None) -> None:
        """Of each owned partition, the offset after the last record taken, and the log's end."""
        behind = False
        for partition, (position, end) in progress.items():
            self.lag.labels(str(partition.number)).set(max(0, end - position))
            behind |= end > position
        now = time.time()
        if not behind:
            self._caught_up = now
        self.lag_seconds.set(max(0.0, now - (last_event or self._caught_up)) if behind else 0.0)

    def given_up(self, partition: Partition) -> None:
        """A partition is no longer owned: how far it is behind, and what of it is held, is its new owner's to say."""
        for label, held in self._held.items():
            for name in [name for name, home in held.items() if home == partition]:
                del held[name]
            self.held.labels(label).set(len(held))
        # Some versions of the client raise it if nothing was set yet.
        with suppress(KeyError):
            self.lag.remove(str(partition.number))
