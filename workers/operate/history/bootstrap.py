"""Begins a model in the store from an archive of its log. No event is learned twice, and none is skipped."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from omdml.batch.sums import Adding
from omdml.errors import GapError, StartError, StoreError
from omdml.learners import DCA
from omdml.streams.letters import DeadLetters
from omdml.streams.placement import Placement
from omdml.streams.protocols.store import Store, Written
from omdml.streams.topic_extents import Extent
from omdml.workers.configuration.config import Configuration
from omdml.workers.configuration.specs import Spec, Specs
from omdml.workers.operate.history.archived import Archive, Piece, pieces
from omdml.workers.operate.history.engines import HistoryEngine
from omdml.workers.operate.history.model import HistoryModel, is_home
from omdml.workers.operate.history.sums import Chunk, Job, sum_up
from omdml.workers.operate.published_replay import claim_to_begin, put_in_place, require_placement

# Offsets in a chunk. Those of a topic count records, those of a log in files count bytes.
SPAN, SPAN_BYTES = 4096, 1 << 20
# Chunks in a piece. One process sums up a piece at a time.
CHUNKS = 16


class LearnedHistory(NamedTuple):
    """The result of learning a history: the model, and how many records and chunks were read.

    ``again`` counts the chunks that had to be summed up twice.
    """

    model: HistoryModel
    records: int
    chunks: int
    again: int


def check_model(name: str, spec: Spec, placement: Placement) -> None:
    """Raise StartError if the model cannot be summed up in parts; the message says what to do instead."""
    instead = f"omdml replay --model {name} --publish learns its log event by event"
    if spec.learner is not DCA:
        raise StartError(
            f"model {name!r}: only the state of dca is a sum, but this learner is {spec.learner.name}: {instead}"
        )
    if spec.parts:
        raise StartError(f"model {name!r} is learned in parts, and an archive is learned as one: bootstrap a model of "
                         f"another name, then: omdml models copy THAT {name}")  # fmt: skip
    if spec.parameters.get("memory"):
        raise StartError(f"model {name!r}: with memory = {spec.parameters['memory']} sums fade with each event and "
                         f"cannot be made in parts: {instead}")  # fmt: skip
    if spec.parent:
        raise StartError(f"model {name!r}: how much its parent {spec.parent!r} counts is learned event by event: "
                         f"leave the parent out, or {instead}")  # fmt: skip
    if spec.max_share_a_user < 1:
        raise StartError(f"model {name!r}: max_share_a_user depends on the order of all events: {instead}")
    if not is_home(placement, name):
        raise StartError(f"model {name!r} moved to another partition (omdml topics rehome): {instead}")


def check_range(archive: Archive, extent: Extent, name: str, accept_gap: bool) -> None:
    """Raise GapError unless archive and log together hold every event of the model's partition once.

    With ``accept_gap``, events that are in neither are given up. But an archive of another log, or one that reaches
    further than the log, is always refused.
    """
    here = f"partition {archive.partition.number}, where model {name!r} lives"
    theirs, ours = archive.partition.topic_id, extent.partition.topic_id
    if theirs != ours:
        raise GapError(f"the input is of log {theirs}, and this one is {ours}: name files of this log")
    if archive.end > extent.end:
        raise GapError(
            f"{here}: the input reaches up to offset {archive.end}, but the log ends at {extent.end}: the log was cut, "
            "or restored from an older copy: name only files of what it still holds"
        )
    if accept_gap:
        return
    advice = "name the files that hold them, or give them up with --accept-gap"
    if archive.begin > extent.begin:
        raise GapError(
            f"{here}: the input begins at offset {archive.begin}, but the log begins at {extent.begin}: the events "
            f"between them would not be learned: {advice}"
        )
    if archive.end < extent.begin:
        raise GapError(
            f"{here}: the input ends at offset {archive.end}, but the log begins at {extent.begin}: the events between "
            f"them are in neither: {advice}"
        )


def check_whole(archive: Archive, chunks: list[tuple[int, int, int]], counted: bool) -> None:
    """Raise GapError if no file has some offsets inside the archive's range.

    Parameters
    ----------
    chunks
        For each chunk, where it begins and ends inside the range, and how many records it has.
    counted
        Whether the log's offsets count records. If they do, and files do not say what they cover, every offset must
        have a record.
    """
    if archive.covers:
        reached = archive.begin
        for begin, end in archive.covers:
            if begin > reached:
                raise missing(archive, reached, begin)
            reached = max(reached, end)
        if reached < archive.end:
            raise missing(archive, reached, archive.end)
        return
    reached = archive.begin
    for begin, end, records in chunks if counted else ():
        if begin > reached or records < end - begin:
            raise missing(archive, min(begin, reached), end)
        reached = end
    if counted and reached < archive.end:
        raise missing(archive, reached, archive.end)


def missing(archive: Archive, begin: int, end: int) -> GapError:
    """The error for a hole in an archive."""
    return GapError(
        f"partition {archive.partition.number}: no file of the input has the events between the offsets {begin} and "
        f"{end}: name the files that have them. Transactions and compaction leave offsets without a record: if that is "
        "the only reason, pass --accept-gap (files of omdml archive say which offsets they cover)"
    )


def job_of(
    name: str, spec: Spec, configuration: Configuration, open_specs: Callable[[Configuration], Specs],
    placement: Placement, secret: bytes, span: int,
) -> Job:  # fmt: skip
    """Make the job: what every process needs to sum up pieces."""
    start = spec.fresh().to_bytes()
    return Job(uuid.uuid4().hex, open_specs, configuration, name, placement, secret, start, span)


def learned(
    job: Job, spec: Spec, archive: Archive, engine: HistoryEngine, accept_gap: bool = False, counted: bool = True,
    chunks: int = CHUNKS,
) -> LearnedHistory:  # fmt: skip
    """Learn the archive. The bytes of the result do not depend on the engine or on the number of chunks in a piece.

    Each chunk is summed up as if nothing had come before it. Then, in order, its events are compared with what the
    model remembers of earlier ones. If some of them are repeats, the chunk is summed up again without them.

    Raises GapError if the archive has a hole, and what reading it raises.
    """
    model = HistoryModel(job.model, spec, archive.partition, job.secret)
    start = DCA.from_bytes(job.start)
    adding, records, again = Adding(start), 0, 0
    ranges: list[tuple[int, int, int]] = []
    for chunk in _chunks(job, archive, engine, chunks):
        begin, end = (max(archive.begin, chunk.number * job.span), min(archive.end, (chunk.number + 1) * job.span))
        ranges.append((begin, end, chunk.records))
        records += chunk.records
        wanted = model.take_chunk(chunk.facts)
        if wanted != chunk.learned:
            chunk, again = _sum_up_again(job, archive, chunk, wanted), again + 1
        adding.add(chunk.sums)
        if chunk.event_time is not None:
            model.event_time = max(chunk.event_time, model.event_time or chunk.event_time)
    if not accept_gap:
        check_whole(archive, ranges, counted)
    if not model.learner.version and not adding.version:
        raise StartError(f"the input holds no event of model {job.model!r} that can be learned: nothing to begin with")
    model.learner = adding.learner()
    model.end(archive.end)
    model.decide()
    return LearnedHistory(model, records, len(ranges), again)


def _chunks(job: Job, archive: Archive, engine: HistoryEngine, chunks: int) -> Iterator[Chunk]:
    for chunks_of_piece in engine(job, pieces(archive, chunks * job.span)):
        yield from chunks_of_piece


def _sum_up_again(job: Job, archive: Archive, chunk: Chunk, wanted: frozenset[int]) -> Chunk:
    begin, end = chunk.number * job.span, (chunk.number + 1) * job.span
    groups = tuple(group for group in archive.groups if group.first < end and group.last >= begin)
    piece = Piece(archive.partition, max(begin, archive.begin), min(end, archive.end), groups)
    (summed_again,) = sum_up(job, piece, wanted)
    return summed_again


def check_absent(store: Store, name: str) -> None:
    """Raise StoreError if the model has a checkpoint."""
    checkpoint = store.peek(name)
    if checkpoint is not None:
        raise exists(name, checkpoint.version)


def adopt(
    model: HistoryModel, store: Store, placement: Placement, letters: DeadLetters, platform: str, replace: bool = False
) -> str:
    """Begin a model in the store, so that the next worker goes on where the history ends.

    1. claim    Claim the model. A crash here or before changes nothing.
    2. letters  Write the refused events as dead letters, and wait until they are acknowledged. After a crash they are
                written again; readers recognize them by their position.
    3. replace  Save the checkpoint. This is the step that counts. Workers read again from the history's last record on.
    4. publish  Publish the snapshot. After a crash before it, the worker that claims the model publishes it.

    With ``replace`` it is published before the checkpoint is saved: no worker would publish it afterwards if what was
    live had a higher version. After a crash in between, workers go on with what was learned before.

    Returns why the snapshot is withheld; empty if it is not. Raises StoreError if the model has a checkpoint and
    ``replace`` is not set, Fenced if a worker keeps taking the model back, PlacementChanged if models live elsewhere
    now.
    """
    home = model.home
    assert home is not None
    require_placement(home.topic_id, placement, store)
    claim = partial(claim_to_begin, model.name, store, replace, exists)
    epoch = claim()
    for record, error, name, _ in model.refused:
        letters.add(record, error, name)
    letters.flush()
    snapshot = model.snapshot()
    withheld = model.judge.verdict(snapshot.metric, snapshot.version)

    def put(epoch: str) -> Written:
        if replace and store.publish(snapshot, epoch, withheld) is Written.FENCED:
            return Written.FENCED
        model.epoch = epoch
        return store.replace(model.checkpoint(platform), epoch, model.next, placement)

    put_in_place(model.name, home.topic_id, epoch, claim, put)
    if not replace:
        # A worker that has claimed the model since publishes it.
        store.publish(snapshot, model.epoch, withheld)
    return withheld


def exists(name: str, version: int) -> StoreError:
    """The error for a model that has a checkpoint."""
    return StoreError(
        f"model {name!r} has a checkpoint already, at version {version}: to replace it by what the input holds, stop "
        "the workers and pass --replace"
    )
