"""A model that this worker owns: it learns batches, and makes snapshots to publish and checkpoints to save."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import structlog
from numpy.typing import NDArray

from omdml.errors import FeedbackError
from omdml.feedback import kind_of
from omdml.learners import Learner
from omdml.metrics import Metric
from omdml.snapshot import Checkpoint, Snapshot, metric_from_bytes
from omdml.streams.part_names import part_of, whole_of
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.events.decoding import Batch, Refusal
from omdml.workers.events.learned_stretches import Stretches
from omdml.workers.events.lookup import Located, Lookup
from omdml.workers.events.repeats import NewEvents, SeenIds
from omdml.workers.model.judging.drift import Drift
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.judging.held_out_draw import Draw, HeldOutOfBatch, HoldOutState
from omdml.workers.model.judging.judge import Judge
from omdml.workers.model.progress import Progress
from omdml.workers.model.trails import Trails
from omdml.workers.model.user_shares import UserShares

Array = NDArray[Any]
log = structlog.get_logger(__name__)
# Bytes of memory (measured): of a model's Python objects, and of one held-out comparison and its counts.
OBJECT_BYTES, COMPARISON_BYTES = 10_000, 700
# Metrics in memory: the guard's reference, its bytes, and the newest one until it is saved.
METRICS = 3
# A context manager that counts the time inside it for one stage.
Timed = Callable[[str], AbstractContextManager[None]]


def offsets_of(refused: Sequence[Refusal]) -> list[int]:
    """The offsets of refused events, in their order."""
    return [refusal.record.offset for refusal in refused]


class OwnedModel:
    """A model that this worker learns, from its claim until it is dropped from memory.

    ``next`` is the offset after the last event taken; events below it are skipped. ``epoch`` guards every write.
    ``secret`` is the store's, and says which events are held out; None if nothing is going to be learned.
    """

    def __init__(
        self,
        name: str,
        learner: Learner,
        catalogue: Catalogue,
        epoch: str,
        configuration: str,
        guard: Guard,
        secret: bytes | None = None,
        max_share_a_user: float = 1.0,
    ) -> None:
        self.name = name
        # A part is never published or judged itself: its whole is. Its events and letters name the whole.
        self.is_part, self.sent_as = part_of(name) is not None, whole_of(name)
        self.learner = learner
        self.catalogue = catalogue
        self._lookup = Lookup(self.sent_as, type(learner), catalogue)
        self.epoch = epoch
        self.configuration = configuration
        self.home: Partition | None = None
        self.next = 0
        draw = Draw(secret, name)
        hold_out = HoldOutState(guard.config.every, secret=draw.fingerprint)
        self.progress = Progress(hold_out=hold_out, yardstick=guard.yardstick)
        self.judge = Judge(name, learner, catalogue, draw, guard, hold_out)
        self.drift = Drift()
        # A message about drift that is not in the history yet.
        self.drifted = ""
        # Offsets of the held-out events of the last batch.
        self.held_out: frozenset[int] = frozenset()
        # The offsets of events that were taken before.
        self.repeated: frozenset[int] = frozenset()
        self.seen = SeenIds()
        self._max_share_a_user = max_share_a_user
        self.users = UserShares(max_share_a_user)
        self._secret = secret
        self.stretches = Stretches(secret=secret)
        self.event_time: float | None = None
        self.trails = Trails(name)
        # Clock of the oldest change that no checkpoint has, and the offset of its event.
        self.changed_at = 0.0
        self.unsaved_from = 0
        # The version that was published last.
        self.published = -1
        # Bytes in memory.
        self.size = 0
        # The metric that was computed last, with its learner and version.
        self._metric: tuple[tuple[Learner, int], Metric] | None = None
        # The learner's counts up to which the worker's metrics have counted.
        counted = ("version", "mistakes", "updates")
        self.counted = {name: getattr(learner, name) for name in counted if hasattr(learner, name)}

    def resume(self, checkpoint: Checkpoint) -> None:
        """Take over a checkpoint's position and counts; raises CorruptError. The learner was made from its state."""
        self.home = Partition(*checkpoint.home)
        self.next = checkpoint.next
        self.event_time = checkpoint.event_time
        self.progress = Progress.of(checkpoint)
        self.drift, self.seen = Drift(self.progress.drift), SeenIds(self.progress.seen)
        self.users = UserShares(self._max_share_a_user, self.progress.users)
        self.stretches = Stretches(self.progress.stretches, self._secret)
        self.progress.tally = self.progress.tally.resumed(self.home, self.next)
        if checkpoint.generation != self.catalogue.generation:
            # The rows of these held-out events are those of another table.
            self.progress.hold_out.kept = []
        self.judge.judge_by(self.progress.hold_out)
        if checkpoint.reference:
            reference, config = metric_from_bytes(checkpoint.reference), self.judge.guard.config
            self.judge.compare_by(Guard(config, reference, self.progress.yardstick))

    def begin_at(self, offset: int) -> None:
        """Set the position for a save before the first event, whose offset this is."""
        assert self.home is not None
        self.next = offset
        self.progress.tally.take(self.home, offset, learned=0, held=0)

    @property
    def metric(self) -> Metric:
        """The learned metric. It is one object until more is learned, or until :meth:`shrink` drops it."""
        made_of = (self.learner, self.learner.version)
        if self._metric is None or self._metric[0] != made_of:
            self._metric = made_of, self.learner.metric
        return self._metric[1]

    def shrink(self) -> None:
        """Drop what can be computed again, and set ``size`` to the bytes that are left."""
        self._metric = None
        metrics = METRICS * len(self.judge.guard.reference_bytes)
        events = sum(len(event.rows) for event in self.progress.hold_out.kept)
        self.size = OBJECT_BYTES + self.learner.nbytes + metrics + COMPARISON_BYTES * events + self.seen.nbytes
        self.size += self.stretches.nbytes + self.users.nbytes

    def take(self, batch: Batch, timed: Timed, already_refused: Sequence[Refusal] = ()) -> list[Refusal]:
        """Learn a batch; returns the events that could not be learned.

        Those change no learned number. The model remembers their offsets and moves ``next`` past them.

        Parameters
        ----------
        already_refused
            Events of this model that came with these and are no part of the batch.
        """
        self.trails.take()
        here = batch.records[0].partition
        self.stretches.open(here, batch.records[0].offset)
        self.stretches.refuse(here, offsets_of(already_refused))
        if batch.identified or batch.resent:
            not_learned = self._take_new(batch, timed)
        else:
            not_learned, self.repeated = self._take(batch, timed), frozenset()
            self.stretches.refuse(here, offsets_of(not_learned))
        self.next = batch.records[-1].offset + 1
        self.stretches.end(self.next)
        return not_learned

    def refuse(self, refused: Sequence[Refusal]) -> None:
        """Remember refused events that came without any others."""
        self.stretches.refuse(refused[0].record.partition, offsets_of(refused))
        self.stretches.shrink()

    def _take_new(self, batch: Batch, timed: Timed) -> list[Refusal]:
        """Learn the events of a batch that are no copies of learned ones and do not repeat the id of one."""
        refused: list[Refusal] = []
        held: set[int] = set()
        new: list[Record] = []
        self.progress.tally.take(batch.records[0].partition, batch.records[0].offset, learned=0, held=0)
        for events in self.new_events(batch):
            not_learned = self._take(events.batch, timed)
            self.remember(events, not_learned)
            refused += not_learned
            held |= self.held_out
            new += events.batch.records
        self.held_out, self.repeated = frozenset(held), frozenset()
        if len(new) < len(batch.records):
            self.repeated = frozenset(record.offset for record in batch.records) - {record.offset for record in new}
        self.progress.tally.repeated += len(self.repeated)
        return refused

    def new_events(self, batch: Batch) -> Iterator[NewEvents]:
        """The events of a batch that were not learned before, in pieces; :meth:`remember` must be told of each."""
        for piece in self.stretches.without_copies(batch):
            yield from self.seen.without_repeats(piece)

    def remember(self, events: NewEvents, refused: Sequence[Refusal]) -> None:
        """Remember which of these events were learned and which were refused."""
        self.seen.add(events, refused)
        self.stretches.take(events.batch, set(offsets_of(refused)))

    def _take(self, batch: Batch, timed: Timed) -> list[Refusal]:
        with timed("look-up"):
            located, refused = self.look_up(batch)
        to_learn, held_out, self.held_out = self.judge.split(located)
        with timed("learn"):
            not_learned = self._learn(to_learn, deque(held_out), timed)
        count = len(to_learn.events.records) - len(not_learned)
        self.progress.tally.take(batch.records[0].partition, batch.records[0].offset, count, len(self.held_out))
        return refused + not_learned

    def look_up(self, batch: Batch) -> tuple[Located, list[Refusal]]:
        """The events whose items are known and whose users may send more, and the others."""
        located, refused = self._lookup.locate(batch)
        located, too_many = self.users.split(located, self.sent_as)
        return located, refused + too_many

    def _learn(self, located: Located, held_out: deque[HeldOutOfBatch], timed: Timed) -> list[Refusal]:
        """Learn events in order, each whole or not at all, and decide about every version that is due."""
        records, times = located.events.records, located.events.times
        # The errors, by the number of their event.
        bad: dict[int, FeedbackError] = {}
        first = 0
        while first < len(records):
            if first in bad:
                first += 1
                continue
            due = self.judge.guard.next_decision(self.learner.version)
            stop = min([located.reaches(first, due - self.learner.version), *(event for event in bad if event > first)])
            try:
                self._note_learned(times[first:stop], located.learn(self.learner, first, stop))
                self.trails.trace(records[first:stop])
                first = stop
            except FeedbackError as error:
                if error.row is None:
                    raise
                bad[located.event(first, error.row)] = error
                continue
            if self.learner.version >= due:
                self.judge.keep(held_out, before=stop)
                with timed("judge"):
                    self._decide()
        self.judge.keep(held_out)
        kinds = [kind_of(event) for event in located.events.events] if bad else []
        return [Refusal.of(records[event], error, self.sent_as, kinds[event]) for event, error in sorted(bad.items())]

    def _decide(self) -> None:
        """Let the guard decide about this version."""
        if self.judge.guard.config.on and not self.is_part:
            self.judge.decide(self.metric, self.learner.version)

    def _note_learned(self, event_times: list[float | None], scores: Array) -> None:
        """Count the mistakes among events that were learned, look for drift in them, and note how new they are."""
        self.progress.mistakes.add(scores)
        if rise := self.drift.add(scores):
            # The batch may have gone on after the comparison at which the drift was noticed.
            version = self.learner.version - rise.later
            self.drifted = f"{self.learner.name}, noticed at version {version:,}: {rise.message}"
            log.warning("drift", model=self.name, learner=self.learner.name, version=version, reason=rise.message)
        times = [time for time in event_times if time is not None]
        if not times:
            return
        self.event_time = max(times) if self.event_time is None else max(self.event_time, *times)
        # A replay of what is live already makes no events newer.
        if self.learner.version > self.published:
            self.trails.learned(self.learner.version, times)

    def checkpoint(self, platform: str) -> Checkpoint:
        """The checkpoint from which another worker can resume this model."""
        assert self.home is not None
        self.progress.drift, self.progress.seen = self.drift.to_bytes(), self.seen.to_bytes()
        self.progress.users, self.progress.yardstick = self.users.to_bytes(), self.judge.guard.yardstick
        self.progress.stretches = self.stretches.saved()
        self.progress.tally.end(self.home, self.next)
        return Checkpoint(
            model=self.name,
            home=(self.home.topic_id, self.home.number),
            next=self.next,
            version=self.learner.version,
            generation=self.catalogue.generation,
            configuration=self.configuration,
            platform=platform,
            event_time=self.event_time,
            progress=msgspec.to_builtins(self.progress),
            state=self.learner.to_bytes(),
            reference=self.judge.guard.reference_bytes,
        )

    def snapshot(self) -> Snapshot:
        """The snapshot of the current version, for nodes to serve."""
        return Snapshot(
            model=self.name,
            learner=self.learner.name,
            version=self.learner.version,
            generation=self.catalogue.generation,
            event_time=self.event_time,
            oldest_event_time=self.trails.new.oldest if self.trails.new else None,
            progress={
                "mistake_rate": self.progress.mistakes.mistake_rate,
                "recent_mistake_rate": self.progress.mistakes.recent_mistake_rate,
                **self.users.figures,
                **self.judge.start_comparison.figures,
                **self.judge.guard.figures,
                **self.learner.figures,
                **self._hedge,
            },
            metric=self.metric,
            trails=self.trails.for_snapshot(),
        )

    @property
    def _hedge(self) -> dict[str, float]:
        """The loss of a learner that weighs with Hedge, and the bound that it must not cross, if there is one."""
        losses = {name: getattr(self.learner, name, math.inf) for name in ("hedge_loss", "hedge_loss_bound")}
        return {name: loss for name, loss in losses.items() if math.isfinite(loss)}

    def reference_again(self) -> Snapshot:
        """The reference as a snapshot, to replace a live version that was judged worse. It has that version's number.

        A lower number would look like the late write of an earlier owner. It names no events, because it brings none
        that nodes do not know.
        """
        again = {"metric": self.judge.guard.reference, "event_time": None, "oldest_event_time": None, "trails": ()}
        return msgspec.structs.replace(self.snapshot(), **again)
