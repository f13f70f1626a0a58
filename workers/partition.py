"""One owned partition, exactly once.

The protocol, in numbered steps. After a crash between any two of them the next owner starts at step 1 and ends with
the same bytes:

1. start     at min(mark, commit). Nothing was taken: nothing is lost.
2. claim     a model at the first event that it has not taken: its epoch rises, its checkpoint is loaded. Settings that
             are others by now are noted and saved. A crash leaves a higher epoch, or the same settings noted twice.
3. take      learn what lies at or after the model's ``next``; what cannot be learned becomes a dead letter. Only
             memory changed: a crash takes it all again.
4. publish   a snapshot. It may run ahead of the checkpoint: a replay makes the same bytes, and until it has caught up
             with what is live it publishes nothing.
5. save      a checkpoint a changed model, the oldest changes first, as many as there is time for. A crash between two
             models: the saved one skips by its ``next``, the other one learns again from its older checkpoint.
6. letters   flushed until acknowledged. A crash sends some twice: readers tell them by position.
7. mark      moved to the first offset that is in no checkpoint, from where this owner left it. A crash replays what
             every model that was saved skips.
8. look      whether the store is still the one that took all this. One that was brought back older, or failed over,
             may have forgotten some of it, whatever its mark says: the partition begins again, at the lower of its mark
             and the last one that was looked at. A crash leaves the commit there: min(mark, commit).
9. commit    to the log. A crash leaves it behind the mark: min(mark, commit) replays what every model skips.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import structlog

from omdml.errors import FeedbackError, Fenced, GapError, StoreLost
from streams.letters import DeadLetters
from streams.protocols import Partition, Position, Record, Source, Store, Written
from workers.claim import Change, Claimed, claim, live_snapshot
from workers.intake import Batch, Refusal, check_name, kind_of, sort_out
from workers.interruptions import Moved, Rewind
from workers.mark import Mark
from workers.metrics import WorkerMetrics
from workers.model import OwnedModel
from workers.residents import Allowance, Residents
from workers.specs import Spec, Specs

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
    residents: Residents = field(default_factory=Residents)
    allowance: Allowance = field(default_factory=Allowance)  # bytes that checkpoints may take for now


class OwnedPartition:
    """The models whose events lie in one partition, and how far each is taken, published and saved."""

    def __init__(self, partition: Partition, services: Services) -> None:
        self.partition = partition
        self.services = services
        self.models: dict[str, OwnedModel] = {}
        self.unsaved: dict[str, OwnedModel] = {}  # the oldest change first
        self.unpublished: dict[str, OwnedModel] = {}  # learned what no node can know of; likewise
        self._strangers: dict[str, Partition] = {}  # models at home elsewhere
        self.first: int | None = None  # offset of the first record that was taken here
        self._taken: int | None = None  # offset after the last
        self.mark = Mark(partition, services.store)
        self._cut: int | None = None  # where reading goes on after a gap that was accepted
        self._refused: list[Refusal] = []  # not in the dead letters yet

    # 1
    def start(self, committed: int | None) -> int | None:
        """Where to read from: min(mark, commit), or the mark alone; None is the beginning of the log.

        Raises StoreLost for a commit without a mark: the store was lost, and learning anew would be silent.
        """
        return self.mark.start(committed)

    # 2
    def claim(self, name: str) -> Claimed:
        """Become the owner of a model, and say where its home is."""
        claimed = claim(name, self._spec(name), self.services.store, self.services.platform)
        self.services.homes[name] = self._home(claimed.model)
        return claimed

    def _adopt(self, model: OwnedModel, changes: list[Change]) -> None:
        """Go on with settings that are others by now: tell the history, save a checkpoint that names them."""
        for what, told in changes:
            log.warning("change_adopted", model=model.name, offset=model.next, kind=what, what=told)
            reason = f"{told}, from offset {model.next} of {self.partition} on"
            self._written(self.services.store.note(model.name, model.epoch, what, reason), model.name)
        if changes and model.home:
            self._write(model)

    def _spec(self, name: str) -> Spec:
        spec = self.services.specs.find(name)
        assert spec is not None
        return spec

    # 3
    def take(self, records: list[Record]) -> None:
        """Learn records, in order.

        Raises StoreError where the store is out of reach: take them again then, models skip what they have taken.
        """
        if self._taken is not None and records[0].offset < self._taken:
            records = [record for record in records if record.offset >= self._taken]  # the letters were what failed
        if records:
            self._take(records)
        self._bury()

    def _take(self, records: list[Record]) -> None:
        with self.services.metrics.timed("decode"):
            batches, refused = sort_out(records, self._accepts)
        kept = self._positions(batches)
        for name, batch in batches.items():
            if name not in self.models and name not in self._strangers:
                self._meet(name, batch, kept.get(name), records[0].offset)
            if name in self._strangers:
                refused += [self._stray(record, name) for record in batch.records]
            elif name in self.models:
                self._refused += self._learn(self.models[name], batch)
        self._refused += refused
        if self.first is None:
            self.first = records[0].offset
        self._taken = records[-1].offset + 1

    def _positions(self, names: Iterable[str]) -> dict[str, Position]:
        """How far those of these models are taken that are not in memory."""
        unmet = [name for name in names if name not in self.models and name not in self._strangers]
        return self.services.store.positions(unmet) if unmet else {}

    def _meet(self, name: str, batch: Batch, kept: Position | None, at: int) -> None:
        """Claim a model, unless its home is another partition, or it took all of this batch already.

        Raises Rewind where only an older checkpoint was sound: what its home holds since is taken again, and what lies
        from ``at`` on, of which nothing was taken yet.
        """
        homes = self.services.homes
        if kept and kept.home.topic_id == self.partition.topic_id:
            source = self.services.source
            if kept.home != self.partition == source.home(name) and source.grown(name, kept.home):
                raise Moved(name, self.partition, kept.home, at)
            homes.setdefault(name, kept.home)
            if homes[name] == self.partition == kept.home and batch.records[-1].offset < self._as_new(kept.next):
                return
        if homes.get(name, self.partition) == self.partition:
            self.services.residents.make_room()
            model, fell_back, changes = self.claim(name)
            if homes[name] == self.partition:
                self.models[name] = model
                self.services.residents.use(name, model.size, self.let_go)
                self._adopt(model, changes)
                if fell_back:
                    begin = self._taken = min(model.next, at)
                    self.services.source.seek(self.partition, begin)
                    raise Rewind(name, self.partition, begin, "checkpoint_damaged_previous_used")
                return
        self._strangers[name] = homes[name]

    def _as_new(self, position: int) -> int:
        """A model's ``next``: whatever lies behind a gap that was accepted is new to it."""
        return position if self._cut is None else min(position, self._cut)

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
        model.next = self._as_new(model.next)
        return model.home or self.partition

    def go_on_at(self, offset: int) -> None:
        """A gap was accepted: whatever lies at or after this offset is new to every model."""
        self._cut = self._taken = offset
        for model in self.models.values():
            model.next = min(model.next, offset)

    def let_go(self, name: str) -> None:
        """Bring one model to the nodes and into the store, and have it in memory no more; raises Fenced."""
        self.keep(self.models[name])
        self._drop(name)

    def forget(self) -> None:
        """Let go of everything in memory, as it is."""
        for name in [name for name, home in self.services.homes.items() if home == self.partition]:
            del self.services.homes[name]
        for name in list(self.models):
            self._drop(name)

    def _drop(self, name: str) -> None:
        for models in (self.models, self.unsaved, self.unpublished):
            models.pop(name, None)
        self.services.residents.forget(name)

    def _accepts(self, name: str) -> frozenset[str] | None:
        check_name(name)
        spec = self.services.specs.find(name)
        return None if spec is None else spec.learner.accepts

    def _learn(self, model: OwnedModel, batch: Batch) -> list[Refusal]:
        if batch.records[0].offset < model.next:
            batch = batch.since(model.next)
            if not batch.records:
                return []
        model.home = self.partition
        self._changed(model, batch.records[0].offset)
        self.services.residents.use(model.name, model.size, self.let_go)
        label = self._spec(model.name).label
        with self.services.metrics.learn_seconds.labels(label).time():
            refused = model.take(batch, self.services.metrics.timed)
        if model.learner.version > model.published:
            self.unpublished.setdefault(model.name, model)
        held, not_sound = batch.kinds(model.held_back), batch.kinds({refusal.record.offset for refusal in refused})
        self.services.metrics.taken(label, batch.kinds() - held - not_sound, "learned")
        self.services.metrics.taken(label, held, "held_back")
        self.services.metrics.ahead.labels(label).inc(batch.ahead)
        return refused

    def _changed(self, model: OwnedModel, offset: int) -> None:
        """Have a model saved: what lies from ``offset`` on is in no checkpoint of it."""
        if model.name not in self.unsaved:
            model.changed_at, model.unsaved_from = self.services.clock(), offset
            self.unsaved[model.name] = model

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
                if model.home:  # else nothing of it is learned that a checkpoint could hold
                    self._changed(model, record.offset)

    # 4
    def publish(self, until: float = math.inf) -> None:
        """Bring what was learned since to the nodes, if the guard lets it: what waits for longest first, at least one
        model, none after ``until`` (by the clock). Raises Fenced."""
        for model in list(self.unpublished.values()):
            with self._unless_deleted(model):
                self._tell(model)
                self._publish(model)
            if self.services.clock() >= until:
                break

    def _tell(self, model: OwnedModel) -> None:
        """Bring drift into the history."""
        if model.drifted:
            self._written(self.services.store.note(model.name, model.epoch, "drift", model.drifted), model.name)
            self.services.metrics.drift.labels(self._spec(model.name).label).inc()
            model.drifted = ""

    def _publish(self, model: OwnedModel, record: bool = False) -> None:
        """What is held back goes into the store only where it is to be on ``record``: with a checkpoint, that is."""
        if not record and not model.can_be_judged:
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
        self.unpublished.pop(model.name, None)
        if not held:
            model.oldest = None
        self.services.metrics.published(self._spec(model.name).label, model, "held" if held else written.value)

    def publish_first(self, name: str) -> None:
        """Publish a model that the store has no snapshot of (its version 0), or none under the catalogue's generation:
        nodes are ready before the first click."""
        if name in self.models:
            return
        live = live_snapshot(name, self.services.store)
        if live and live.generation == self._spec(name).catalogue.generation:
            return
        model = self.claim(name).model
        at_home = self.services.homes[name] == self.partition
        if model.home is None:
            del self.services.homes[name]  # that is where its first event will come by, here or elsewhere
        if at_home and (live is None or model.learner.version >= live.version):
            new = model.snapshot()
            if live and model.progress.held:  # what is held back stays so: nodes go on with what they have
                new = msgspec.structs.replace(live, generation=new.generation)
            self._written(self.services.store.publish(new, model.epoch), name)

    # 5 to 9
    def save(self, untaken: int | None = None, commit: bool = True, until: float = math.inf) -> None:
        """Make everything taken so far durable.

        Parameters
        ----------
        untaken
            Offset of the first record that was polled and not taken, if there is one.
        commit
            Off inside a rebalance, where a client cannot commit: min(mark, commit) covers it.
        until
            No further model after this, by the clock: the mark stays below what is not saved.

        What was learned is published first: a successor starts behind the mark and would not know of it.
        Raises Fenced, StoreChanged, StoreError or SourceError; then nothing was committed.
        """
        for model in [*self.unsaved.values(), *self.unpublished.values()]:
            self.keep(model)
            if self.services.clock() >= until:
                break
        self.settle(untaken, commit)

    def keep(self, model: OwnedModel) -> None:
        """Publish a model, or record that it is held back, then save it: each where there is need to."""
        with self._unless_deleted(model):
            self._tell(model)
            if model.name in self.unpublished:
                self._publish(model, record=True)
            if model.name in self.unsaved:
                self._write(model)
                del self.unsaved[model.name]

    @contextmanager
    def _unless_deleted(self, model: OwnedModel) -> Iterator[None]:
        """Forget a model that was deleted; raises StoreLost where the store lost more than this one, Rewind where
        events came for it since it was last saved: they begin it anew."""
        try:
            yield
        except StoreLost:
            if not self.mark.stands:
                raise
            begin = model.unsaved_from if model.name in self.unsaved else None
            self._drop(model.name)
            self.services.homes.pop(model.name, None)
            if begin is None:
                log.warning("model_deleted", model=model.name, then="its next event begins it anew")
                return
            self._taken = begin
            self.services.source.seek(self.partition, begin)
            raise Rewind(model.name, self.partition, begin, "model_deleted") from None

    def _write(self, model: OwnedModel) -> None:
        with self.services.metrics.checkpoint_seconds.time(), self.services.metrics.timed("save"):
            checkpoint = model.checkpoint(self.services.platform)
            written = self.services.store.save(checkpoint, model.epoch)
        self._written(written, model.name)
        self.services.allowance.spend(len(checkpoint.state))
        model.measure()

    # 6 to 9
    def settle(self, untaken: int | None, commit: bool = True) -> None:
        """Move mark and commit to where everything is in checkpoints: parameters and errors as of :meth:`save`."""
        self._bury()
        position = untaken if untaken is not None else self._position() if commit else self._taken
        unsaved = [model.unsaved_from for model in self.unsaved.values()]
        self.services.letters.flush()
        before = self.mark.offset
        self.mark.move(min([*unsaved, *([] if position is None else [position])], default=None))
        if commit and self.mark.offset is not None and self.mark.offset != before:
            self.services.source.commit({self.partition: self.mark.offset})

    def _position(self) -> int | None:
        """The log's own position where it tells (it passes what is no event), else after the last record taken."""
        progress = self.services.source.progress()
        return progress[self.partition][0] if self.partition in progress else self._taken

    def _written(self, written: Written, name: str) -> None:
        if written is Written.FENCED:
            raise Fenced(f"model {name!r}: another worker owns it now; nothing was written")
