"""Learns a log again beside the workers, to see what a configuration or another learner makes of it.

Each comparison is first answered, then learned, so the mistakes are those on events that were not learned yet.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from omdml.errors import ConfigurationError, GapError
from omdml.learners import LEARNERS, Learner
from omdml.messages.suggestion import suggestion
from omdml.metrics import Metric
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition, Record, Source
from omdml.streams.protocols.store import Store
from omdml.streams.topic_extents import Extent
from omdml.workers.configuration.config import ModelConfig
from omdml.workers.configuration.specs import Spec, Specs
from omdml.workers.events.decoding import Batch, Refusal, by_partition, sort_out, wrong_partition
from omdml.workers.events.lookup import Located
from omdml.workers.model.beginning import beginning
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.judging.held_out_accuracy import HeldOutAccuracy, order_right, plain_metric
from omdml.workers.model.owned_model import OwnedModel, offsets_of
from omdml.workers.operate.left_out import NOTHING, LeftOut

POLL_RECORDS = 1000
POLL_S = 0.5
# The numbers of comparisons at which the stretches of a curve end.
STRETCHES = tuple(digit * 10**power for power in range(2, 13) for digit in (1, 2, 5))


class Beginning:
    """A listener that reads the partitions with these numbers, or all if ``numbers`` is None.

    Each is read from its beginning, or from the offset in ``since`` for its number.
    """

    def __init__(self, numbers: range | None, since: Mapping[int, int] | None = None) -> None:
        self._numbers, self._since = numbers, since or {}

    def assigned(self, committed: Mapping[Partition, int | None]) -> Mapping[Partition, int | None]:
        """Start each partition at its first offset, and ignore committed offsets."""
        return {
            partition: self._since.get(partition.number)
            for partition in committed
            if self._numbers is None or partition.number in self._numbers
        }

    def revoked(self, partitions: Iterable[Partition]) -> None:
        """Do nothing: a replay saves nothing."""

    def lost(self, partitions: Iterable[Partition]) -> None:
        """Do nothing: a replay saves nothing."""


def read_as_placed(open_source: Callable[[], Source], placement: Placement, accept_gap: bool) -> Iterator[list[Record]]:
    """Every record of a log that a worker would read; those of each model in the order in which a worker learns them.

    A model that moved lived on a partition with a lower number before. So partitions are read in the order in which
    they were added.
    """
    first_number = 0
    for step in placement.steps:
        yield from read_whole(open_source(), accept_gap, range(first_number, step.count))
        first_number = step.count


def read_whole(
    source: Source, accept_gap: bool = False, numbers: range | None = None, since: Mapping[int, int] | None = None
) -> Iterator[list[Record]]:
    """Every record of a log, or of the partitions with these numbers, up to where the log ended at the first look.

    ``since`` has the offset to begin at, by the number of the partition. At the end the source is closed. If a part of
    the log is missing, raises GapError, or goes on after it if ``accept_gap``.
    """
    source.subscribe(Beginning(numbers, since))
    ends: dict[Partition, int] = {}
    try:
        while True:
            try:
                records = source.poll(POLL_RECORDS, POLL_S)
            except GapError as gap:
                if not accept_gap or gap.partition is None or gap.resume is None:
                    raise
                source.seek(Partition(*gap.partition), gap.resume)
                continue
            progress = source.progress()
            ends = ends or {partition: end for partition, (_, end) in progress.items()}
            if records:
                yield records
            else:
                # The end may have moved back, because what looked like a line was a torn one.
                ends = {place: min(end, progress[place][1]) for place, end in ends.items() if place in progress}
            if ends and all(place in progress and progress[place][0] >= end for place, end in ends.items()):
                return
    finally:
        source.close()


def replayed_spec(specs: Specs, model: str, learner: str | None = None) -> Spec:
    """The specification of a model. With another learner than the configured one, it has that learner's defaults.

    Raises ConfigurationError if no such model is configured, ParameterError if the learner has no defaults.
    """
    spec = specs.find(model)
    if spec is None:
        hint = suggestion(model, specs.configuration.models)
        raise ConfigurationError(f"no model {model!r} is configured{hint}")
    if learner is None or LEARNERS[learner] is spec.learner:
        return spec
    return spec._replace(
        learner=LEARNERS[learner], parameters={}, digest=ModelConfig(learner=learner).digest(), starts={}, parent=""
    )


def first_learner(spec: Spec, name: str, store: Store) -> Learner:
    """The learner that a model begins with: the one that its checkpoint records, or what it would begin with today.

    A checkpoint of another generation of the catalogue is not used, because its coordinates are others. Raises
    CorruptError if the checkpoint cannot be read, StartError, and what the store raises.
    """
    checkpoint = store.peek(name) if spec.parent else None
    if checkpoint is None or checkpoint.generation != spec.catalogue.generation:
        return deepcopy(beginning(spec, store).learner)
    learner = spec.fresh()
    parent = getattr(Learner.from_bytes(checkpoint.state), "parent", None)
    if parent is not None:
        learner.begin_from(*parent)  # type: ignore[attr-defined]
    return learner


class CurvePoint(NamedTuple):
    """The end of a stretch of a curve: comparisons, mistakes and seconds since the beginning."""

    comparisons: int
    mistakes: int
    seconds: float


class ReplayedModel(OwnedModel):
    """A model that learns a log, and the curve of its mistakes."""

    def __init__(
        self,
        name: str,
        learner: Learner,
        spec: Spec,
        placement: Placement,
        secret: bytes | None = None,
        left_out: LeftOut = NOTHING,
    ) -> None:
        guard = Guard(spec.guard, learner.metric)
        super().__init__(name, learner, spec.catalogue, "", spec.digest, guard, secret, spec.max_share_a_user)
        self.accepts = learner.accepts
        self.placement = placement
        self.curve: list[CurvePoint] = []
        self.refused: list[Refusal] = []
        # The offset after the last record that was read in each partition, of any model. Workers go on there: if they
        # read that record again, a model that was deleted would begin with it.
        self.read: dict[Partition, int] = {}
        # The metric before the first event was learned.
        self.start: Metric | None = None
        # The number of comparisons and the metric after each stretch; None if no page needs them.
        self.metrics_along: list[tuple[int, Metric]] | None = None
        self.left_out = left_out
        # The number of events that were left out.
        self.passed_over = 0
        self.seconds = 0.0
        self._began = 0.0

    def note_beginnings(self, extents: Iterable[Extent]) -> None:
        """Note where the log begins now. If it holds no record of a partition any more, workers go on there.

        Otherwise the mark of a home that retention has emptied would go back to 0, and workers would stop at the gap.
        """
        for extent in extents:
            self.read.setdefault(extent.partition, extent.begin)

    def go_on_with(self, learner: Learner) -> None:
        """Go on with this learner. The guard compares candidates with its first metric."""
        self.learner = learner
        self.judge.compare_by(Guard(self.judge.guard.config, learner.metric))

    def learn(self, records: list[Record]) -> None:
        """Learn this model's events among the records, as a worker would."""
        if self.start is None:
            self.start = self.learner.metric
        self._began, stretches = time.perf_counter() - self.seconds, len(self.curve)
        for batch, refused in self._mine(records):
            before = self.next
            for part in self._wanted(batch):
                self._keep_refused(self.take(part, nothing_timed, refused))
                refused = []
            if refused:
                self.refuse(refused)
            if batch.records[0].partition != self.home:
                # These events are from its old home, before partitions were added. The position on the new home stays.
                self.next = before
        self.seconds = time.perf_counter() - self._began
        if self.metrics_along is not None and len(self.curve) > stretches:
            self.metrics_along.append((self.progress.mistakes.count, self.learner.metric))

    def _wanted(self, batch: Batch) -> Iterator[Batch]:
        """The events to learn, in parts. Events that are left out are passed over."""
        if self.left_out != NOTHING:
            here, first = batch.records[0].partition, batch.records[0].offset
            # The model begins at this event even if the event is left out.
            self.stretches.open(here, first)
            self.progress.tally.take(here, first, learned=0, held=0)
        while batch.records:
            wanted, left_out, batch = self.left_out.split(batch, self.learner.version)
            if wanted.records:
                yield wanted
            if left_out.records:
                self._pass_over(left_out)

    def _pass_over(self, batch: Batch) -> None:
        """Count these events as taken, and go on after them."""
        self.progress.tally.repeated += len(batch.records)
        self.passed_over += len(batch.records)
        self.next = max(self.next, batch.records[-1].offset + 1)
        self.stretches.end(self.next)

    def locate(self, records: list[Record]) -> list[Located]:
        """Take this model's events among the records without learning them, because they will be fitted.

        Held-out events are not returned.
        """
        parts = []
        for batch, others in self._mine(records):
            self.stretches.open(batch.records[0].partition, batch.records[0].offset)
            self.stretches.refuse(batch.records[0].partition, offsets_of(others))
            for events in self.new_events(batch):
                located, refused = self.look_up(events.batch)
                self.remember(events, refused)
                learned, held_out, _ = self.judge.split(located)
                self.judge.keep(deque(held_out))
                parts.append(learned)
                self._keep_refused(refused)
            self.next = batch.records[-1].offset + 1
            self.stretches.end(self.next)
        return parts

    def _mine(self, records: list[Record]) -> Iterator[tuple[Batch, list[Refusal]]]:
        """This model's events, partition by partition, with the refusals of those that cannot be read.

        Everything that will not be learned is kept as a refusal.
        """
        for partition, part in by_partition(records).items():
            self.read[partition] = part[-1].offset + 1
            batches, others = sort_out(part, lambda name: self.accepts if name == self.sent_as else None)
            batch, refused = batches.get(self.sent_as, Batch()), others.get(self.sent_as, [])
            refused_at_home = [refusal for refusal in refused if self._belongs(refusal.record)]
            here = [self._belongs(record) for record in batch.records]
            if batch.records:
                error = wrong_partition(self.name, partition, self.placement)
                refused += [
                    Refusal(record, error, self.sent_as) for record in batch.only([not mine for mine in here]).records
                ]
                self.home = Partition(partition.topic_id, self.placement.home(self.name))
            if any(here):
                yield batch.only(here), refused_at_home
            elif refused_at_home:
                self.refuse(refused_at_home)
            self._keep_refused(refused)

    def _belongs(self, record: Record) -> bool:
        return self.placement.belongs(self.name, record.partition.number, record.offset)

    def _keep_refused(self, refused: list[Refusal]) -> None:
        """Keep refusals. They move ``next``, as a worker's dead letters do."""
        self.refused += refused
        for record, *_ in refused:
            if self.home == record.partition:
                self.next = max(self.next, record.offset + 1)

    def _note_learned(self, event_times: list[float | None], scores: NDArray[Any]) -> None:
        before, wrong = self.progress.mistakes.count, self.progress.mistakes.mistakes + np.cumsum(scores > 0)
        super()._note_learned(event_times, scores)
        for end in STRETCHES:
            if before < end <= self.progress.mistakes.count:
                self._end_stretch(end, int(wrong[end - before - 1]))

    def _end_stretch(self, comparisons: int, mistakes: int) -> None:
        self.curve.append(CurvePoint(comparisons, mistakes, time.perf_counter() - self._began))

    def orders(self) -> list[HeldOutAccuracy]:
        """How many held-out events are ordered rightly: by Euclidean distance, by the first metric, and by the last.

        The list is empty if no event is held out.
        """
        if self.start is None:
            return []
        metrics = (plain_metric(self.start, self.catalogue), self.start, self.learner.metric)
        shares = [order_right(self.progress.hold_out, metric, self.catalogue.features) for metric in metrics]
        return [order for order in shares if order]

    def orders_along(self) -> list[tuple[int, HeldOutAccuracy]]:
        """The number of comparisons learned, and how many held-out events the metric ordered rightly then.

        Every metric is asked about the same events: those that are held out at the end. The list is empty if there are
        none.
        """
        if self.start is None:
            return []
        metrics = [(0, self.start), *(self.metrics_along or ()), (self.progress.mistakes.count, self.learner.metric)]
        shares = [
            (count, order_right(self.progress.hold_out, metric, self.catalogue.features)) for count, metric in metrics
        ]
        return [(count, order) for count, order in dict(shares).items() if order]

    def finish(self) -> None:
        """End the last stretch, because the log has ended."""
        if self.progress.mistakes.count > (self.curve[-1].comparisons if self.curve else 0):
            self.curve.append(CurvePoint(self.progress.mistakes.count, self.progress.mistakes.mistakes, self.seconds))


