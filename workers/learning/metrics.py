"""What Prometheus sees of a worker. Models of a pattern share one label, the pattern, and are counted together.

Gauges that describe a single model exist only for models that are configured by name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, Histogram

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
from omdml.workers.telemetry.registry import FAST, STORE, Families, ModelLabels, at_zero

if TYPE_CHECKING:
    from omdml.workers.model.stored_model import StoredModel

OUTCOMES = ("learned", "held_out", "repeated", "refused")
STAGES = ("fetch", "decode", "look-up", "learn", "judge", "publish", "save", "merge", "idle")
DEPENDENCIES = ("log", "store", "letters")
WAITING_FOR = ("damaged", "moved")
TAKEN_BACK = "taken_back"
# The label of what the guard keeps from going live.
WITHHELD = "held"
# /metrics/models has them too.
GUARD_MARGIN = "Mean gain in margin of the newest version over the reference, when last judged"
GUARD_DOUBT = "Margin of error of the guard's margin"


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
        self.registry, models, new = registry, models or ModelLabels(), Families("omdml_worker", registry)
        self.intake = Intake(new, models, topic, lag_unit)
        self.learning = Learning(new, models)
        self.output = Output(new, models)
        self.loop = Loop(new)

    def remove_partition(self, partition: Partition) -> None:
        """Remove the values of a partition that is no longer owned. Its new owner exports them."""
        self.output.remove_withheld(partition)
        self.intake.remove_lag(partition)
        for single in (self.learning.single, self.output.single):
            single.remove(partition)


class SingleGauges:
    """Gauges of single models, which are removed with the partition of the model.

    Otherwise the old values of this worker would be there beside those of the next owner.
    """

    def __init__(self) -> None:
        self._series: dict[Partition | None, set[tuple[Gauge, tuple[str, ...]]]] = {}

    def set(self, home: Partition | None, gauge: Gauge, value: float, *labels: str) -> None:
        """Set a gauge of a model that is at home in this partition."""
        gauge.labels(*labels).set(value)
        self._series.setdefault(home, set()).add((gauge, labels))

    def remove(self, home: Partition) -> None:
        """Remove the gauges of all models that are at home in this partition."""
        for gauge, labels in self._series.pop(home, ()):
            gauge.remove(*labels)


class Intake:
    """What comes in: events, and how far the worker is behind the log."""

    def __init__(self, new: Families, models: ModelLabels, topic: str, lag_unit: str) -> None:
        self._models, labels, kinds = models, models.all(), KINDS.values()
        self.events = new.counter(
            "events_total", "Events taken from the log", model=labels, kind=kinds, outcome=OUTCOMES
        )
        at_zero(self.events, [UNKNOWN], [UNKNOWN, *kinds], ["refused"])
        self.ahead = new.counter(
            "events_ahead_total", "Events that claim to have happened after they were logged", model=labels
        )
        self.letters = new.counter("dead_letters_total", "Events that could not be learned", reason=REASONS)
        newest = f"{lag_unit.capitalize()} between the newest taken record and the end of the log"
        self.lag = new.gauge(f"lag_{lag_unit}", newest, partition=())
        self.lag_seconds = new.gauge(
            "lag_seconds", "Age of the oldest record not taken, 0 if there is none", partition=()
        )
        self.last_event = new.gauge(
            "last_event_timestamp_seconds", "When the newest taken record was logged", partition=()
        )
        self.owned = new.gauge("owned_partitions", "Partitions that this worker reads", topic=()).labels(topic)
        self.homes = new.gauge(
            "topic_partitions", "Partitions that models live on, the same at each worker", topic=()
        ).labels(topic)
        self.unread = new.gauge("unread_partitions", "Partitions added to the topic that no worker reads")
        self.rebalances = new.counter(
            "rebalances_total", "Partitions assigned, revoked or lost", kind=["assigned", "revoked", "lost"]
        )
        # When the oldest record that was not taken was logged, and the newest one that was.
        self._oldest: dict[Partition, float | None] = {}
        self.newest: dict[Partition, float] = {}

    def count_events(self, label: str, kinds: Mapping[str, int], outcome: str) -> None:
        """Count the events of one batch by kind and outcome."""
        for kind, count in kinds.items():
            self.events.labels(self._models.of(label), kind, outcome).inc(count)

    def count_ahead(self, label: str, count: int) -> None:
        """Count events of one batch that claim to have happened after they were logged."""
        self.ahead.labels(self._models.of(label)).inc(count)

    def count_refused(self, label: str, kind: str, reason: str, count: int = 1) -> None:
        """Count dead letters by their reason."""
        self.events.labels(label if label == UNKNOWN else self._models.of(label), kind, "refused").inc(count)
        self.letters.labels(reason).inc(count)

    def set_newest_taken(self, partition: Partition, logged_at: float) -> None:
        """Set the time at which the newest taken record was logged."""
        self.newest[partition] = logged_at
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

    def remove_lag(self, partition: Partition) -> None:
        """Remove what is known of a partition."""
        self._oldest.pop(partition, None)
        self.newest.pop(partition, None)
        for family in (self.lag, self.lag_seconds, self.last_event):
            # Some versions of the client raise it if nothing was set yet.
            with suppress(KeyError):
                family.remove(str(partition.number))


class Learning:
    """Metrics of learning, by model: how much was learned, and how well the metric knew it before."""

    def __init__(self, new: Families, models: ModelLabels) -> None:
        self._models, labels = models, models.all()
        self.comparisons = new.counter("comparisons_total", "Comparisons learned", model=labels)
        self.mistakes = new.counter("mistakes_total", "Comparisons that the metric ordered wrongly", model=labels)
        self.updates = new.counter("updates_total", "Comparisons that changed the metric", model=labels)
        self.drift = new.counter("drift_alarms_total", "Alarms about mistakes that became more frequent", model=labels)
        self.seconds = new.seconds("learn", "Seconds to look up and learn one batch", FAST, model=labels)
        self.hedge_loss = new.gauge("hedge_loss", "Loss of Hedge's mix of modalities or experts, summed up", model=())
        self.hedge_loss_bound = new.gauge(
            "hedge_loss_bound", "Upper bound of the loss of Hedge's mix; infinite if there is none", model=()
        )
        self.weight = new.gauge("modality_weight", "Weight of a modality", model=(), modality=())
        self.single = SingleGauges()
        self.version = new.gauge("learned_version", "Comparisons that the published metric has learned", model=())

    @contextmanager
    def timed(self, label: str, model: StoredModel) -> Iterator[None]:
        """Observe the time inside as that of one batch; the trace of an event in it is its exemplar."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - begin
            self.seconds.labels(self._models.of(label)).observe(took, traces.exemplar(model.trails.traced))

    def count(self, label: str, model: StoredModel) -> None:
        """Count comparisons, mistakes and updates since the last count."""
        counters = {"version": self.comparisons, "mistakes": self.mistakes, "updates": self.updates}
        for name, before in model.counted.items():
            model.counted[name] = getattr(model.learner, name)
            counters[name].labels(self._models.of(label)).inc(max(0, model.counted[name] - before))

    def count_drift(self, label: str) -> None:
        """Count an alarm about drift of a model."""
        self.drift.labels(self._models.of(label)).inc()

    def describe(self, label: str, model: StoredModel) -> None:
        """Set the gauges of a model that is configured by name, at its publication."""
        if not is_single(label, self._models):
            return
        learner, home = model.learner, model.home
        self.single.set(home, self.version, learner.version, label)
        for name in ("hedge_loss", "hedge_loss_bound"):
            if hasattr(learner, name):
                self.single.set(home, getattr(self, name), getattr(learner, name), label)
        for modality, weight in getattr(learner, "weights", {}).items():
            self.single.set(home, self.weight, weight, label, modality)


