"""Changes of checkpoints whose models are not in memory: after a cut of the log, or for unconfigured models."""

from __future__ import annotations

import msgspec

from omdml.errors import CorruptError
from omdml.snapshot import Checkpoint
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Store, Written
from omdml.workers.model.written import check_written


def move_back_to_cut(store: Store, placement: Placement, partition: Partition, offset: int) -> dict[str, CorruptError]:
    """Move the models of a partition back to where its log was cut. Returns those whose checkpoints cannot be read.

    A model that falls back to a checkpoint before the cut stays there, and goes on from it with its next event.
    """
    damaged = {}
    for name, position in store.positions(store.models()).items():
        if position.home != partition or position.next <= offset or placement.home(name) != partition.number:
            continue
        try:
            epoch, checkpoint, _ = store.claim(name)
        except CorruptError as error:
            damaged[name] = error
            continue
        if checkpoint and checkpoint.next > offset:
            moved = msgspec.structs.replace(checkpoint, next=offset)
            written = store.save(moved, epoch, back=True, placement=placement)
            fenced = f"model {name!r}: a worker took it back: stop the workers, and try again"
            check_written(written, partition.topic_id, fenced)
    return damaged


def close_stretch(store: Store, name: str, placement: Placement) -> Written | None:
    """Close the stretch of a model that is not configured, because events of it are refused from its position on.

    Nobody remembers which events these are: see :mod:`omdml.workers.events.learned_stretches`. Returns None if the
    stretch is closed already, or if the model has learned nothing.

    A crash before the save leaves it as it was, and the same events are read again.
    """
    try:
        checkpoint = store.peek(name)
        if checkpoint is None or is_closed(checkpoint):
            return None
        epoch, checkpoint, fell_back = store.claim(name)
    except CorruptError:
        return None
    if checkpoint is None or fell_back:
        # An older checkpoint must not take the place of the damaged one: what it lacks could not be found any more.
        return None
    *earlier, last = checkpoint.progress["stretches"]
    closed = [*earlier, {**last, "until": checkpoint.next, "closed": True}]
    progress = {**checkpoint.progress, "stretches": closed}
    return store.save(msgspec.structs.replace(checkpoint, progress=progress), epoch, placement=placement)


def is_closed(checkpoint: Checkpoint) -> bool:
    """Whether the next event of a model begins another stretch."""
    stretches = checkpoint.progress.get("stretches")
    return not stretches or stretches[-1]["closed"]
