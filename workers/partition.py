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
6. letters   flushed until acknowledged; those of a model before its checkpoint too, which skips their events. A
             crash sends some twice: readers tell them by position.
7. mark      moved to the first offset that is in no checkpoint, from where this owner left it. A crash replays what
             every model that was saved skips.
8. look      whether the store is still the one that took all this. One that was brought back older, or failed over,
             may have forgotten some of it, whatever its mark says: the partition begins again, at the lower of its mark
             and the last one that was looked at. A crash leaves the commit there: min(mark, commit).
9. commit    to the log. A crash leaves it behind the mark: min(mark, commit) replays what every model skips.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import structlog

from omdml.errors import CorruptError, Fenced, StoreLost
from streams.protocols import Partition, Position, Record, Written
from streams.stores.checkpoints import none_valid
from workers import growth
from workers.blocked import Blocked
from workers.burial import Burial
from workers.claim import Change, Claimed, claim, out_of_reach, snapshot
from workers.intake import Batch, Refusal, sort_out
from workers.interruptions import Moved, Rewind, learned_elsewhere
from workers.mark import Mark
from workers.model import OwnedModel
from workers.services import Services
from workers.strangers import Strangers
from workers.topics import take_back

log = structlog.get_logger(__name__)


class OwnedPartition:
    """The models whose events lie in one partition, and how far each is taken, published and saved."""

    def __init__(self, partition: Partition, services: Services) -> None:
        self.partition = partition
        self.services = services
        self.models: dict[str, OwnedModel] = {}
        self.unsaved: dict[str, OwnedModel] = {}  # the oldest change first
        self.unpublished: dict[str, OwnedModel] = {}  # learned what no node can know of; likewise
        self._strangers = Strangers(partition, services.store, services.source, services.metrics.waiting)
        self.first: int | None = None  # offset of the first record that was taken here
        self._taken: int | None = None  # offset after the last
        self.mark = Mark(partition, services.store)
        self._committed: int | None = None
        self._blocked = Blocked(services.clock, services.metrics.waiting)
        self._burial = Burial(services.letters, services.specs, services.metrics)

    # 1
    def start(self, committed: int | None) -> int | None:
        """Where to read from; see :meth:`workers.mark.Mark.start`."""
        known = growth.settled(self.services.store, self.partition.topic_id)
        begin = self.mark.start(committed, fresh=known is not None and self.partition.number >= known)
        return 0 if begin is None and committed is not None else begin

    # 2
    def claim(self, name: str) -> Claimed:
        """Become the owner of a model, and note its home; raises GapError where that is in a log of the past."""
        claimed = claim(name, self.services.specs.of(name), self.services.store, self.services.platform)
        model, begin = claimed.model, self.services.source.begin(self.partition) if claimed.fell_back else 0
        if model.home == self.partition and model.next < begin:
            raise out_of_reach(name, model.next, begin)
        if model.home and model.home.topic_id != self.partition.topic_id:
            if not self.services.accept_gap:
                raise learned_elsewhere(name, model.home, self.partition)
            model.home, model.next = None, 0
        if model.home:  # else its first event says
            self.services.homes[name] = model.home
        return claimed

    def _adopt(self, model: OwnedModel, changes: list[Change]) -> None:
        """Go on with settings that are others by now: tell the history, save a checkpoint that names them."""
        for what, told in changes:
            log.warning("change_adopted", model=model.name, offset=model.next, kind=what, what=told)
            reason = f"{told}, from offset {model.next} of {self.partition} on"
            self._written(self.services.store.note(model.name, model.epoch, what, reason), model.name)
        if changes and model.home:
            self._write(model)

    # 3
    def take(self, records: list[Record]) -> None:
        """Learn records, in order.

        Raises StoreError where the store is out of reach: take them again then, models skip what they have taken.
        """
        if self._taken is not None and records[0].offset < self._taken:
            records = [record for record in records if record.offset >= self._taken]  # the letters were what failed
        if records:
            self._take(records)
        self._burial.send()

    def _take(self, records: list[Record]) -> None:
        with self.services.metrics.timed("decode"):
            batches, refused = sort_out(records, self.services.specs.accepts)
        kept = self.services.store.positions([name for name in batches if name not in self.models])
        of_nobody: list[Refusal] = []
        for name, batch in batches.items():
            if name not in self.models and not self._blocked.waits(name) and name not in self._strangers.waiting:
                try:
                    self._meet(name, batch, kept.get(name), records[0].offset)
                except CorruptError as error:
                    self._blocked.add(name, batch.records[0].offset, error)
                except Moved as moved:
                    self._strangers.wait(name, batch.records[0].offset, moved)
            if name in self.models:
                self._take_up(self.models[name], batch, refused.pop(name, []))
            elif name in self._strangers:
                of_nobody += self._strangers.refuse(name, batch.records)
        for model, refusals in refused.items():
            if model in self.models:
                self._take_up(self.models[model], Batch(), refusals)
            else:
                of_nobody += refusals
        self._burial.add(of_nobody)
        if self.first is None:
            self.first = records[0].offset
        self._taken = records[-1].offset + 1

    def _meet(self, name: str, batch: Batch, kept: Position | None, at: int) -> None:
        """Claim a model, unless its home is another partition, or it took all of this batch already.

        Raises CorruptError where its checkpoints cannot be read, Moved where events of another partition may come
        first: it waits. Rewind where it no longer does, or only an older one was sound: what it lacks is taken again.
        """
        homes = self.services.homes
        self._strangers.discard(name)
        if kept and kept.home.topic_id == self.partition.topic_id:
            self._strangers.require_home(name, kept.home, batch.records[-1].offset)
            homes[name] = kept.home  # the store is newer than what a partition of ours has in memory
            if kept.home == self.partition and batch.records[-1].offset < kept.next:
                return
        elif not kept:
            if name not in self.services.residents:  # it was deleted
                homes.pop(name, None)
            self._strangers.require_first(name)
        if homes.get(name, self.partition) == self.partition:
            self.services.residents.make_room()
            model, fell_back, changes = self.claim(name)
            self.mark.look()  # a copy brought back just now lacks events that what comes must not be learned before
            if homes.get(name, self.partition) == self.partition:
                self.models[name] = model
                self.services.residents.use(name, model.size, self.let_go)
                self._adopt(model, changes)
                waited = self._blocked.release(name, at)
                if fell_back or waited < at:
                    begin = min(at, waited, model.next) if model.home else waited
                    raise self._back(name, begin, "checkpoint_damaged_previous_used" if fell_back else "model_goes_on")
                return
            self._strangers.require_home(name, homes[name], batch.records[-1].offset)
        self._strangers.add(name, homes[name])

    def go_on_at(self, offset: int, cut: bool) -> None:
        """A gap was accepted. Where the log was cut, whatever lies at or after this offset is new to every model.

        Each is saved with what it learned, then moved back, the mark after them. A crash between two: the cut is told
        of again.
        """
        self._taken, self._committed = offset, None
        if not cut:
            return
        self._blocked.cut(offset)
        self._strangers.cut(offset)
        for name in list(self.models):
            self.let_go(name)
        for name, error in take_back(self.services.store, self.partition, offset).items():
            self._blocked.add(name, offset, error)
        if self.mark.offset is not None and self.mark.offset > offset:
            self.mark.move(offset)

    def try_waiting(self) -> None:
        """Raise Rewind where models wait for their rehome no longer, or the one that waits for longest can be read."""
        if found := self._strangers.go_on():
            back = self._back(*found, "models_go_on")
            self._strangers.forget()
            raise back
        if (name := self._blocked.due()) is None:
            return
        store, source = self.services.store, self.services.source
        offset = self._blocked.begin_at(name, source.begin(self.partition))
        try:
            kept = store.positions([name]).get(name)
            if kept and store.peek(name) is None:
                raise none_valid(name, str(store))  # a claim would leave a trace each time
            model = self.claim(name).model if kept is None or kept.home == self.partition else None
        except CorruptError as error:
            self._blocked.add(name, offset, error)
            return
        back = self._back(name, min(offset, model.next) if model and model.home else offset, "model_goes_on")
        self._blocked.release(name, offset)
        raise back

    def _back(self, name: str, begin: int, why: str) -> Rewind:
        """Take again what lies from there on. Never forward: another model may have gone back to before."""
        begin = self._taken = begin if self._taken is None else min(begin, self._taken)
        self.services.source.seek(self.partition, begin)
        return Rewind(name, self.partition, begin, why)

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
        self._blocked.forget()
        self._strangers.forget()

    def _drop(self, name: str) -> None:
        for models in (self.models, self.unsaved, self.unpublished):
            models.pop(name, None)
        self.services.residents.forget(name)

    def _take_up(self, model: OwnedModel, batch: Batch, refused: list[Refusal]) -> None:
        """Learn events of a model, and note those that cannot be: its checkpoint will skip both."""
        refused = [one for one in refused if one.record.offset >= model.next]
        if batch.records and batch.records[0].offset < model.next:
            batch = batch.since(model.next)
        if not batch.records and not refused:
            return
        first = min(record.offset for record in (*batch.records[:1], *(one.record for one in refused[:1])))
        if batch.records and model.home is None:
            model.come_home(self.partition, self._strangers.due(model.name))
            self.services.homes[model.name] = self.partition
        if model.home:  # else nothing of it is learned that a checkpoint could hold
            self._changed(model, first)
        if batch.records:
            refused += self._learn(model, batch)
        model.next = max([model.next, *(one.record.offset + 1 for one in refused)])
        self._burial.add(refused)

    def _learn(self, model: OwnedModel, batch: Batch) -> list[Refusal]:
        self.services.residents.use(model.name, model.size, self.let_go)
        label = self.services.specs.of(model.name).label
        with self.services.metrics.learn_seconds.labels(label).time():
            refused = model.take(batch, self.services.metrics.timed)
        if model.learner.version > model.published:
            self.unpublished.setdefault(model.name, model)
        held, not_sound = batch.kinds(model.held_out), batch.kinds({refusal.record.offset for refusal in refused})
        self.services.metrics.taken(label, batch.kinds() - held - not_sound, "learned")
        self.services.metrics.taken(label, held, "held_out")
        self.services.metrics.ahead.labels(label).inc(batch.ahead)
        return refused

    def _changed(self, model: OwnedModel, offset: int) -> None:
        """Have a model saved: what lies from ``offset`` on is in no checkpoint of it."""
        if model.name not in self.unsaved:
            model.changed_at, model.unsaved_from = self.services.clock(), offset
            self.unsaved[model.name] = model

    # 4
    def publish(self, until: float = math.inf) -> None:
        """Bring what was learned to the nodes, the oldest first, at least one model, none after ``until``; Fenced."""
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
            self.services.metrics.drift.labels(self.services.specs.of(model.name).label).inc()
            model.drifted = ""

    def _publish(self, model: OwnedModel, record: bool = False) -> None:
        """What is withheld goes into the store only if it is to be on ``record``: with a checkpoint, that is."""
        if not record and not model.can_be_judged:
            return
        with self.services.metrics.timed("publish"):
            snapshot = model.snapshot()
            withheld = model.judge(snapshot.metric)
            if withheld and not record:
                return
            with self.services.metrics.publish_seconds.time():
                written = self.services.store.publish(snapshot, model.epoch, withheld)
        self._written(written, model.name)
        model.published = model.learner.version
        self.unpublished.pop(model.name, None)
        if not withheld:
            model.oldest = None
        label = self.services.specs.of(model.name).label
        self.services.metrics.published(label, model, "held" if withheld else written.value)

    def publish_first(self, name: str) -> None:
        """Publish a model that has no snapshot (its version 0), or none under the catalogue's generation."""
        if name in self.models:
            return
        live = snapshot(name, self.services.store)
        if live and live.generation == self.services.specs.of(name).catalogue.generation:
            return
        model = self.claim(name).model
        at_home = model.home in (None, self.partition)
        if at_home and (live is None or model.learner.version >= live.version):
            new = model.snapshot()
            if live and model.withheld:  # what is withheld stays so: nodes go on with what they have
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
        self._burial.finish(until - self.services.clock())
        for model in [*self.unsaved.values(), *self.unpublished.values()]:
            self.keep(model)
            if self.services.clock() >= until:
                break
        self.settle(untaken, commit)

    def keep(self, model: OwnedModel) -> None:
        """Publish a model, or record that it is withheld, then save it: each where there is need to."""
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
            raise self._back(model.name, begin, "model_deleted") from None

    def _write(self, model: OwnedModel) -> None:
        self._burial.finish()  # no replay makes those again whose events the checkpoint skips
        with self.services.metrics.checkpoint_seconds.time(), self.services.metrics.timed("save"):
            checkpoint = model.checkpoint(self.services.platform)
            written = self.services.store.save(checkpoint, model.epoch)
        self._written(written, model.name)
        self.services.allowance.spend(len(checkpoint.state))
        model.measure()

    # 6 to 9
    def settle(self, untaken: int | None, commit: bool = True) -> None:
        """Move mark and commit to where everything is in checkpoints: parameters and errors as of :meth:`save`."""
        position = self._taken if untaken is None else untaken
        if untaken is None and commit:  # the log's own position, where it tells, passes what is no event
            position = self.services.source.progress().get(self.partition, (self._taken,))[0]
        waiting = [*self._blocked.offsets.values(), *self._strangers.waiting.values()]
        waiting += [model.unsaved_from for model in self.unsaved.values()]
        self._burial.finish()
        self.mark.move(min([*waiting, *([] if position is None else [position])], default=None))
        offset = self.mark.offset
        if commit and offset not in (None, self._committed) and self.services.source.commit({self.partition: offset}):
            self._committed = offset

    def _written(self, written: Written, name: str) -> None:
        if written is Written.FENCED:
            raise Fenced(f"model {name!r}: another worker owns it now, or a command moved it; nothing was written")