class Output:
    """What goes out: the guard's decisions, publications, checkpoints."""

    def __init__(self, new: Families, models: ModelLabels) -> None:
        self._models, labels = models, models.all()
        outcomes = [Written.STORED.value, Written.ALREADY.value, WITHHELD, TAKEN_BACK]
        self.publications = new.counter(
            "publications_total",
            "Snapshots written to the store; already: the store had it; held: withheld by the guard; taken_back: an "
            "earlier version is live again",
            outcome=outcomes,
        )
        self.decisions = new.counter(
            "guard_decisions_total", "Decisions about whether a version may go live",
            model=labels, decision=["live"], reason=["ok"],
        )  # fmt: skip
        at_zero(self.decisions, labels, [WITHHELD], WORDS)
        self.margin = new.gauge("guard_margin", GUARD_MARGIN, model=())
        self.doubt = new.gauge("guard_doubt", GUARD_DOUBT, model=())
        self.withheld = new.gauge("models_held", "Models whose newest version the guard withholds", model=labels)
        self.withheld_since = new.gauge(
            "held_since_timestamp_seconds",
            "When withholding began, for the model withheld longest; 0 if none is",
            model=labels,
        )
        self.publish_seconds = new.seconds("publish", "Seconds to publish one snapshot", STORE)
        self.checkpoint_seconds = new.seconds("checkpoint", "Seconds to save one checkpoint", STORE)
        self.checkpoint_bytes = new.counter("checkpoint_bytes_total", "Bytes of learner states saved")
        # For each label, the homes of its models whose newest version is withheld, and since when.
        self._withheld: dict[str, dict[str, tuple[Partition | None, float]]] = {}
        self.single = SingleGauges()

    def count_decisions(self, label: str, model: StoredModel) -> None:
        """Count the guard's decisions about a model since the last count."""
        for reason, count in model.judge.guard.decisions.items():
            self.decisions.labels(self._models.of(label), "live" if reason == "ok" else WITHHELD, reason).inc(count)
        model.judge.guard.decisions.clear()

    def count_published(self, label: str, model: StoredModel, outcome: str) -> None:
        """Count a publication, or a snapshot that was recorded as withheld."""
        self.publications.labels(outcome).inc()
        withheld = self._withheld.setdefault(self._models.of(label), {})
        since = withheld.pop(model.name, (None, time.time()))[1]
        if model.judge.withheld:
            withheld[model.name] = model.home, since
        self._set_withheld(self._models.of(label))
        if is_single(label, self._models) and (compared := model.judge.guard.compared):
            self.single.set(model.home, self.margin, compared.margin, label)
            self.single.set(model.home, self.doubt, compared.doubt, label)

    def count_taken_back(self) -> None:
        """Count that the guard made the reference live again."""
        self.publications.labels(TAKEN_BACK).inc()

    def _set_withheld(self, label: str) -> None:
        withheld = self._withheld[label]
        self.withheld.labels(label).set(len(withheld))
        self.withheld_since.labels(label).set(min((since for _, since in withheld.values()), default=0.0))

    def remove_withheld(self, partition: Partition) -> None:
        """Count the withheld models of a partition no longer."""
        for label, withheld in self._withheld.items():
            for name in [name for name, (home, _) in withheld.items() if home == partition]:
                del withheld[name]
            self._set_withheld(label)


