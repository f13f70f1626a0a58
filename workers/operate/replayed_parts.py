"""A model in parts, learned again offline up to a vector of positions: the same events make the same bytes."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import NamedTuple, cast

from omdml.batch.sums import emptied, merged
from omdml.errors import ConfigurationError, StoreError
from omdml.learners import DCA
from omdml.snapshot import Snapshot
from omdml.streams.part_names import part_name
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Record
from omdml.streams.protocols.store import Store
from omdml.workers.configuration.specs import Spec
from omdml.workers.events.decoding import by_partition
from omdml.workers.model.parts.vector import Vector
from omdml.workers.operate.replay import ReplayedModel


class Replayed(NamedTuple):
    """Each part after its events were learned again, and the learner that is the sum of all of them."""

    parts: list[ReplayedModel]
    learner: DCA


def start_of(name: str, spec: Spec, store: Store) -> DCA:
    """What the parts of a model began with, by its checkpoint; without one, what they would begin with today."""
    checkpoint = store.peek(name)
    return cast(DCA, spec.fresh() if checkpoint is None else emptied(cast(DCA, spec.resumed(checkpoint))))


def replayed(
    name: str,
    spec: Spec,
    start: DCA,
    placement: Placement,
    secret: bytes | None,
    vector: Vector,
    log: Iterable[list[Record]],
) -> Replayed:
    """Learn each part up to its position, alone, then add all of them up in order.

    Raises ConfigurationError if the vector names a partition that the model does not live on.
    """
    if beyond := [number for number in vector.positions if number >= placement.count]:
        raise ConfigurationError(f"model {name!r} lives on {placement.count} partitions, and --vector names {beyond}")
    parts = {
        number: ReplayedModel(part_name(name, number), copy.deepcopy(start), spec, placement, secret)
        for number in vector.positions
    }
    for records in log:
        for partition, some in by_partition(records).items():
            end = vector.positions.get(partition.number, 0)
            wanted = [record for record in some if record.offset < end]
            if wanted:
                parts[partition.number].learn(wanted)
    return Replayed(list(parts.values()), merged(start, [cast(DCA, part.learner) for part in parts.values()]))


def snapshot_of(name: str, spec: Spec, learner: DCA, vector: Vector) -> Snapshot:
    """What a worker would publish of these sums, apart from times and counts."""
    generation = spec.catalogue.generation
    return Snapshot(
        model=name, learner=learner.name, version=learner.version, generation=generation, event_time=None,
        oldest_event_time=None, progress={}, metric=learner.metric, vector=str(vector),
    )  # fmt: skip


def compared(store: Store, snapshot: Snapshot) -> str:
    """Whether the store keeps the same version of this vector, in a sentence."""
    name, version = snapshot.model, snapshot.version
    try:
        stored = store.load(name, version)
    except StoreError as error:
        return f"version {version:,} in the store cannot be read: {error}"
    if stored is None:
        return f"version {version:,} is not kept in the store"
    if stored[1].digest == snapshot.digest:
        return f"version {version:,} in the store has the same bytes"
    return (
        f"version {version:,} in the store has other bytes: sha256 {stored[1].digest}, of the vector {stored[1].vector}"
    )
