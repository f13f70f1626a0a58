"""One owned partition, exactly once.

The protocol, in numbered steps. If a worker crashes between any two of them, the next owner starts at step 1 and ends
with the same bytes. Two positions are stored: the mark in the store, and the commit in the log. Everything before the
mark is in checkpoints, and the commit never passes the mark.

1. start     reading at min(mark, commit), or at the log's begin if only the commit lies below it. Nothing was taken
             yet, so a crash loses nothing.
2. claim     a model at the first event that it has not taken. Its epoch rises and its checkpoint is loaded. The
             checkpoint may lack events below the mark, if the newest one was damaged or is an older copy. Then the mark
             goes back to the end of this checkpoint, before anything of the model is saved. Changed settings are noted
             and saved. A crash leaves a higher epoch, a mark that is too low, or settings noted twice.
3. take      the events at or after the model's ``next``, and learn them. An event that cannot be learned, or belongs on
             another partition (streams/placement.py), becomes a dead letter. Only memory changed, so after a crash all
             of them are taken again.
4. publish   a snapshot. It may be ahead of the checkpoint: a replay makes the same bytes, and publishes nothing until
             it has caught up with the live version.
5. save      a checkpoint of each changed model, the oldest changes first, as many as there is time for. After a crash
             between two models, the saved one skips events by its ``next``, and the other one learns them again from
             its older checkpoint. The store refuses a checkpoint if the models were placed elsewhere in the meantime,
             because its events may be dead letters under the new placement.
6. letters   flushed until they are acknowledged. A model's letters are flushed before its checkpoint, too, because the
             checkpoint skips their events. A crash sends some letters twice; readers recognise them by their position.
7. mark      moved to the first offset that is in no checkpoint, if it still is what this owner wrote last, and if
             nobody replaced a model from outside. After a crash, events are replayed that every saved model skips.
8. look      whether the store is still the one that accepted all this. A store that was restored from an older copy, or
             failed over, may have forgotten some of it, whatever its mark says. Then the partition starts over at the
             lower of its mark and the last mark that was verified. A crash leaves the commit there: min(mark, commit).
9. commit    to the log. A crash leaves the commit behind the mark: min(mark, commit) replays what every model skips.

Step 1 is in watermark.py. ``take`` below has records_by_model.py sort records by model, and taking.py do step 3, which
begins with step 2 in claiming.py. Steps 4 and 5 are in models.py: schedule.py, one folder up, says when they are due.
Steps 6 to 9 are ``advance`` in saving.py, which calls pending_letters.py and watermark.py; ``save`` there does all of
4 to 9 when the partition is given up or the worker stops.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

import msgspec

from omdml.streams.placement import Placement, PlacementChanged
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.learning.partition.claiming import Claiming
from omdml.workers.learning.partition.models import OwnedModels
from omdml.workers.learning.partition.pending_letters import PendingLetters
from omdml.workers.learning.partition.records_by_model import begin_turn
from omdml.workers.learning.partition.saving import Saving
from omdml.workers.learning.partition.taking import Taking
from omdml.workers.learning.partition.waiting_models import WaitingModels
from omdml.workers.learning.partition.watermark import Mark
from omdml.workers.learning.services import Services
from omdml.workers.model.claim import served_snapshot
from omdml.workers.model.relocation import move_back_to_cut


class OwnedPartition:
    """The models that live on one partition, and how far each is taken, published and saved."""

    def __init__(self, partition: Partition, services: Services, placement: Placement) -> None:
        self.partition = partition
        self.services = services
        # Whether most events that were taken last began a model.
        self.crowded = False
        # The offset of the first record that was taken here.
        self.first: int | None = None
        self.mark = Mark(partition, services.store)
        self._waiting = WaitingModels(services.clock, services.metrics.loop.models_waiting)
        self._letters = PendingLetters(services.letters, services.specs, services.metrics, services.refusals)
        self.models = OwnedModels(partition, placement, services, self.mark, self._letters)
        self.claiming = Claiming(partition, services, self.models, self.mark, self._waiting)
        self.taking = Taking(services, self.models, self.claiming, self._letters)
        self.saving = Saving(partition, services, self.models, self.mark, self._letters, self._waiting)

    @property
    def placement(self) -> Placement:
        """The placement of models, as this owner knows it."""
        return self.models.placement

    # Step 1.
    def start(self, committed: int | None) -> int | None:
        """The offset to read from, None for the beginning of the log; see :meth:`Mark.start`."""
        return self.mark.start(committed, self.services.source.begin)

    # Step 3.
    def take(self, records: list[Record]) -> list[Record]:
        """Learn records in order. Returns the records for a later turn, if too many new models would begin in this one.

        Raises StoreError if the store is out of reach, and SourceError if the dead letters are. Then pass the same
        records again: models skip what they have. Raises Rewind, StoreChanged and GapError as claims do.
        """
        if self.mark.taken is not None and records[0].offset < self.mark.taken:
            # An earlier call took these records, and then failed to write their letters.
            records = [record for record in records if record.offset >= self.mark.taken]
        since = self.placement.since(self.partition.number)
        boundary = bisect_left(records, since, key=attrgetter("offset"))
        for piece in (records[:boundary], records[boundary:]):
            if piece and (remaining := self._take(piece)):
                self._letters.send()
                return [record for record in records if record.offset >= remaining[0].offset]
        self._letters.send()
        return []

    def _take(self, records: list[Record]) -> list[Record]:
        turn = begin_turn(
            records, self.partition, self.placement, self.models.loaded, self._waiting.waits, self.services
        )
        self.crowded = turn.crowded
        if not turn.records:
            return turn.left
        self.taking.take_turn(turn)
        if self.first is None:
            self.first = turn.records[0].offset
        self.mark.taken = turn.records[-1].offset + 1
        return turn.left

    def go_on_at(self, offset: int, cut: bool) -> None:
        """Continue after a gap that the operator accepted. If the log was ``cut``, every event from here on is new.

        Each model is saved with what it learned, then its position is moved back; the mark follows at the end. After a
        crash between two models, the source reports the cut again, and the rest is done then.
        """
        self.mark.taken, self.saving.committed = offset, None
        if not cut:
            return
        self.claiming.checks.forget_end()
        self._cut_placement(offset)
        for name in list(self.models.loaded):
            self.models.keep_and_drop(name)
        for name, error in move_back_to_cut(self.services.store, self.placement, self.partition, offset).items():
            self._waiting.add(name, offset, error)
        self._waiting.cut(offset)
        self.mark.go_back(offset)

    def _cut_placement(self, offset: int) -> None:
        """Make the current placement hold for all events from this offset on, because they are new."""
        after = self.placement.cut(self.partition.number, offset)
        if after != self.placement:
            if not self.services.store.place(self.partition.topic_id, self.placement, after):
                raise PlacementChanged(self.partition.topic_id)
            self.models.placement = after

    def drop_all(self) -> None:
        """Drop every model from memory, unsaved."""
        for name in list(self.models.loaded):
            self.models.drop(name)
        self._waiting.forget()

    def publish_first(self, name: str) -> None:
        """Publish a model that has no snapshot (its version 0), or none under the catalogue's generation."""
        if name in self.models.loaded:
            return
        live = served_snapshot(name, self.services.store)
        if live and live.generation == self.services.specs.of(name).catalogue.generation:
            return
        if live is None and self.services.specs.of(name).parent and not self.services.store.positions([name]):
            # Until this model's first event, nodes answer with its parent, which may still learn.
            return
        model = self.claiming.claim(name).model
        if live is None or model.learner.version >= live.version:
            new = model.snapshot()
            # A withheld version stays withheld, so nodes keep the version that they have.
            if live and model.judge.withheld:
                new = msgspec.structs.replace(live, generation=new.generation)
            with self.models.unless_deleted(model):
                written = self.services.store.publish(new, model.epoch, assumed=self.models.assumed)
                self.models.require_written(written, name)
