"""What Prometheus sees of a worker. Models of a pattern share one label, the pattern, and are counted together.

Gauges that describe a single model exist only for models that are configured by name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from omdml.feedback import KINDS
from omdml.letter_reasons import REASONS
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Written
from omdml.workers.configuration.config import is_pattern
from omdml.workers.events.decoding import UNKNOWN
from omdml.workers.model.allowance import Allowance
from omdml.workers.model.judging.reason_codes import WORDS
from omdml.workers.model.memory_budget import MemoryBudget
from omdml.workers.telemetry import traces
from omdml.workers.telemetry.registry import FAST, STORE, ModelLabels, at_zero

if TYPE_CHECKING:
    from omdml.workers.model.owned_model import OwnedModel

OUTCOMES = ("learned", "held_out", "repeated", "refused")
STAGES = ("fetch", "decode", "look-up", "learn", "judge", "publish", "save", "merge", "idle")
DEPENDENCIES = ("log", "store", "letters")
WAITING_FOR = ("damaged", "moved")
TAKEN_BACK = "taken_back"
GUARD_MARGIN = "Mean margin of the newest version less that of the reference, on held-out events, when last judged"
# The label of what the guard keeps from going live.
WITHHELD = "held"


class WorkerMetrics:
    """Counters and gauges of one worker process.

    Parameters
    ----------
    models
        The values that the label ``model`` may have.
    topic
        Name of the log.
    lag_unit
        In what its positions count: ``offsets``, or ``bytes`` of a log in files.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        models: ModelLabels | None = None,
        topic: str = "",
        lag_unit: str = "offsets",
    ) -> None:
        self._models = models = models or ModelLabels()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"omdml_worker_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"omdml_worker_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"omdml_worker_{name}_seconds", text, labels, buckets=buckets, registry=registry)

        def of_models(text: str) -> Counter:
            name, text = text.split(": ", 1)
            return at_zero(counter(name, text, "model"), models.all())

        self.registry = registry
        # What comes in
        self.events = counter("events_total", "Events taken from the log", "model", "kind", "outcome")
        at_zero(self.events, models.all(), KINDS.values(), OUTCOMES)
        at_zero(self.events, [UNKNOWN], [UNKNOWN, *KINDS.values()], ["refused"])
        self.ahead = of_models("events_ahead_total: Events that claim to have happened after they were logged")
        self.letters = counter("dead_letters_total", "Events that could not be learned", "reason")
        at_zero(self.letters, REASONS)
        self.lag = gauge(
            f"lag_{lag_unit}",
            f"{lag_unit.capitalize()} between the newest taken record and the end of the log",
            "partition",
        )
        self.lag_seconds = gauge("lag_seconds", "Age of the oldest record not taken, 0 if there is none", "partition")
        self.last_event = gauge("last_event_timestamp_seconds", "When the newest taken record was logged", "partition")
        self.owned = gauge("owned_partitions", "Partitions that this worker reads", "topic").labels(topic)
        self.homes = gauge(
            "topic_partitions", "Partitions that models live on, the same at each worker", "topic"
        ).labels(topic)
        self.unread = gauge("unread_partitions", "Partitions added to the topic that no worker reads")
        self.rebalances = at_zero(
            counter("rebalances_total", "Partitions assigned, revoked or lost", "kind"), ["assigned", "revoked", "lost"]
        )
        # What is learned
        self.comparisons = of_models("comparisons_total: Comparisons learned")
        self.mistakes = of_models("mistakes_total: Comparisons that the metric ordered wrongly")
        self.updates = of_models("updates_total: Comparisons that changed the metric")
        self.drift = of_models("drift_alarms_total: Alarms about mistakes that became more frequent")
        self.learn_seconds = at_zero(
            seconds("learn", "Seconds to look up and learn one batch", FAST, "model"), models.all()
        )
        self.hedge_loss = gauge("hedge_loss", "Loss of Hedge's mix of modalities or experts, summed up", "model")
        self.hedge_loss_bound = gauge(
            "hedge_loss_bound", "Upper bound of hedge_loss; infinite if there is none", "model"
        )
        self.weight = gauge("modality_weight", "Weight of a modality", "model", "modality")
        self.version = gauge("learned_version", "Comparisons that the published metric has learned", "model")
        # What goes out
        self.publications = counter("publications_total", "Snapshots written to the store", "outcome")
        at_zero(self.publications, [Written.STORED.value, Written.ALREADY.value, WITHHELD, TAKEN_BACK])
        self.decisions = counter(
            "guard_decisions_total", "Decisions about whether a version may go live", "model", "decision", "reason"
        )
        at_zero(self.decisions, models.all(), ["live"], ["ok"])
        at_zero(self.decisions, models.all(), [WITHHELD], WORDS)
        self.margin = gauge("guard_margin", GUARD_MARGIN, "model")
        self.doubt = gauge("guard_doubt", "Margin of error of guard_margin", "model")
        self.withheld = at_zero(
            gauge("models_held", "Models whose newest version the guard withholds", "model"), models.all()
        )
        self.withheld_since = at_zero(
            gauge(
                "held_since_timestamp_seconds",
                "When withholding began, for the model of this label that has waited longest; 0 if none is withheld",
                "model",
            ),
            models.all(),
        )
        self.publish_seconds = seconds("publish", "Seconds to publish one snapshot", STORE)
        self.checkpoint_seconds = seconds("checkpoint", "Seconds to save one checkpoint", STORE)
        self.checkpoint_bytes = counter("checkpoint_bytes_total", "Bytes of learner states saved")
        self.allowance = gauge(
            "save_allowance_bytes", "Bytes that save_mb_s allows to be saved now; below 0 after a large save"
        )
        self.unsaved_since = gauge(
            "oldest_unsaved_timestamp_seconds", "When the oldest unsaved change was learned, 0 if everything is saved"
        )
        # The loop, and what it needs
        self.stage = at_zero(counter("stage_seconds_total", "Seconds of the worker's loop, by stage", "stage"), STAGES)
        self._stages = {stage: self.stage.labels(stage) for stage in STAGES}
        self.last_turn = gauge("last_turn_timestamp_seconds", "When the loop began its last turn")
        self.waiting = at_zero(
            gauge("waiting", "1 if learning waits for this to come back", "dependency"), DEPENDENCIES
        )
        self.draining = gauge("draining", "1 once the worker was asked to stop")
        self.models_waiting = at_zero(
            gauge("models_waiting", "Models whose checkpoints cannot be used: their events wait in the log", "cause"),
            WAITING_FOR,
        )
        self.resident = gauge("resident_models", "Models in memory")
        self.resident_bytes = gauge("resident_bytes", "Bytes of models in memory")
        self.resident_limit = gauge("resident_limit_bytes", "Bytes that models may take in memory")
        self.evictions = counter("evictions_total", "Models dropped from memory to make room for others")
        self.fenced = counter("fenced_total", "Writes refused because another worker owns the model")
        self.gaps = counter("gaps_accepted_total", "Gaps in the log that an operator accepted")
        self.store_changes = counter("store_changed_total", "Times that the store may have forgotten what was saved")
        # For each label, the homes of its models whose newest version is withheld, and since when.
        self._withheld: dict[str, dict[str, tuple[Partition | None, float]]] = {}
        # When the oldest record that was not taken was logged.
        self._oldest: dict[Partition, float | None] = {}
        self._evicted = 0
        # Seconds of stages inside the present one.
        self._inner = 0.0

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the time inside for a stage, without the time that is counted for another stage."""
        begin, outside = time.perf_counter(), self._inner
        self._inner = 0.0
        try:
            yield
        finally:
            took = time.perf_counter() - begin
            self.spent(stage, max(0.0, took - self._inner))
            self._inner = outside + took

    @contextmanager
    def share_of(self, seconds: Histogram, count: int) -> Iterator[None]:
        """Observe the time inside as ``count`` equal shares of it."""
        begin = time.perf_counter()
        yield
        share = (time.perf_counter() - begin) / max(count, 1)
        for _ in range(count):
            seconds.observe(share)

    @contextmanager
    def learning(self, label: str, model: OwnedModel) -> Iterator[None]:
        """Observe the time inside as that of one batch; the trace of an event in it is its exemplar."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - begin
            self.learn_seconds.labels(self._models.of(label)).observe(took, traces.exemplar(model.trails.traced))

    def spent(self, stage: str, seconds: float) -> None:
        """Add seconds that the loop spent in a stage."""
        self._stages[stage].inc(seconds)

    def count_events(self, label: str, kinds: Mapping[str, int], outcome: str) -> None:
        """Count the events of one batch by kind and outcome."""
        for kind, count in kinds.items():
            self.events.labels(self._models.of(label), kind, outcome).inc(count)

    def count_refused(self, label: str, kind: str, reason: str, count: int = 1) -> None:
        """Count dead letters by their reason."""
        self.events.labels(label if label == UNKNOWN else self._models.of(label), kind, "refused").inc(count)
        self.letters.labels(reason).inc(count)

    def count_learned(self, label: str, model: OwnedModel, ahead: int) -> None:
        """Count a learned batch: comparisons, mistakes and updates since the last one, and the guard's decisions."""
        label = self._models.of(label)
        counters = {"version": self.comparisons, "mistakes": self.mistakes, "updates": self.updates}
        for name, before in model.counted.items():
            model.counted[name] = getattr(model.learner, name)
            counters[name].labels(label).inc(max(0, model.counted[name] - before))
        for reason, count in model.judge.guard.decisions.items():
            self.decisions.labels(label, "live" if reason == "ok" else WITHHELD, reason).inc(count)
        model.judge.guard.decisions.clear()
        self.ahead.labels(label).inc(ahead)

    def count_drift(self, label: str) -> None:
        """Count an alarm about drift of a model."""
        self.drift.labels(self._models.of(label)).inc()

    def count_published(self, label: str, model: OwnedModel, outcome: str) -> None:
        """Count a publication, or a snapshot that was recorded as withheld."""
        self.publications.labels(outcome).inc()
        withheld = self._withheld.setdefault(self._models.of(label), {})
        since = withheld.pop(model.name, (None, time.time()))[1]
        if model.judge.withheld:
            withheld[model.name] = model.home, since
        self._set_withheld(self._models.of(label))

    def count_taken_back(self) -> None:
        """Count that the guard made the reference live again."""
        self.publications.labels(TAKEN_BACK).inc()

    def _set_withheld(self, label: str) -> None:
        withheld = self._withheld[label]
        self.withheld.labels(label).set(len(withheld))
        self.withheld_since.labels(label).set(min((since for _, since in withheld.values()), default=0.0))

    def describe(self, label: str, model: OwnedModel) -> None:
        """Set the gauges of a model that is configured by name, at its publication."""
        if is_pattern(label) or self._models.of(label) != label:
            return
        learner = model.learner
        self.version.labels(label).set(learner.version)
        for name in ("hedge_loss", "hedge_loss_bound"):
            if hasattr(learner, name):
                getattr(self, name).labels(label).set(getattr(learner, name))
        for modality, weight in getattr(learner, "weights", {}).items():
            self.weight.labels(label, modality).set(weight)
        if compared := model.judge.guard.compared:
            self.margin.labels(label).set(compared.margin)
            self.doubt.labels(label).set(compared.doubt)

    def set_memory(self, memory: MemoryBudget, allowance: Allowance, unsaved_since: float | None) -> None:
        """Set how much is in memory, how much may be saved, and since when something is unsaved."""
        self.resident.set(len(memory))
        self.resident_bytes.set(memory.total)
        self.resident_limit.set(memory.limit)
        self.evictions.inc(memory.evictions - self._evicted)
        self._evicted = memory.evictions
        self.allowance.set(allowance.left)
        self.unsaved_since.set(unsaved_since or 0.0)

    def set_waiting(self, *dependencies: str) -> None:
        """Set which of the log, the store and the dead letters learning waits for."""
        for name in DEPENDENCIES:
            self.waiting.labels(name).set(name in dependencies)

    def set_newest_taken(self, partition: Partition, logged_at: float) -> None:
        """Set the time at which the newest taken record was logged."""
        self.last_event.labels(str(partition.number)).set(logged_at)

    def set_backlog(self, partition: Partition, backlog: int, oldest: float | None) -> None:
        """Set the backlog of an owned partition, and the time at which its oldest record was logged."""
        number = str(partition.number)
        if partition not in self._oldest:
            # It is asked at every scrape: the oldest record grows older if the loop hangs, too.
            self.lag_seconds.labels(number).set_function(lambda: self._age(partition))
        self._oldest[partition] = oldest
        self.lag.labels(number).set(max(0, backlog))

    def _age(self, partition: Partition) -> float:
        oldest = self._oldest.get(partition)
        return 0.0 if oldest is None else max(0.0, time.time() - oldest)

    def remove_partition(self, partition: Partition) -> None:
        """Remove the values of a partition that is no longer owned. Its new owner exports them."""
        for label, withheld in self._withheld.items():
            for name in [name for name, (home, _) in withheld.items() if home == partition]:
                del withheld[name]
            self._set_withheld(label)
        self._oldest.pop(partition, None)
        for family in (self.lag, self.lag_seconds, self.last_event):
            # Some versions of the client raise it if nothing was set yet.
            with suppress(KeyError):
                family.remove(str(partition.number))
