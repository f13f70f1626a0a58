"""What a topic and the store know of each other, and how to bring them together again. Workers are stopped meanwhile,
or are fenced, and begin again from what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from omdml.errors import ConfigurationError, CorruptError, Fenced, StoreError
from omdml.snapshot import Checkpoint
from streams.kafka.extents import Extent, Member
from streams.protocols import Marks, Partition, Position, Record, Store, Written
from workers import growth
from workers.claim import out_of_reach
from workers.growth import REHOME, Home

Read = Callable[[Mapping[Partition, int]], Iterable[list[Record]]]  # the log, from these offsets on
START = "start one"
FIRST = "start one (where partitions were added since the first event: omdml topics rewind before it)"
Said = dict[Partition, tuple[int, int]]  # offsets of a model's first and last event in each partition
Begin = Callable[[str, Position], None]  # has a model learn from there on, where it is configured


class Line(NamedTuple):
    """One partition: its extent and mark, how many models are at home in it, who owns it, and what is wrong."""

    extent: Extent
    mark: int | None
    models: int
    worker: str
    wrong: str

    @property
    def lag(self) -> int:
        """Events that are in no checkpoint yet, as far as offsets tell."""
        return self.extent.end - (self.extent.begin if self.mark is None else self.mark)


def survey(extents: Sequence[Extent], store: Store, home: Home, workers: Sequence[Member]) -> list[Line]:
    """Every partition of the topic."""
    owners = {number: str(worker) for worker in workers for number in worker.partitions}
    partitions = [extent.partition for extent in extents]
    marks, positions = store.marks(partitions), store.positions(store.models())
    known = growth.settled(store, partitions[0].topic_id)
    grown = _grew(known, extents)
    alone = "" if workers else START if known or len(extents) == 1 else FIRST
    lines = []
    for extent in extents:
        at_home = {name: kept for name, kept in positions.items() if kept.home == extent.partition}
        moved = sum(home(name) != extent.partition for name in at_home) if known != len(extents) else 0  # else astray
        mark = marks.get(extent.partition)
        line = Line(extent, mark, len(at_home), owners.get(extent.partition.number, ""), "")
        lines.append(line._replace(wrong=wrong(line, moved, grown, alone)))
    return lines


def wrong(line: Line, moved: int, grown: bool, alone: str) -> str:
    """What keeps workers from going on with this partition, and what to do; empty where nothing does.

    ``alone`` is what to do where no worker is there.
    """
    extent, mark = line.extent, line.mark
    if mark is None and extent.committed is not None:
        return "read before, but the store knows nothing of it: restore the store, or omdml topics rewind"
    start = min(at for at in (mark, extent.committed, extent.end) if at is not None)
    if mark is not None and start < extent.begin:
        return f"offsets {start} to {extent.begin - 1} are gone from the log: omdml worker --accept-gap"
    if mark is not None and mark > extent.end:
        return "the log ends before the mark, it was cut: omdml worker --accept-gap"
    told = []
    if moved:
        told.append(f"events of {moved} of its models come by elsewhere by now: {REHOME}")
    elif grown:
        told.append(f"partitions were added, models that are new may wait: {REHOME}")
    if alone and line.lag > 0:
        told.append(f"nobody learns what comes: no worker is a member of the group, {alone}")
    return "; ".join(told)


def rewind(extents: Sequence[Extent], store: Store, home: Home, read: Read, to: int | None) -> tuple[list[str], bool]:
    """Have every model learn anew from ``to`` on, or from each partition's beginning.

    1. Where partitions were added, as far as the log tells, the store takes note of how many there were: workers begin
       where events came first, and wait for :func:`rehome`. A crash after it: the same.
    2. The marks go back. A crash after it: models skip what they have taken.
    3. The models at home here, and those that have no checkpoint, are deleted. A crash between two: call it again.

    Returns
    -------
    tuple
        Names of the models that were deleted, and whether partitions were added.

    Raises ConfigurationError where a partition does not hold that offset, StoreError where a worker moves a mark.
    """
    for extent in extents:
        if to is not None and not extent.begin <= to <= extent.end:
            raise ConfigurationError(
                f"partition {extent.partition.number} has offsets {extent.begin} up to {extent.end}, not {to}"
            )
    starts = {extent.partition: extent.begin if to is None else to for extent in extents}
    marks, positions = store.marks(list(starts)), store.positions(store.models())
    said = _said(read(starts))
    topic_id, known = extents[0].partition.topic_id, _known(said, len(extents), home)
    if known < len(extents):
        growth.settle(store, topic_id, known, growth.settled(store, topic_id))
    for partition, start in starts.items():
        _mark(store, marks, partition, start)
    learned = sorted(
        name
        for name in store.models()
        if (name in positions and positions[name].home in starts) or (name in said and name not in positions)
    )
    for name in learned:
        store.delete(name)
    return learned, known < len(extents)


def _said(log: Iterable[list[Record]]) -> dict[str, Said]:
    """Of each model."""
    found: dict[str, Said] = {}
    for record in (record for records in log for record in records if record.key):
        said = found.setdefault(_named(record), {})
        said[record.partition] = said.get(record.partition, (record.offset,))[0], record.offset
    return found


def _known(said: Mapping[str, Said], partitions: int, home: Home) -> int:
    """Among how many partitions every model came by its own: fewer than there are, where some were added.

    Or where senders hash otherwise: then some come by partitions that would never have been theirs, and none by theirs
    and another one.
    """
    least, grown, foreign = partitions, False, False
    for name, events in said.items():
        path = {home(name, count): count for count in range(1, partitions + 1)}  # of each the last count
        counts = [path[at] for at in events if at in path]
        grown |= partitions in counts and len(counts) > 1
        foreign |= len(counts) < len(events)
        least = min(least, *counts, partitions)
    return partitions if foreign and not grown else least


def _named(record: Record) -> str:
    """The model that a record's key names."""
    return (record.key or b"").decode(errors="replace")


