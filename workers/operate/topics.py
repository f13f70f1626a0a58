"""What a topic and the store know of each other, and how to bring them together again while workers are stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from omdml.errors import ConfigurationError, StoreError
from omdml.streams.extents import Extent, Member
from omdml.streams.placement import Placement
from omdml.streams.protocols.store import Store

GROW = "omdml topics grow --partitions"
REHOME = "stop the senders and the workers, then omdml topics rehome"


class Line(NamedTuple):
    """One partition: its extent and mark, how many models live on it, who owns it, and what is wrong."""

    extent: Extent
    mark: int | None
    models: int
    worker: str
    wrong: str

    @property
    def lag(self) -> int:
        """Events that are in no checkpoint yet, as far as offsets tell."""
        return self.extent.end - (self.extent.begin if self.mark is None else self.mark)


def survey(extents: Sequence[Extent], store: Store, workers: Sequence[Member]) -> list[Line]:
    """One line for each partition: its offsets, watermark, models, owner, and what is wrong with it."""
    owners = {number: str(worker) for worker in workers for number in worker.partitions}
    marks, positions = store.marks([extent.partition for extent in extents]), store.positions(store.models())
    placement = store.placement(extents[0].partition.topic_id)
    homes = [placement.home(name) for name in positions] if placement else []
    lines = []
    for extent in extents:
        number, mark = extent.partition.number, marks.get(extent.partition)
        unread = placement is not None and number >= placement.count
        line = Line(extent, mark, homes.count(number), "" if unread else owners.get(number, ""), "")
        lines.append(line._replace(wrong=wrong(line, placement, len(extents), bool(workers))))
    return lines


def wrong(line: Line, placement: Placement | None, partitions: int, learning: bool) -> str:
    """What keeps workers from going on with this partition, and what to do; empty if nothing does.

    Parameters
    ----------
    learning
        Whether any worker is a member of the group.
    """
    extent, mark = line.extent, line.mark
    if placement and extent.partition.number >= placement.count:
        return f"added later, nobody reads it; {line.lag} events wait: {advice(placement.count, partitions)}"
    if mark is None and extent.committed is not None:
        return "read before, but the store knows nothing of it: restore the store, or omdml topics rewind"
    start = min(offset for offset in (mark, extent.committed, extent.end) if offset is not None)
    if mark is not None and start < extent.begin:
        return f"offsets {start} to {extent.begin - 1} are gone from the log: omdml worker --accept-gap"
    if mark is not None and mark > extent.end:
        return "the log ends before the mark, it was cut: omdml worker --accept-gap"
    if line.lag > 0 and not learning:
        return "nobody learns what comes: no worker is a member of the group, start one"
    return ""


def advice(count: int, partitions: int) -> str:
    """What to do about partitions that were added to those that models live on."""
    if partitions % count == 0:
        return REHOME
    target = -(-partitions // count) * count
    return (
        f"{partitions} is no multiple of {count}, so events of many models become dead letters: {GROW} {target}, then "
        f"{REHOME}; then omdml letters resend"
    )


def check_growth(homes: int, now: int, partitions: int) -> None:
    """Raise ConfigurationError unless a topic of ``now`` partitions may grow to so many, models living on ``homes``."""
    if partitions < now:
        raise ConfigurationError(f"the topic has {now} partitions, and Kafka takes none away: expected more than {now}")
    if partitions % homes:
        raise ConfigurationError(
            f"models live on {homes} partitions, and {partitions} is no multiple of that, so events of many models "
            f"would become dead letters: expected {', '.join(str(homes * times) for times in (2, 3, 4))}, ..."
        )


def rewind(
    extents: Sequence[Extent],
    store: Store,
    partitioner: str,
    named: Sequence[str],
    to: int | None,
    count: int | None = None,
) -> list[str]:
    """Have every model learn again from ``to`` on, or from each partition's beginning.

    1. The placement goes back to the partitions that there were. A crash after it: call this again.
    2. The marks go back. A crash after it: models skip what they have taken.
    3. The models of this log are deleted, and those ``named`` that have no checkpoint. A crash between two: call this
       again.

    Parameters
    ----------
    count
        How many partitions the topic began with; as the store remembers it, unless it is given.

    Answers the names of the models that were deleted. Raises ConfigurationError if a partition does not hold that
    offset, StoreError if a worker moves a mark.
    """
    for extent in extents:
        if to is not None and not extent.begin <= to <= extent.end:
            raise ConfigurationError(
                f"partition {extent.partition.number} has offsets {extent.begin} up to {extent.end}, not {to}"
            )
    topic_id = extents[0].partition.topic_id
    starts = {extent.partition: extent.begin if to is None else to for extent in extents}
    before = store.placement(topic_id)
    if count is not None and not 1 <= count <= len(extents):
        raise ConfigurationError(f"the topic has {len(extents)} partitions, it cannot have begun with {count}")
    if count is not None:
        _place(store, topic_id, before, Placement.first(partitioner, count))
    elif before:
        after = before.rewound({place.number: start for place, start in starts.items()}, partitioner)
        _place(store, topic_id, before, after)
    marks = store.marks(list(starts))
    for partition, start in starts.items():
        if not store.move_mark(partition, marks.get(partition), start):
            raise StoreError(
                f"partition {partition}: a worker moved its mark meanwhile: stop the workers, and try again"
            )
    models = store.models()
    positions = store.positions(models)
    learned = [name for name in models
               if (positions[name].home.topic_id == topic_id if name in positions else name in named)]  # fmt: skip
    for name in learned:
        store.delete(name)
    return learned


def rehome(extents: Sequence[Extent], store: Store, count: int | None = None) -> tuple[int, int]:
    """Have models live on the partitions that were added, too; answers on how many they lived, and live now.

    1. What the old partitions hold must be learned, saved and committed: a model that moves starts at the new one.
    2. The new partitions get marks at their beginnings. A crash after it: nobody reads them yet.
    3. The placement takes the new count, from the old partitions' ends on. This moves all models at once. From then on
       the store refuses what a worker learned under the earlier one, be it paused and unaware.
    4. What such a worker saved before that, but after step 1 looked, has the placement go back. A crash before it: a
       model that went too far waits at its new home, and says why (workers/learning/partition/arrival.py).

    Parameters
    ----------
    count
        How many partitions models are to live on: all that there are, unless it is given.

    Raises
    ------
    ConfigurationError
        No worker recorded where models live, the new count is no multiple of the old one, or not all is learned.
    StoreError
        Another process changed the placement, or a worker saved a model meanwhile.
    """
    topic_id, count = extents[0].partition.topic_id, count or len(extents)
    placement = store.placement(topic_id)
    if placement is None:
        raise ConfigurationError("no worker has read this topic yet: start one, it takes all partitions that there are")
    if not placement.count <= count <= len(extents):
        raise ConfigurationError(
            f"models live on {placement.count} partitions and the topic has {len(extents)}, got {count}: expected a "
            "number between the two"
        )
    if count % placement.count:
        raise ConfigurationError(f"models live on {placement.count} partitions: {advice(placement.count, count)}")
    if count == placement.count:
        return count, count
    marks = store.marks([extent.partition for extent in extents])
    old, new = extents[: placement.count], extents[placement.count : count]
    if missing := [line for extent in old if (line := _missing(extent, marks.get(extent.partition)))]:
        raise ConfigurationError(
            f"{'; '.join(missing)}: stop the senders, nodes that take feedback and routers too, start a worker, wait "
            "until nothing is missing (omdml topics status), stop it, and call this again"
        )
    for extent in new:
        store.move_mark(extent.partition, None, extent.begin)
    since = {extent.partition.number: extent.end for extent in old}
    after = placement.grown(count, since)
    _place(store, topic_id, placement, after)
    if ahead := _stayed_too_long(store, topic_id, after):
        _place(store, topic_id, after, placement)
        raise StoreError(
            f"{', '.join(ahead)}: a worker saved meanwhile, so nothing was changed: it still runs, or it was paused. "
            "Start a worker, wait until nothing is missing (omdml topics status), stop all of them, and call this again"
        )
    return placement.count, count


def _stayed_too_long(store: Store, topic_id: str, placement: Placement) -> list[str]:
    """Models that learned more of their old home than was theirs there, each with how far."""
    positions = store.positions(store.models())
    left_at = {name: placement.left(name, home.number) for name, (home, _) in positions.items()
            if home.topic_id == topic_id and placement.home(name) != home.number}  # fmt: skip
    return [
        f"model {name!r} has learned partition {positions[name].home.number} up to {positions[name].next}, beyond {end}"
        for name, end in left_at.items()
        if end is not None and positions[name].next > end
    ]


def _missing(extent: Extent, mark: int | None) -> str:
    """What of a partition is not learned, saved and committed; empty if everything is."""
    if extent.end == extent.begin and mark is None:
        return ""
    if mark is None or mark < extent.end:
        behind = extent.end - (extent.begin if mark is None else mark)
        return f"partition {extent.partition.number}: {behind} events are not learned and saved yet"
    if extent.committed != mark:
        return f"partition {extent.partition.number}: learned up to {mark}, but committed up to {extent.committed}"
    return ""


def _place(store: Store, topic_id: str, before: Placement | None, after: Placement) -> None:
    if not store.place(topic_id, before, after):
        raise StoreError(f"log {topic_id}: another process changed where models live meanwhile: try again")
