"""The whole of a model that is learned in parts: the sums of its parts' checkpoints, and the guard over them.

Part i is an ordinary model (``hot::part-3``) at home in partition i, with a checkpoint of its own: each event is
learned once, by the part of its partition. The whole is only computed from these checkpoints, as absolute sums in the
order of parts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import msgspec

from omdml.batch.sums import emptied, merged
from omdml.errors import CorruptError
from omdml.evaluate import Prequential
from omdml.learners import DCA, Learner
from omdml.snapshot import Checkpoint, Snapshot, metric_from_bytes
from omdml.streams.part_names import part_name
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Store, Written
from omdml.workers.configuration.specs import Spec
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.judging.held_out_draw import HoldOutState
from omdml.workers.model.judging.held_out_window import JudgingEvent
from omdml.workers.model.parts.vector import Component, PartsRecord, Vector, offset_in, with_record
from omdml.workers.model.progress import Progress
from omdml.workers.model.stored_model import StoredModel


class MergedModel(StoredModel):
    """A whole model, as it is published and saved. It learns nothing itself.

    Parameters
    ----------
    start
        What every part began with.
    """

    def __init__(self, name: str, start: DCA, spec: Spec, epoch: str, guard: Guard, record: PartsRecord) -> None:
        super().__init__(name, copy.deepcopy(start), spec.catalogue, epoch, spec.digest, guard)
        self.record = record
        self.judge.first_metric = spec.first_metric
        self._spec = spec
        self._start = start
        self._rates: dict[str, float] = {}

    def go_to(self, topic_id: str, placement: Placement, parts: Iterable[Checkpoint]) -> None:
        """Become the sum of these checkpoints, which come in the order of their parts; each is dropped once added.

        Raises CorruptError or ParameterError for a part that cannot be added to the others, ConfigurationError for one
        that does not fit the configuration.
        """
        components: list[Component] = []
        held: list[tuple[int, HoldOutState]] = []
        mistakes: list[Prequential] = []
        self.event_time = None

        def learners() -> Iterator[DCA]:
            for checkpoint in parts:
                progress = Progress.of(checkpoint)
                offset = offset_in(topic_id, Partition(*checkpoint.home), checkpoint.next)
                components.append(Component(checkpoint.home[1], offset, checkpoint.version))
                if checkpoint.generation != self.catalogue.generation:
                    # The row numbers of these events belong to another generation of the catalogue.
                    progress.hold_out.kept = []
                held.append((checkpoint.home[1], progress.hold_out))
                mistakes.append(progress.mistakes)
                times = [time for time in (self.event_time, checkpoint.event_time) if time is not None]
                self.event_time = max(times, default=None)
                yield cast(DCA, self._spec.resumed(checkpoint))

        self.learner = merged(self._start, learners())
        self.counted = {name: getattr(self.learner, name) for name in self.counted}
        count, covered = (sum(getattr(part, name) for part in mistakes) for name in ("count", "covered"))
        self._rates = {
            "mistake_rate": sum(part.mistakes for part in mistakes) / max(count, 1),
            "recent_mistake_rate": sum(sum(part.recent) for part in mistakes) / max(covered, 1),
        }
        vector = Vector(tuple(components))
        self.record = msgspec.structs.replace(self.record, vector=vector)
        self.home = Partition(topic_id, placement.home(self.name))
        self.next = vector.positions.get(self.home.number, 0)
        self._hold(held)

    def _hold(self, held: Sequence[tuple[int, HoldOutState]]) -> None:
        """Have the guard judge on what all parts hold out."""
        by_part = {number: still_judging(part, self.record.forgotten.get(str(number), 0)) for number, part in held}
        total = sum(part.count for _, part in held)
        self.progress.hold_out = HoldOutState(self._spec.guard.every, total, "", in_turn(by_part))
        self.judge.judge_by(self.progress.hold_out)
        before = len(self.progress.hold_out.kept)
        if self.learner.version:
            self._decide()
        # Nothing went live since the last decision, so there is nothing to take back.
        self.judge.guard.take_back = False
        if len(self.progress.hold_out.kept) < before:
            kept_ids = {id(event) for event in self.progress.hold_out.kept}
            kept_of_part = {
                number: sum(id(event) in kept_ids for event in events) for number, events in by_part.items()
            }
            forgotten = {str(number): part.count - kept_of_part[number] for number, part in held}
            self.record = msgspec.structs.replace(self.record, forgotten=forgotten)

    def snapshot(self) -> Snapshot:
        """See the base class; its vector says which checkpoints were merged."""
        plain = super().snapshot()
        return msgspec.structs.replace(
            plain, vector=str(self.record.vector), progress={**plain.progress, **self._rates}
        )

    def checkpoint(self, platform: str) -> Checkpoint:
        """See the base class; it has the record of the parts, and none of their events."""
        events = self.progress.hold_out.kept
        # The parts' checkpoints keep these.
        self.progress.hold_out.kept = []
        try:
            return with_record(super().checkpoint(platform), self.record)
        finally:
            self.progress.hold_out.kept = events


def resumed(name: str, spec: Spec, checkpoint: Checkpoint, record: PartsRecord, epoch: str) -> MergedModel:
    """The whole model of a checkpoint, before it has seen any part; raises CorruptError, ConfigurationError."""
    start = emptied(cast(DCA, spec.resumed(checkpoint)))
    reference = metric_from_bytes(checkpoint.reference) if checkpoint.reference else start.metric
    guard = Guard(spec.guard, reference, Progress.of(checkpoint).yardstick if checkpoint.reference else None)
    return MergedModel(name, start, spec, epoch, guard, record)


def begin(name: str, spec: Spec, store: Store, home: Partition, placement: Placement, platform: str) -> Written | None:
    """Write down what every part begins with, before the first one does; None if that is known already.

    All parts must begin alike, or they could not be added up: whatever the processor, and whatever became of the
    catalogue meanwhile. FENCED means that another worker does the same just now. Raises what the store raises.
    """
    if store.peek(name) is not None:
        return None
    epoch, checkpoint, _ = store.claim(name)
    if checkpoint is not None:
        return None
    start = cast(DCA, known_start(parts_of(name, placement), spec, store) or spec.fresh())
    model = MergedModel(name, start, spec, epoch, Guard(spec.guard, start.metric), PartsRecord())
    model.home = Partition(home.topic_id, placement.home(name))
    return store.save(model.checkpoint(platform), epoch, placement=placement)


def parts_of(name: str, placement: Placement) -> list[str]:
    """The names of all parts that a model can have, in order."""
    return [part_name(name, number) for number in range(placement.count)]


def known_start(parts: Sequence[str], spec: Spec, store: Store) -> Learner | None:
    """What these parts began with, if one is there although the whole is not, because it was deleted; None if not."""
    for part in store.positions(parts):
        checkpoint = store.peek(part)
        if checkpoint is not None:
            return emptied(cast(DCA, spec.resumed(checkpoint)))
    return None


def start_of_parts(name: str, spec: Spec, store: Store) -> DCA:
    """What a new part of a model begins with; raises CorruptError if that was not written down yet."""
    checkpoint = store.peek(name)
    if checkpoint is None:
        raise CorruptError(f"model {name!r}: what its parts begin with is not in the store yet. The worker looks again")
    return emptied(cast(DCA, spec.resumed(checkpoint)))


def still_judging(hold_out: HoldOutState, forgotten: int) -> list[JudgingEvent]:
    """The held-out events of a part that came after those that were forgotten."""
    return hold_out.kept[max(0, len(hold_out.kept) - max(0, hold_out.count - forgotten)) :]


def in_turn(held: dict[int, list[JudgingEvent]]) -> list[JudgingEvent]:
    """Events of all parts as one window, oldest first: the newest of each part are taken to be of one age."""
    aged = [
        (len(events) - index, number, event) for number, events in held.items() for index, event in enumerate(events)
    ]
    aged.sort(key=lambda entry: (-entry[0], entry[1]))
    return [event for _, _, event in aged]