def _mark(store: Store, marks: Marks, partition: Partition, offset: int) -> None:
    if not store.move_mark(partition, marks.get(partition), offset):
        raise StoreError(f"partition {partition}: a worker moved its mark meanwhile: stop the workers, and try again")


class Rehomed(NamedTuple):
    """Where models go on; of those that could not be moved, the partition whose events come first, or what is wrong."""

    moved: dict[str, Partition]
    left: dict[str, Partition]
    damaged: dict[str, CorruptError]


def rehome(
    extents: Sequence[Extent], store: Store, home: Home, read: Read, begin: Begin, astray: bool = False
) -> Rehomed:
    """Have every model learn on where the partitioner sends its events by now.

    Those whose first event went ``astray`` stay, unless that is asked for: their senders may hash otherwise.

    1. Where partitions were added, models in no checkpoint ``begin`` where their first events lie.
    2. Each is claimed. One whose old home holds events that are not in the checkpoint that was read stays.
    3. Where that is an older one, below the mark, the mark goes back to it: such events come first.
    4. The others are saved with their new homes, from the marks of those on. One that came by a third partition in
       between goes there first.
    5. Once none is left the store takes note of how many partitions there are.

    A crash between two, or models that are left: call it again.
    """
    by_partition = {extent.partition: extent for extent in extents}
    topic_id, marks = extents[0].partition.topic_id, store.marks(list(by_partition))
    known = growth.settled(store, topic_id)
    paths = partial(growth.homes, known=known, partitions=len(extents), home=home)
    begins = {at: marks.get(at, extent.begin) for at, extent in by_partition.items()}
    said = _said(read(begins)) if _grew(known, extents) else {}
    damaged = _begun(said, store, paths, begin)
    positions = store.positions(store.models())
    targets = {}
    for name, kept in positions.items():
        path, events = paths(name), said.get(name, {})
        if kept.home in by_partition and (kept.home != path[-1] or events.keys() & path[:-1]):
            targets[name] = _target(store.peek(name), kept.home, path, events, astray)
    found, unreadable = _claimed(store, [name for name, target in targets.items() if target != positions[name].home])
    damaged |= unreadable
    moving = {name: one for name, one in found.items() if one.at.home == positions[name].home}  # or another moved it
    for name, one in list(moving.items()):
        if one.fell_back and one.at.next < by_partition[one.at.home].begin:
            damaged[name] = out_of_reach(name, one.at.next, by_partition[one.at.home].begin)
            del moving[name]
    starts = {at: extent.end for at, extent in by_partition.items()}
    starts |= {at: begins[at] for at in {one.at.home for one in moving.values()}}
    for older in [one.at for one in moving.values() if one.fell_back]:
        starts[older.home] = min(starts[older.home], older.next)
    behind = any(starts[at] < extent.end for at, extent in by_partition.items())
    left = _unlearned(moving, read(starts)) if behind else {}
    for at in {at for name, at in left.items() if moving[name].fell_back}:
        _mark(store, marks, at, starts[at])
    moved = {name: targets[name] for name in moving if name not in left}
    for name, target in moved.items():
        move(store, name, moving[name].epoch, Position(target, begins[target]))
    left |= {name: target for name, target in moved.items() if target != home(name)}
    if not left:
        for at in begins.keys() - marks.keys():  # first, so that no copy of the store counts one and has no mark of it
            store.move_mark(at, None, begins[at])
        growth.settle(store, topic_id, len(extents), known)
    return Rehomed(moved, left, damaged)


