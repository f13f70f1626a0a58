"""A model that takes events as a worker does, while their comparisons are summed up elsewhere."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, cast

import msgspec

from omdml.feedback import AnyFeedback
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.resent_events import RESENT
from omdml.workers.configuration.specs import Spec
from omdml.workers.events.decoding import Batch, Refusal
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.judging.held_out_draw import HeldOutOfBatch
from omdml.workers.model.judging.held_out_window import JudgingEvent
from omdml.workers.model.owned_model import OwnedModel
from omdml.workers.operate.replay import nothing_timed


class EventWithoutItems(NamedTuple):
    """The parts of an event that the protocol needs besides its comparisons."""

    id: str | None
    features: None = None


class ChunkFacts(NamedTuple):
    """What is true about the events of one chunk, whatever came before it.

    Parameters
    ----------
    batch
        The model's events, without their payloads.
    unread
        Events of the model that do not become comparisons.
    refused
        The events of the batch that cannot be learned, by offset.
    held_out
        The events that the draw holds out, by offset, and what the model keeps of each.
    """

    batch: Batch
    unread: list[Refusal]
    refused: dict[int, Refusal]
    held_out: dict[int, JudgingEvent | None]


def without_payloads(batch: Batch) -> Batch:
    """Only what the protocol needs of a batch: positions, ids of events, and the headers that mark a copy."""
    slim = Batch()
    slim.events = cast(list[AnyFeedback], [EventWithoutItems(event.id) for event in batch.events])
    slim.id_counts = [0] * len(batch.records)
    slim.times = [None] * len(batch.records)
    slim.records = [
        msgspec.structs.replace(
            record, value=b"", key=None, headers=tuple(header for header in record.headers if header[0] == RESENT)
        )
        for record in batch.records
    ]
    return slim


class HistoryModel(OwnedModel):
    """Takes chunk after chunk, in order, and treats repeats, copies and held-out events as a worker does.

    Attributes
    ----------
    refused
        Everything that becomes a dead letter.
    """

    def __init__(self, name: str, spec: Spec, home: Partition, secret: bytes) -> None:
        learner = spec.fresh()
        guard = Guard(spec.guard, spec.first_metric())
        super().__init__(name, learner, spec.catalogue, "", spec.digest, guard, secret, spec.max_share_a_user)
        self.home = home
        self.refused: list[Refusal] = []
        self._facts: ChunkFacts | None = None
        self._taken: list[int] = []

    def take_chunk(self, facts: ChunkFacts) -> frozenset[int]:
        """Take the events of a chunk; returns the offsets of those to learn."""
        self._facts, self._taken = facts, []
        refused = list(facts.unread)
        if facts.batch.records:
            refused += self.take(facts.batch, nothing_timed, facts.unread)
        elif refused:
            self.refuse(refused)
        self.next = max([self.next, *(refusal.record.offset + 1 for refusal in refused)])
        self.refused += refused
        return frozenset(self._taken)

    def _take(self, batch: Batch, timed: Any) -> list[Refusal]:
        facts = self._facts
        assert facts is not None
        offsets = [record.offset for record in batch.records]
        refused = [facts.refused[offset] for offset in offsets if offset in facts.refused]
        self.held_out = frozenset(offset for offset in offsets if offset in facts.held_out)
        self.judge.keep(
            deque(HeldOutOfBatch(0, facts.held_out[offset]) for offset in offsets if offset in facts.held_out)
        )
        self._taken += [offset for offset in offsets if offset not in facts.refused and offset not in facts.held_out]
        learned = len(offsets) - len(refused) - len(self.held_out)
        self.progress.tally.take(batch.records[0].partition, offsets[0], learned, len(self.held_out))
        return refused

    def decide(self) -> None:
        """Have the guard compare what was learned with the start, on the held-out events."""
        self._decide()

    def end(self, offset: int) -> None:
        """End the history at ``offset``, from which a worker goes on."""
        self.next = max(self.next, offset)


def is_home(placement: Placement, name: str) -> bool:
    """Whether a model has lived on one partition since the log began."""
    return len({Placement(placement.partitioner, (step,)).home(name) for step in placement.steps}) == 1
