"""What a topic and the store know of each other, and how to bring them together again. Workers are stopped meanwhile,
or are fenced, and begin again from what is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from omdml.errors import ConfigurationError, Fenced, SourceError, StoreError
from streams.kafka.extents import Extent
from streams.protocols import Marks, Partition, Position, Store, Written


class Line(NamedTuple):
    """One partition: its extent, its mark in the store, models that are at home in it, and what is wrong."""

    extent: Extent
    mark: int | None
    models: int
    wrong: str

    @property
    def lag(self) -> int:
        """Events that are in no checkpoint yet, as far as offsets tell."""
        return self.extent.end - (self.extent.begin if self.mark is None else self.mark)


def survey(extents: Sequence[Extent], store: Store, home: Callable[[str], Partition]) -> list[Line]:
    """Every partition of the topic; ``home`` says where the partitioner sends a model's events by now."""
    partitions = [extent.partition for extent in extents]
    marks, positions = store.marks(partitions), store.positions(store.models())
    lines = []
    for extent in extents:
        at_home = {name: kept for name, kept in positions.items() if kept.home == extent.partition}
        moved = sum(home(name) != extent.partition for name in at_home)
        mark = marks.get(extent.partition)
        lines.append(Line(extent, mark, len(at_home), wrong(extent, mark, moved)))
    return lines


def wrong(extent: Extent, mark: int | None, moved: int) -> str:
    """What keeps workers from going on with this partition, and what to do; empty where nothing does."""
    if mark is None and extent.committed is not None:
        return "read before, but the store knows nothing of it: restore the store, or omdml topics rewind"
    start = min(at for at in (mark, extent.committed, extent.end) if at is not None)
    if mark is not None and start < extent.begin:
        return f"offsets {start} to {extent.begin - 1} are gone from the log: omdml worker --accept-gap"
    if mark is not None and mark > extent.end:
        return "the log ends before the mark, it was cut: omdml worker --accept-gap"
    return f"{moved} of its models have their events elsewhere by now: omdml topics rehome" if moved else ""


def rewind(extents: Sequence[Extent], store: Store, to: int | None) -> list[str]:
    """Have every model learn anew from ``to`` on, or from each partition's beginning; answers their names.

    1. The marks go back. A crash after it: models skip what they have taken.
    2. The models at home here are deleted, one by one. A crash between two: call it again.

    Raises ConfigurationError where a partition does not hold that offset, StoreError where a worker moves a mark.
    """
    for extent in extents:
        if to is not None and not extent.begin <= to <= extent.end:
            raise ConfigurationError(
                f"partition {extent.partition.number} has offsets {extent.begin} up to {extent.end}, not {to}"
            )
    partitions = [extent.partition for extent in extents]
    marks, positions = store.marks(partitions), store.positions(store.models())
    for extent in extents:
        _mark(store, marks, extent.partition, extent.begin if to is None else to)
    learned = sorted(name for name, kept in positions.items() if kept.home in partitions)
    for name in learned:
        store.delete(name)
    return learned


def _mark(store: Store, marks: Marks, partition: Partition, offset: int) -> None:
    if not store.move_mark(partition, marks.get(partition), offset):
        raise StoreError(f"partition {partition}: a worker moved its mark meanwhile: stop the workers, and try again")


def rehome(extents: Sequence[Extent], store: Store, home: Callable[[str], Partition]) -> dict[str, Partition]:
    """Have every model learn on where the partitioner sends its events by now; answers what moved where.

    Each is claimed, and saved with its new home, from the mark of that on. A crash between two: call it again.

    Raises SourceError where a model's old home holds events that are in no checkpoint: they come first.
    """
    by_partition = {extent.partition: extent for extent in extents}
    marks, positions = store.marks(list(by_partition)), store.positions(store.models())
    targets = {
        name: home(name) for name, kept in positions.items() if kept.home in by_partition and home(name) != kept.home
    }
    for extent in (by_partition[positions[name].home] for name in targets):
        if marks.get(extent.partition, extent.begin) < extent.end:
            raise SourceError(
                f"partition {extent.partition.number} holds events up to offset {extent.end}, learned are those below "
                f"{marks.get(extent.partition)}: let a worker learn them first, then call this again"
            )
    for name, target in targets.items():
        _move(store, name, Position(target, marks.get(target, by_partition[target].begin)))
    return targets


def _move(store: Store, name: str, to: Position) -> None:
    epoch, checkpoint, _ = store.claim(name)
    if checkpoint is None:
        return
    moved = msgspec.structs.replace(checkpoint, home=tuple(to.home), next=to.next)
    if store.save(moved, epoch) is Written.FENCED:
        raise Fenced(f"model {name!r}: a worker took it back: stop the workers, and try again")