def _grew(known: int | None, extents: Sequence[Extent]) -> bool:
    """Whether partitions were added since every model was where its events came by, among so many ``known``."""
    return known is not None and known < len(extents)


def _begun(
    said: Mapping[str, Said], store: Store, paths: Callable[[str], list[Partition]], begin: Begin
) -> dict[str, CorruptError]:
    """Have models in no checkpoint begin at the first of their events; answers those that cannot be read."""
    kept, damaged = store.positions(list(said)), {}
    for name, events in said.items():
        oldest = next((at for at in paths(name) if at in events), None)
        if name not in kept and oldest:
            try:
                begin(name, Position(oldest, events[oldest][0]))
            except CorruptError as error:
                damaged[name] = error
    return damaged


def _target(
    kept: Checkpoint | None, home: Partition, path: Sequence[Partition], events: Said, astray: bool
) -> Partition:
    """Where on its path a model goes on from its home: to the next partition that holds events of it, or the last."""
    progress = kept.progress if kept else {}
    if progress.get("astray") == home.number and not astray:
        return home
    left = progress.get("left", {})
    further = [at for at in (path[path.index(home) + 1 :] if home in path else path) if at != home]
    return next((at for at in further if at in events and events[at][1] >= left.get(str(at), 0)), path[-1])


class _Claimed(NamedTuple):
    at: Position
    epoch: str
    fell_back: bool  # only an older checkpoint could be read


def _claimed(store: Store, names: Iterable[str]) -> tuple[dict[str, _Claimed], dict[str, CorruptError]]:
    """Become the owner of these models; answers also those of which nothing can be read."""
    found, damaged = {}, {}
    for name in names:
        try:
            epoch, checkpoint, fell_back = store.claim(name)
        except CorruptError as error:
            damaged[name] = error
            continue
        if checkpoint:
            found[name] = _Claimed(Position(Partition(*checkpoint.home), checkpoint.next), epoch, fell_back)
    return found, damaged


def _unlearned(moving: Mapping[str, _Claimed], log: Iterable[list[Record]]) -> dict[str, Partition]:
    """Of these models, those with events in the log that they have not taken, and where."""
    found = {}
    for record in (record for records in log for record in records):
        name = _named(record)
        if name in moving and moving[name].at.home == record.partition and moving[name].at.next <= record.offset:
            found[name] = record.partition
    return found


def take_back(store: Store, partition: Partition, offset: int) -> dict[str, CorruptError]:
    """Have the models at home in a partition whose log was cut there learn on from the cut; answers who cannot be read.

    One that falls back to before the cut stays so: its next event has it go on from there.
    """
    ahead = [name for name, at in store.positions(store.models()).items() if at.home == partition and at.next > offset]
    found, damaged = _claimed(store, ahead)
    for name, one in found.items():
        if one.at.home == partition and one.at.next > offset:
            move(store, name, one.epoch, Position(partition, offset))
    return damaged


def move(store: Store, name: str, epoch: str, to: Position) -> None:
    """Have a model that was claimed learn on from there; raises Fenced where a worker took it meanwhile."""
    checkpoint = store.peek(name)
    if checkpoint is None:  # deleted meanwhile
        return
    before, progress, begin = Partition(*checkpoint.home), checkpoint.progress, to.next
    if before != to.home:
        left = progress.get("left", {})
        begin = max(begin, left.get(str(to.home), 0))
        progress = {**progress, "left": {**left, str(before): checkpoint.next}}
    moved = msgspec.structs.replace(checkpoint, home=tuple(to.home), next=begin, progress=progress)
    if store.save(moved, epoch, back=True) is Written.FENCED:
        raise Fenced(f"model {name!r}: a worker took it back: stop the workers, and try again")
