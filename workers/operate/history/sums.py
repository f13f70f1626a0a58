"""Sums up a part of the history. It is a plain function, for Spark, Dask or a pool of processes.

Sums are made over chunks. A chunk is a fixed number of offsets of a partition, counted from 0, so the offset alone says
in which chunk a record is. However the work is divided, the same chunks give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from omdml.batch.sums import Sums, summed, unlearnable
from omdml.errors import FeedbackError, FormatError
from omdml.feedback import kind_of
from omdml.formats import STATE
from omdml.learners import DCA
from omdml.snapshot import unpack
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Record
from omdml.workers.configuration.config import Configuration
from omdml.workers.configuration.process import one_thread
from omdml.workers.configuration.specs import Spec, Specs, Start
from omdml.workers.events.decoding import Batch, Refusal, sort_out
from omdml.workers.events.lookup import Located
from omdml.workers.operate.history.archived import Piece, by_chunk
from omdml.workers.operate.history.model import ChunkFacts, HistoryModel, without_payloads

# The model of the job that this process works for.
_opened_models: dict[str, tuple[Spec, DCA]] = {}
_opening = Lock()


class Job(NamedTuple):
    """What is the same for all pieces. It is sent to every process.

    ``start`` is the learner before its first event. It is made only once, because on two kinds of processor its last
    digits may differ. ``span`` is the number of offsets in a chunk. ``open_specs`` opens the models in each process,
    once for each ``key``.
    """

    key: str
    open_specs: Callable[[Configuration], Specs]
    configuration: Configuration
    model: str
    placement: Placement
    secret: bytes
    start: bytes
    span: int


class Chunk(NamedTuple):
    """The content of a chunk, and the sums over its events at the offsets ``learned``.

    ``records`` counts its records of all models, and ``first`` is the offset of the first record.
    """

    number: int
    first: int
    records: int
    facts: ChunkFacts
    learned: frozenset[int]
    sums: Sums
    event_time: float | None


def sum_up(job: Job, piece: Piece, learned: Collection[int] | None = None) -> list[Chunk]:
    """Sum up the chunks of a piece, in order. Without ``learned``, each is taken as if nothing had come before it.

    Raises SourceError if files cannot be read or are of several logs, and what opening the model raises.
    """
    one_thread()
    spec, start = _opened(job)
    return [_chunk(job, spec, start, number, records, learned) for number, records in by_chunk(piece, job.span)]


def _opened(job: Job) -> tuple[Spec, DCA]:
    # A process of Dask may have several threads. One at a time looks and opens.
    with _opening:
        if job.key not in _opened_models:
            _opened_models.clear()
            _opened_models[job.key] = _open(job)
        return _opened_models[job.key]


def _open(job: Job) -> tuple[Spec, DCA]:
    check_same_format(job.start)
    spec = job.open_specs(job.configuration).of(job.model)
    start = DCA.from_bytes(job.start)
    # Models of this specification begin with this start, so it is not computed again.
    spec.starts[spec.catalogue.generation] = Start(start, start.metric)
    return spec, start


def check_same_format(start: bytes) -> None:
    """Raise FormatError unless the process that made this start has the same format of states as this process.

    A start of an older format could be read, but an older driver would add up sums that it takes for those of its own
    format.
    """
    number = unpack(start)[1]["format"]
    if number != STATE.number:
        raise FormatError(
            f"the process that began this job has another omdml (format {number} of learner states, this one has "
            f"{STATE.number}): install the same release everywhere. Nothing was changed"
        )


def _chunk(
    job: Job, spec: Spec, start: DCA, number: int, records: list[Record], learned: Collection[int] | None
) -> Chunk:
    model = HistoryModel(job.model, spec, records[0].partition, job.secret)
    batches, others = sort_out(records, lambda name: spec.learner.accepts if name == job.model else None)
    batch, unread = batches.get(job.model, Batch()), others.get(job.model, [])
    located, refused = model.look_up(batch) if batch.records else (None, [])
    by_offset, held_out = {entry.record.offset: entry for entry in refused}, {}
    if located is not None:
        events = [record.offset for record in located.events.records]
        located, held, offsets = model.judge.split(located)
        held_offsets = [offset for offset in events if offset in offsets]
        held_out = dict(zip(held_offsets, [event.event for event in held], strict=True))
        located, unlearnable = without_unlearnable(job.model, start, located)
        by_offset |= {entry.record.offset: entry for entry in unlearnable}
    facts = ChunkFacts(without_payloads(batch), unread, by_offset, held_out)
    wanted = model.take_chunk(facts) if learned is None else frozenset(learned)
    sums, event_time = _summed(start, located, wanted)
    return Chunk(number, records[0].offset, len(records), facts, wanted, sums, event_time)


def _summed(start: DCA, located: Located | None, wanted: Collection[int]) -> tuple[Sums, float | None]:
    if located is None:
        return summed(start, np.empty((0, start.width), np.int64), {name: np.empty((0, d)) for name, d in
                                                                    start.dims.items()}), None  # fmt: skip
    unwanted = [index for index, record in enumerate(located.events.records) if record.offset not in wanted]
    to_sum = located.without(unwanted) if unwanted else located
    times = [time for time in to_sum.events.times if time is not None]
    rows: Any = to_sum.compared
    return summed(start, rows, to_sum.features, **to_sum.columns), max(times, default=None)


def without_unlearnable(model: str, start: DCA, located: Located) -> tuple[Located, list[Refusal]]:
    """Separate the events whose numbers can be learned from the others, which become refusals."""
    refused: list[Refusal] = []
    rows: Any = located.compared
    bad = unlearnable(start, rows, located.features)
    if not bad:
        return located, refused
    events: dict[int, FeedbackError] = {}
    for error in bad:
        assert error.row is not None
        events.setdefault(located.event(0, error.row), error)
    for index, error in sorted(events.items()):
        kind = kind_of(located.events.events[index])
        refused.append(Refusal.of(located.events.records[index], error, model, kind))
    return located.without(list(events)), refused