def nothing_timed(stage: str) -> nullcontext[None]:
    """A timer that measures nothing: a replay is timed as a whole."""
    return nullcontext()


def prequential_table(models: Iterable[ReplayedModel], fitted: int = 0) -> Table:
    """A table of the mistakes of each model in stretches that grow, and of its order of the held-out events.

    A mistake is counted before the comparison is learned. The first row is the plain distance, which learns nothing.
    """
    title = f"mistakes before learning{f', after a start fitted on the first {fitted:,} events' if fitted else ''}"
    columns = ("learner", "comparisons", "mistakes", "in this stretch", "seconds", "held-out events in order")
    table = Table(*columns, title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for model in models:
        plain, *orders = model.orders() or (None,)
        if plain and not table.rows:
            table.add_row("plain distance, nothing learned", "", "", "", "", f"{plain} of {plain.events}")
            table.add_section()
        before = CurvePoint(0, 0, 0.0)
        for stretch in model.curve:
            share_here = (stretch.mistakes - before.mistakes) / (stretch.comparisons - before.comparisons)
            share_so_far = stretch.mistakes / stretch.comparisons
            name = model.learner.name if stretch is model.curve[0] else ""
            order = " -> ".join(map(str, orders)) if stretch is model.curve[-1] else ""
            seconds = f"{stretch.seconds:.2f}"
            table.add_row(name, f"{stretch.comparisons:,}", f"{share_so_far:.2%}", f"{share_here:.2%}", seconds, order)
            before = stretch
        if not model.curve:
            table.add_row(model.learner.name, "0", "", "", f"{model.seconds:.2f}", "")
        table.add_section()
    return table


def refusals(model: ReplayedModel) -> str:
    """One line about the events that were refused, counted by reason; empty if none was."""
    reasons = Counter(error.reason for _, error, *_ in model.refused)
    counted = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
    gone = ": were these items deleted since?" if set(reasons) == {"unknown_item"} else ""
    return f"{model.learner.name}: refused {counted}{gone}" if counted else ""
