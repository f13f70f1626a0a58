"""A model that this worker owns, and that learns from batches of events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import structlog
from numpy.typing import NDArray

from omdml.errors import FeedbackError
from omdml.feedback import kind_of
from omdml.learners import Learner
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.log import Record
from omdml.workers.events.decoding import Batch, Refusal
from omdml.workers.events.lookup import Located, Lookup
from omdml.workers.events.repeats import NewEvents
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.judging.held_out_draw import HeldOutOfBatch
from omdml.workers.model.stored_model import StoredModel

Array = NDArray[Any]
log = structlog.get_logger(__name__)
# A context manager that counts the time inside it for one stage.
Timed = Callable[[str], AbstractContextManager[None]]


def offsets_of(refused: Sequence[Refusal]) -> list[int]:
    """The offsets of refused events, in their order."""
    return [refusal.record.offset for refusal in refused]


class OwnedModel(StoredModel):
    """A model that this worker learns, from its claim until it is dropped from memory."""

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
        super().__init__(name, learner, catalogue, epoch, configuration, guard, secret, max_share_a_user)
        self._lookup = Lookup(self.sent_as, type(learner), catalogue)
        # Offsets of the held-out events of the last batch.
        self.held_out: frozenset[int] = frozenset()
        # The offsets of events that were taken before.
        self.repeated: frozenset[int] = frozenset()

    def take(self, batch: Batch, timed: Timed, already_refused: Sequence[Refusal] = ()) -> list[Refusal]:
        """Learn a batch; returns the events that could not be learned.

        Those change no learned number. The model remembers their offsets and moves ``next`` past them.

        Parameters
        ----------
        already_refused
            Events of this model that came with these and are no part of the batch.
        """
        self.trails.take()
        partition = batch.records[0].partition
        self.stretches.open(partition, batch.records[0].offset)
        self.stretches.refuse(partition, offsets_of(already_refused))
        if batch.identified or batch.resent:
            not_learned = self._take_new(batch, timed)
        else:
            not_learned, self.repeated = self._take(batch, timed), frozenset()
            self.stretches.refuse(partition, offsets_of(not_learned))
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
        held_out: set[int] = set()
        new: list[Record] = []
        self.progress.tally.take(batch.records[0].partition, batch.records[0].offset, learned=0, held=0)
        for events in self.new_events(batch):
            not_learned = self._take(events.batch, timed)
            self.remember(events, not_learned)
            refused += not_learned
            held_out |= self.held_out
            new += events.batch.records
        self.held_out, self.repeated = frozenset(held_out), frozenset()
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
        # Why events cannot be learned, by their index.
        errors: dict[int, FeedbackError] = {}
        first = 0
        while first < len(records):
            if first in errors:
                first += 1
                continue
            due = self.judge.guard.next_decision(self.learner.version)
            stop = min(
                [located.reaches(first, due - self.learner.version), *(event for event in errors if event > first)]
            )
            try:
                self._note_learned(times[first:stop], located.learn(self.learner, first, stop))
                self.trails.trace(records[first:stop])
                first = stop
            except FeedbackError as error:
                if error.row is None:
                    raise
                errors[located.event(first, error.row)] = error
                continue
            if self.learner.version >= due:
                self.judge.keep(held_out, before=stop)
                with timed("judge"):
                    self._decide()
        self.judge.keep(held_out)
        kinds = [kind_of(event) for event in located.events.events] if errors else []
        return [
            Refusal.of(records[event], error, self.sent_as, kinds[event]) for event, error in sorted(errors.items())
        ]

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
