"""One owned model: its learner, and what of it is learned, published and saved."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import structlog
from numpy.typing import NDArray

from omdml.errors import CorruptError, FeedbackError
from omdml.evaluate import Prequential
from omdml.learners import Learner
from omdml.learners.pairs import ONLY_TASK
from omdml.metrics import Metric
from omdml.snapshot import Checkpoint, Snapshot
from streams.protocols import Catalogue, Partition, Record
from workers.drift import Drift
from workers.guard import NEAR, Guard, Yardstick
from workers.hold_out import HoldOut
from workers.intake import Batch, Refusal, said_as
from workers.lookup import Located, Lookup
from workers.repeats import SeenIds
from workers.tally import Tally

Array = NDArray[Any]
log = structlog.get_logger(__name__)
OBJECTS, COMPARISON = 10_000, 350  # bytes that a model's objects take, and a comparison held back (measured)
METRICS = 2  # that the guard keeps: what is live, what it compares with
Timed = Callable[[str], AbstractContextManager[None]]  # counts the time inside to a stage


class Progress(msgspec.Struct):
    """What a model's checkpoint keeps beside its learner."""

    mistakes: Prequential = msgspec.field(default_factory=Prequential)
    hold_out: HoldOut = msgspec.field(default_factory=HoldOut)
    yardstick: Yardstick = msgspec.field(default_factory=Yardstick)
    drift: bytes = b""
    seen: bytes = b""  # ids of the newest events, 8 bytes each
    tally: Tally = msgspec.field(default_factory=Tally)
    held: str = ""  # why the newest version is not live


