"""One owned partition, exactly once.

The protocol, in numbered steps. After a crash between any two of them the next owner starts at step 1 and ends with
the same bytes:

1. start     at min(mark, commit). Nothing was taken: nothing is lost.
2. claim     a model at its first event: its epoch rises, its checkpoint is loaded. A crash leaves a higher epoch.
3. take      learn what lies at or after the model's ``next``; what cannot be learned becomes a dead letter. Only
             memory changed: a crash takes it all again.
4. publish   a snapshot. It may run ahead of the checkpoint: a replay makes the same bytes, and until it has caught up
             with what is live it publishes nothing.
5. save      a checkpoint a changed model. A crash between two models: the saved one skips by its ``next``, the other
             one learns again from its older checkpoint.
6. letters   flushed until acknowledged. A crash sends some twice: readers tell them by position.
7. mark      moved to the first offset that is in no checkpoint, from where this owner left it. A crash replays what
             every model skips.
8. look      whether the store is still the one that took all this. One that was brought back older, or failed over,
             may have forgotten some of it, whatever its mark says: the partition begins again, at the lower of its mark
             and the last one that was looked at. A crash leaves the commit there: min(mark, commit).
9. commit    to the log. A crash leaves it behind the mark: min(mark, commit) replays what every model skips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import quote

import structlog

from omdml.errors import CorruptError, FeedbackError, Fenced, GapError, StoreError, StoreLost
from omdml.feedback import decode
from omdml.metrics import Metric
from streams.letters import DeadLetters
from streams.protocols import Partition, Record, Source, Store, Written
from workers.guard import Guard
from workers.intake import JSON, Batch, Refusal, content_type, sort_out
from workers.metrics import WorkerMetrics
from workers.model import OwnedModel
from workers.specs import Spec, Specs

MAX_NAME = 200  # of a model, percent-encoded: a folder's limit is 255
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Services:
    """What a partition works with."""

    store: Store
    source: Source
    letters: DeadLetters
    specs: Specs
    metrics: WorkerMetrics
    platform: str
    clock: Callable[[], float]
    accept_gap: bool = False
    homes: dict[str, Partition] = field(default_factory=dict)  # of models claimed by this worker's partitions


class OwnedPartition:
    """The models whose events lie in one partition, and how far each is taken, published and saved."""

    def __init__(self, partition: Partition, services: Services) -> None:
        self.partition = partition
        self.services = services
        self.models: dict[str, OwnedModel] = {}
        self._strangers: dict[str, Partition] = {}  # models at home elsewhere
        self.first: int | None = None  # offset of the first record that was taken here
        self._taken: int | None = None  # offset after the last
        self.marked: int | None = None  # the mark that was last looked at: what is below it was kept
        self._run = ""  # of the store, by then
        self._cut: int | None = None  # where reading goes on after a gap that was accepted
        self._refused: list[Refusal] = []  # not in the dead letters yet

    # 1
    def start(self, committed: int | None) -> int | None:
        """Where to read from: min(mark, commit), or the mark alone; None is the beginning of the log.

        Raises StoreLost for a commit without a mark: the store was lost, and learning anew would be silent.
        """
        marks = self.services.store.marks([self.partition])
        mark = marks.get(self.partition)
        if mark is None and committed is not None:
            raise self._store_lost(committed)
        self.marked, self._run = mark, marks.run
        if mark is None or committed is None:
            return mark
        return min(mark, committed)

    # 2
    def claim(self, name: str) -> tuple[OwnedModel, bool]:
        """Become the owner of a model, and say where its home is; True where only an older checkpoint was sound."""
        spec = self._spec(name)
        epoch, checkpoint, fell_back = self.services.store.claim(name)
        learner = spec.fresh() if checkpoint is None else spec.resumed(checkpoint)
        model = OwnedModel(name, learner, spec.catalogue, epoch, spec.digest, Guard(spec.guard, learner.metric))
        live = self.services.store.current(name)
        model.published = live.version if live else -1
        if checkpoint is not None:
            model.resume(checkpoint)
            if checkpoint.platform != self.services.platform:
                log.warning("platform_changed", then="from here on bytes may differ from a replay",
                            model=name, there=checkpoint.platform, here=self.services.platform)  # fmt: skip
            if checkpoint.generation != spec.catalogue.generation:
                log.warning("catalogue_generation_adopted", model=name, offset=model.next,
                            before=checkpoint.generation, after=spec.catalogue.generation)  # fmt: skip
        if model.progress.held:
            model.guard = Guard(spec.guard, self._live(name), model.progress.held)
        log.info("model_claimed", model=name, version=learner.version, next=model.next, epoch=epoch)
        self.services.homes[name] = self._home(model)
        return model, fell_back

    def _live(self, name: str) -> Metric | None:
        """What nodes answer with; None where that cannot be told."""
        try:
            found = self.services.store.load(name)
        except CorruptError as error:
            log.warning("live_snapshot_damaged", model=name, reason=str(error))
            return None
        return found[1].metric if found else None

    def _spec(self, name: str) -> Spec:
        spec = self.services.specs.find(name)
        assert spec is not None
        return spec

    # 3
    def take(self, records: list[Record]) -> None:
        """Learn records, in order.

        Raises StoreError where the store is out of reach for a claim: nothing was taken then, take them again.
        """
        with self.services.metrics.timed("decode"):
            batches, refused = sort_out(records, self._accepts)
        for name in batches:
            if name not in self.models and name not in self._strangers:
                self._meet(name, records[0].offset)
        self._refused += refused
        for name, batch in batches.items():
            if name in self._strangers:
                self._refused += [self._stray(record, name) for record in batch.records]
            else:
                self._refused += self._learn(self.models[name], batch)
        if self.first is None:
            self.first = records[0].offset
        self._taken = records[-1].offset + 1
        self._bury()

    def _meet(self, name: str, at: int) -> None:
        """Claim a model at its first event, unless its home is another partition.

        Raises Rewind where only an older checkpoint was sound: what its home holds since is taken again, and what lies
        from ``at`` on, of which nothing was taken yet.
        """
        homes = self.services.homes
        if homes.get(name, self.partition) == self.partition:
            model, fell_back = self.claim(name)
            if homes[name] == self.partition:
                self.models[name] = model
                if fell_back:
                    begin = min(model.next, at)
                    self.services.source.seek(self.partition, begin)
                    raise Rewind(name, self.partition, begin)
                return
        self._strangers[name] = homes[name]

    def _home(self, model: OwnedModel) -> Partition:
        """Where a claimed model's events live; raises GapError where that is in a log of the past."""
        if model.home is not None and model.home.topic_id != self.partition.topic_id:
            if not self.services.accept_gap:
                raise GapError(
                    f"model {model.name!r} was learned from log {model.home.topic_id}, this one is "
                    f"{self.partition.topic_id}: it was made anew. Bring the old log back, begin with an empty store, "
                    "or go on with this log as it is (omdml worker --accept-gap)"
                )
            model.home, model.next = None, 0
        if self._cut is not None:
            model.next = min(model.next, self._cut)
        return model.home or self.partition

    def go_on_at(self, offset: int) -> None:
        """A gap was accepted: whatever lies at or after this offset is new to every model."""
        self._cut = offset
        for model in self.models.values():
            model.next = min(model.next, offset)

    def forget(self) -> None:
        """Let go of everything in memory."""
        for name in [name for name, home in self.services.homes.items() if home == self.partition]:
            del self.services.homes[name]
        self.models.clear()

    def _accepts(self, name: str) -> frozenset[str] | None:
        if len(quote(name, safe="")) > MAX_NAME:
            raise FeedbackError(f"model name of {len(name)} characters: at most {MAX_NAME} once percent-encoded")
        spec = self.services.specs.find(name)
        return None if spec is None else spec.learner.accepts

    def _learn(self, model: OwnedModel, batch: Batch) -> list[Refusal]:
        if batch.records[0].offset < model.next:
            batch = batch.since(model.next)
            if not batch.records:
                return []
        model.home = self.partition
        if model.changed_at is None:
            model.changed_at = self.services.clock()
        label = self._spec(model.name).label
        with self.services.metrics.learn_seconds.labels(label).time():
            refused = model.take(batch, self.services.metrics.timed)
        self.services.metrics.learned(label, batch.kinds(without={refusal.record.offset for refusal in refused}))
        return refused

    def _stray(self, record: Record, name: str) -> Refusal:
        message = (
            f"events of model {name!r} live in partition {self._strangers[name]}, this one came by {self.partition}: "
            "send every event with the model's name as key, and with the default (murmur2) partitioner"
        )
        return Refusal(record, FeedbackError(message, reason="wrong_partition"), name)

    def _bury(self) -> None:
        """Move refused events to the dead letters; what their sink cannot take stays here, and so does the mark."""
        while self._refused:
            record, error, name = self._refused[0]
            self.services.letters.add(record, error, name)
            spec = self.services.specs.find(name) if name else None
            self.services.metrics.refused(spec.label if spec else "unknown", kind_of(record), error.reason)
            del self._refused[0]
            if name in self.models:
                model = self.models[name]
                model.next = max(model.next, record.offset + 1)

    # 4
    def publish(self, record: bool = False) -> None:
        """Bring what was learned since to the nodes, if the guard lets it; raises Fenced.

        What is held back goes into the store only where it is to be on ``record``: once a second, not fifty times.
        """
        for model in self.models.values():
            self._tell(model)
            if model.learner.version > model.published:
                self._publish(model, record)

    def _tell(self, model: OwnedModel) -> None:
        """Bring drift into the history."""
        if model.drifted:
            self._written(self.services.store.note(model.name, model.epoch, "drift", model.drifted), model.name)
            self.services.metrics.drift.labels(self._spec(model.name).label).inc()
            model.drifted = ""

    def _publish(self, model: OwnedModel, record: bool) -> None:
        if not record and not model.guard.looks:
            return
        with self.services.metrics.timed("publish"):
            snapshot = model.snapshot()
            held = model.judge(snapshot.metric)
            if held and not record:
                return
            with self.services.metrics.publish_seconds.time():
                written = self.services.store.publish(snapshot, model.epoch, held)
        self._written(written, model.name)
        model.published = model.learner.version
        if not held:
            model.oldest = None
        self.services.metrics.published(self._spec(model.name).label, model, "held" if held else written.value)

    def publish_first(self, name: str) -> None:
        """Publish a model that the store has no snapshot of (its version 0), or none under the catalogue's generation:
        nodes are ready before the first click."""
        live = None if name in self.models else self.services.store.load(name)
        if name in self.models or (live and live[1].generation == self._spec(name).catalogue.generation):
            return
        model, _ = self.claim(name)
        at_home = self.services.homes[name] == self.partition
        if model.home is None:
            del self.services.homes[name]  # that is where its first event will come by, here or elsewhere
        if at_home and (live is None or model.learner.version >= live[1].version):
            self._written(self.services.store.publish(model.snapshot(), model.epoch), name)

    # 5 to 9
    def save(self, untaken: int | None = None, commit: bool = True) -> None:
        """Make everything taken so far durable.

        Parameters
        ----------
        untaken
            Offset of the first record that was polled and not taken, if there is one.
        commit
            Off inside a rebalance, where a client cannot commit: min(mark, commit) covers it.

        What was learned is published first: a successor starts behind the mark and would not know of it.
        Raises Fenced, StoreChanged, StoreError or SourceError; then nothing was committed.
        """
        self.publish(record=True)
        position = self._position() if untaken is None else untaken
        self._save_changed()
        self._bury()
        self.services.letters.flush()
        before = self.marked
        self._move_mark(position)
        if commit and self.marked is not None and self.marked != before:
            self.services.source.commit({self.partition: self.marked})

    def _save_changed(self) -> None:
        changed = [model for model in self.models.values() if model.changed_at is not None]
        for model in sorted(changed, key=lambda model: model.changed_at or 0.0):
            with self.services.metrics.checkpoint_seconds.time(), self.services.metrics.timed("save"):
                written = self.services.store.save(model.checkpoint(self.services.platform), model.epoch)
            self._written(written, model.name)
            model.changed_at = None

    def _move_mark(self, position: int | None) -> None:
        """Move the mark, if there is need to, and look; raises StoreChanged where it is not as this owner left it."""
        store, left = self.services.store, self.marked if position is None else position
        moved = left is None or left == self.marked or store.move_mark(self.partition, self.marked, left)
        found = store.marks([self.partition])
        if not moved or found.get(self.partition) != left or found.run != self._run:
            raise StoreChanged(
                f"partition {self.partition}: the store changed under this worker: its mark is "
                f"{found.get(self.partition)}, left at {left if moved else self.marked}; its run is {found.run!r}, was "
                f"{self._run!r}: it was restarted, brought back from a copy, or another one took over"
            )
        self.marked = left

    def _store_lost(self, offset: int) -> StoreLost:
        return StoreLost(
            f"partition {self.partition} was read up to offset {offset}, but the store knows nothing of it: it was "
            "emptied or is another one. Restore it, or learn anew: an empty store and another log.group"
        )

    def _position(self) -> int | None:
        """The log's own position where it tells (it passes what is no event), else after the last record taken."""
        progress = self.services.source.progress()
        return progress[self.partition][0] if self.partition in progress else self._taken

    @property
    def unpublished(self) -> bool:
        """Whether something was learned that no node can know of."""
        return any(model.learner.version > model.published for model in self.models.values())

    def _written(self, written: Written, name: str) -> None:
        if written is Written.FENCED:
            raise Fenced(f"model {name!r}: another worker owns it now; nothing was written")


class StoreChanged(StoreError):
    """The store may have forgotten what was saved: nothing is known to be kept but what it says now."""


class Rewind(Exception):
    """The source was moved back; what was polled meanwhile must be dropped."""

    def __init__(self, model: str, partition: Partition, offset: int) -> None:
        super().__init__(f"model {model!r} goes on from offset {offset}")
        self.partition = partition


def kind_of(record: Record) -> str:
    """What kind of feedback a refused event is; ``unknown`` where it does not decode."""
    try:
        event = decode(record.value, content_type(record.headers) if record.headers else JSON)
    except FeedbackError:
        return "unknown"
    return type(event).__name__.lower()


def by_partition(records: Iterable[Record]) -> dict[Partition, list[Record]]:
    """Records by partition, in order."""
    sorted_out: dict[Partition, list[Record]] = {}
    for record in records:
        sorted_out.setdefault(record.partition, []).append(record)
    return sorted_out