class Loop:
    """The loop, and what it needs."""

    def __init__(self, new: Families) -> None:
        self.allowance = new.gauge(
            "save_allowance_bytes", "Bytes that worker.save_mb_s allows to be saved now; below 0 after a large save"
        )
        self.unsaved_since = new.gauge(
            "oldest_unsaved_timestamp_seconds", "When the oldest unsaved change was learned, 0 if everything is saved"
        )
        self.stage = new.counter("stage_seconds_total", "Seconds of the worker's loop, by stage", stage=STAGES)
        self._stages = {stage: self.stage.labels(stage) for stage in STAGES}
        self.last_turn = new.gauge("last_turn_timestamp_seconds", "When the loop began its last turn")
        self.waiting = new.gauge("waiting", "1 if learning waits for this dependency", dependency=DEPENDENCIES)
        self.draining = new.gauge("draining", "1 once the worker was asked to stop")
        self.models_waiting = new.gauge(
            "models_waiting", "Models whose checkpoints cannot be used: their events wait in the log", cause=WAITING_FOR
        )
        self.resident = new.gauge("resident_models", "Models in memory")
        self.resident_bytes = new.gauge("resident_bytes", "Bytes of models in memory")
        self.resident_limit = new.gauge("resident_limit_bytes", "Bytes that models may take in memory")
        self.evictions = new.counter("evictions_total", "Models dropped from memory to make room for others")
        self.fenced = new.counter("fenced_total", "Writes refused because another worker owns the model")
        self.gaps = new.counter("gaps_accepted_total", "Gaps in the log that an operator accepted")
        self.store_changes = new.counter(
            "store_changed_total", "Times that the store may have forgotten what was saved"
        )
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

    def spent(self, stage: str, seconds: float) -> None:
        """Add seconds that the loop spent in a stage."""
        self._stages[stage].inc(seconds)

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


@contextmanager
def share_of(seconds: Histogram, count: int) -> Iterator[None]:
    """Observe the time inside as ``count`` equal shares of it."""
    begin = time.perf_counter()
    yield
    share = (time.perf_counter() - begin) / max(count, 1)
    for _ in range(count):
        seconds.observe(share)


def is_single(label: str, models: ModelLabels) -> bool:
    """Whether a label is the name of one model, with gauges of its own."""
    return not is_pattern(label) and models.of(label) == label