class OwnedModel:
    """A model this worker learns, from its claim until it is let go.

    ``next`` is the offset after the last event taken; events below it are skipped. ``epoch`` guards every write.
    """

    def __init__(
        self,
        name: str,
        learner: Learner,
        catalogue: Catalogue,
        epoch: str,
        configuration: str,
        guard: Guard,
    ) -> None:
        self.name = name
        self.learner = learner
        self.catalogue = catalogue
        self._lookup = Lookup(name, type(learner), catalogue)
        self.epoch = epoch
        self.configuration = configuration
        self.home: Partition | None = None
        self.next = 0
        self.progress = Progress(hold_out=HoldOut(every=guard.config.every), yardstick=guard.yardstick)
        self.drift = Drift()
        self.drifted = ""  # what to tell the history
        self.held_back: frozenset[int] = frozenset()  # offsets of the events not learned of what was taken last
        self.repeated: frozenset[int] = frozenset()  # offsets of those that were taken before
        self.seen = SeenIds()
        self.guard = guard
        self._judged = -math.inf  # version
        self.event_time: float | None = None
        self.oldest: float | None = None  # event time of the oldest event in no publication yet
        self.changed_at = 0.0  # clock of the oldest change in no checkpoint yet, and the offset of its event
        self.unsaved_from = 0
        self.published = -1  # version
        self.size = 0  # bytes in memory
        self.counted = {name: getattr(learner, name) for name in ("mistakes", "updates") if hasattr(learner, name)}

    def resume(self, checkpoint: Checkpoint) -> None:
        """Take on position and counts of a checkpoint (the learner is made from its state); raises CorruptError."""
        self.home = Partition(*checkpoint.home)
        self.next = checkpoint.next
        self.event_time = checkpoint.event_time
        try:
            self.progress = msgspec.convert(checkpoint.progress, Progress)
        except msgspec.ValidationError as error:
            raise CorruptError(f"checkpoint of model {self.name!r}: progress not of this kind ({error})") from error
        self.drift, self.seen = Drift(self.progress.drift), SeenIds(self.progress.seen)
        self.progress.tally = self.progress.tally.resumed(self.home, self.next)
        if checkpoint.generation != self.catalogue.generation:
            self.progress.hold_out.kept = []  # rows of another table

    def measure(self, metric: Metric | None = None) -> None:
        """Look at what this model takes in memory by now: ``size``. ``metric`` is the learner's, if it is at hand."""
        metric = self.learner.metric if metric is None else metric
        metrics = METRICS * sum(array.nbytes for array in metric.to_tensors()[0].values())
        events = sum(len(event.rows) for event in self.progress.hold_out.kept)
        self.size = OBJECTS + self.learner.nbytes + metrics + COMPARISON * events + self.seen.nbytes

    def take(self, batch: Batch, timed: Timed) -> list[Refusal]:
        """Learn a batch; answers the events that could not be learned, which changed nothing but ``next``."""
        if batch.identified:
            refused = self._take_new(batch, timed)
        else:
            refused, self.repeated = self._take(batch, timed), frozenset()
        self.next = batch.records[-1].offset + 1
        return refused

    def _take_new(self, batch: Batch, timed: Timed) -> list[Refusal]:
        """Learn the events of a batch that do not repeat the id of an earlier one."""
        refused: list[Refusal] = []
        held: set[int] = set()
        new: list[Record] = []
        self.progress.tally.take(self.home, batch.records[0].offset, learned=0, held=0)
        for part in self.seen.parts(batch):
            found = self._take(part.batch, timed)
            self.seen.add(part, found)
            refused += found
            held |= self.held_back
            new += part.batch.records
        self.held_back, self.repeated = frozenset(held), frozenset()
        if len(new) < len(batch.records):
            self.repeated = frozenset(record.offset for record in batch.records) - {record.offset for record in new}
        self.progress.tally.repeated += len(self.repeated)
        return refused

    def _take(self, batch: Batch, timed: Timed) -> list[Refusal]:
        with timed("look-up"):
            located, refused = self._lookup.locate(batch)
        tasks = getattr(self.learner, "tasks", None) or ONLY_TASK
        located, self.held_back = self.progress.hold_out.split(located, self.catalogue, tasks)
        with timed("learn"):
            not_learned = self._learn(located)
        learned = len(located.events.records) - len(not_learned)
        self.progress.tally.take(self.home, batch.records[0].offset, learned, len(self.held_back))
        return refused + not_learned

    def _learn(self, located: Located) -> list[Refusal]:
        """Learn events in order, each whole or not at all."""
        records, times = located.events.records, located.events.times
        bad: dict[int, FeedbackError] = {}  # by event
        first = 0
        while first < len(records):
            stop = min((event for event in bad if event >= first), default=len(records))
            try:
                if first < stop:
                    self._learned(times[first:stop], located.learn(self.learner, first, stop))
                first = stop + 1
            except FeedbackError as error:
                if error.row is None:
                    raise
                bad[located.event(first, error.row)] = error
        kinds = [said_as(type(event)) for event in located.events.events] if bad else []
        return [Refusal(records[event], error, self.name, kinds[event]) for event, error in sorted(bad.items())]

    def _learned(self, event_times: list[float | None], scores: Array) -> None:
        self.progress.mistakes.add(scores)
        if drifted := self.drift.add(scores):
            self.drifted = f"{self.learner.name}: {drifted}"
            told = {"learner": self.learner.name, "version": self.learner.version, "reason": drifted}
            log.warning("drift", model=self.name, **told)
        times = [time for time in event_times if time is not None]
        if not times:
            return
        self.event_time = max(times) if self.event_time is None else max(self.event_time, *times)
        if self.learner.version > self.published:  # else a replay of what is live already
            self.oldest = min(times) if self.oldest is None else min(self.oldest, *times)

    @property
    def can_be_judged(self) -> bool:
        """Whether the guard takes a candidate by now."""
        return self.guard.looks or self._near

    @property
    def _near(self) -> bool:
        return not self.progress.held and self.learner.version - self._judged <= NEAR

    def judge(self, candidate: Metric) -> str:
        """Why a metric of this model must not go live; empty where it may. Says so when that changes."""
        if not self.guard.looks and self._near and self.guard.follows(candidate):
            return ""
        self._judged = self.learner.version
        before, held = self.progress.held, self.guard.judge(candidate, self.progress.hold_out, self.catalogue.features)
        if self.guard.reference is candidate:
            self.progress.yardstick.version = self.learner.version
        if held and not before:
            log.warning("snapshot_held", model=self.name, version=self.learner.version, reason=held)
        elif before and not held:
            log.info("snapshots_live_again", model=self.name, version=self.learner.version)
        self.progress.held = held
        return held

    def checkpoint(self, platform: str) -> Checkpoint:
        """Everything that resumes this model."""
        assert self.home is not None
        self.progress.drift, self.progress.seen = self.drift.to_bytes(), self.seen.to_bytes()
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
        )

    def snapshot(self) -> Snapshot:
        """What nodes serve, as of now."""
        return Snapshot(
            model=self.name,
            learner=self.learner.name,
            version=self.learner.version,
            generation=self.catalogue.generation,
            event_time=self.event_time,
            oldest_event_time=self.oldest,
            progress={
                "mistake_rate": self.progress.mistakes.mistake_rate,
                "recent_mistake_rate": self.progress.mistakes.recent_mistake_rate,
            },
            metric=self.learner.metric,
        )
