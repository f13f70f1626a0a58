"""What a cut of the log means for the models that have learned more than it holds now."""

from __future__ import annotations

import msgspec

from omdml.errors import CorruptError, Fenced
from streams.placement import Placement
from streams.protocols import Partition, Store, Written


def take_back(store: Store, placement: Placement, partition: Partition, offset: int) -> dict[str, CorruptError]:
    """Have the models of a partition whose log was cut learn on from the cut; answers those that cannot be read.

    One that falls back to before the cut stays so: its next event has it go on from there.
    """
    damaged = {}
    for name, kept in store.positions(store.models()).items():
        if kept.home != partition or kept.next <= offset or placement.home(name) != partition.number:
            continue
        try:
            epoch, checkpoint, _ = store.claim(name)
        except CorruptError as error:
            damaged[name] = error
            continue
        if checkpoint and checkpoint.next > offset:
            moved = msgspec.structs.replace(checkpoint, next=offset)
            if store.save(moved, epoch, back=True, placement=placement) in (Written.FENCED, Written.MOVED):
                raise Fenced(f"model {name!r}: a worker took it back: stop the workers, and try again")
    return damaged
