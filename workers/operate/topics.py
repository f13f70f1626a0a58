"""Compares a topic with the store, and rewinds or rehomes its models while workers are stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from omdml.errors import ConfigurationError, StoreError
from omdml.streams.placement import Placement
from omdml.streams.protocols.store import Store
from omdml.streams.topic_extents import Extent, Member
from omdml.workers.configuration.wording import amount_is

GROW = "omdml topics grow --partitions"
REHOME = "stop the senders and the workers, then run omdml topics rehome"


class PartitionReport(NamedTuple):
    """One partition: its extent and mark, how many models live on it, which worker owns it, and what is wrong."""

    extent: Extent
    mark: int | None
    models: int
    worker: str
    wrong: str

    @property
    def lag(self) -> int:
        """How many events of the log are in no checkpoint yet, counted by offsets; below 0 if the log was cut."""
        return self.extent.end - (self.extent.begin if self.mark is None else max(self.extent.begin, self.mark))


def other_group(store: Store, topic_id: str, group: str, learning: bool = False) -> str:
    """What it means that workers recorded another group in the store, and what to do; empty if they did not.

    ``learning`` says that workers of ``group`` run.
    """
    recorded = store.group(topic_id)
    if recorded in ("", group):
        return ""
    if learning:
        return (
            f"workers of group {group!r} (log.group) run, but store {store} says that group {recorded!r} reads this "
            "log, too. Workers of two groups keep each other from saving: stop those of the wrong group. Then restart "
            "one of the others, which records their group"
        )
    return (
        f"log.group is {group!r}, but store {store} says that group {recorded!r} reads this log, so its workers "
        f"would not be noticed: set log.group to {recorded!r}. If workers read as {group!r} from now on, start "
        "one and stop it again, which records that"
    )


def survey(
    reach: Callable[[], Sequence[Extent]], store: Store, members: Callable[[], Sequence[Member]]
) -> list[PartitionReport]:
    """A line for each partition; see :class:`PartitionReport`. ``reach`` says how far the log reaches now."""
    extents, workers = reach(), members()
    owners = {number: str(worker) for worker in workers for number in worker.partitions}
    marks, positions = store.marks([extent.partition for extent in extents]), store.positions(store.models())
    if any(marks.get(extent.partition, 0) > extent.end for extent in extents):
        # Workers have learned what came in the meantime, or the log was cut: then it still ends before its marks.
        extents = reach()
    topic_id = extents[0].partition.topic_id
    placement = store.placement(topic_id)
    homes = [placement.home(name) for name in positions] if placement else []
    other_topics = sorted({position.home.topic_id for position in positions.values()} - {topic_id})
    # Models of an earlier topic say nothing once workers have begun with this one.
    earlier_topic = "" if placement or not other_topics else other_topics[-1]
    lines = []
    for extent in extents:
        number, mark = extent.partition.number, marks.get(extent.partition)
        unread = placement is not None and number >= placement.count
        line = PartitionReport(extent, mark, homes.count(number), "" if unread else owners.get(number, ""), "")
        lines.append(line._replace(wrong=wrong(line, placement, len(extents), bool(workers), earlier_topic)))
    return lines


def wrong(line: PartitionReport, placement: Placement | None, partitions: int, learning: bool, before: str = "") -> str:
    """What keeps workers from going on with this partition, and what to do; empty if nothing is wrong.

    Parameters
    ----------
    learning
        Whether any worker is a member of the group.
    before
        The id of another topic, if the store only has models that learned from that one.
    """
    extent, mark = line.extent, line.mark
    if placement and extent.partition.number >= placement.count:
        return (
            f"the partition was added later and nobody reads it; {amount_is(line.lag, 'event')} waiting there: "
            f"{advice(placement.count, partitions)}"
        )
    if mark is None and extent.committed is not None and before:
        return (
            f"the models in the store learned from topic id {before}, and this topic's id is "
            f"{extent.partition.topic_id}: it was deleted and created again, or is another one. Bring the old one "
            "back, or correct [log], or begin with what this one holds: omdml worker --accept-gap"
        )
    if mark is None and extent.committed is not None:
        return "the store knows nothing of what was read here: restore the store, or run omdml topics rewind"
    if mark is not None and mark < extent.begin:
        return (
            f"offsets {mark} to {extent.begin - 1} are gone from the log, before anybody learned them, and no worker "
            "goes on here. Raise the topic's retention, then go on without them: omdml worker --accept-gap"
        )
    if mark is not None and mark > extent.end:
        return (
            f"the partition was read up to offset {mark}, but ends at {extent.end}: the log was cut, and no worker "
            "goes on here. Bring the log back, or go on with what it holds: omdml worker --accept-gap"
        )
    if line.lag > 0 and not learning:
        return "no worker is running (none is a member of the group), so nobody learns these events: start one"
    return ""


def advice(count: int, partitions: int) -> str:
    """What to do about partitions that were added to those that models live on."""
    if partitions % count == 0:
        return REHOME
    target = -(-partitions // count) * count
    return (
        f"{partitions} is not a multiple of {count}, so events of many models become dead letters: run {GROW} "
        f"{target}, {REHOME}, start everything again, and run omdml letters resend"
    )


def check_growth(homes: int, now: int, partitions: int) -> None:
    """Raise ConfigurationError unless a topic may grow from ``now`` to this many partitions.

    ``homes`` is the number of partitions that models live on.
    """
    if partitions < now:
        raise ConfigurationError(
            f"the topic has {now} partitions, and Kafka cannot remove any: expected more than {now}, got {partitions}"
        )
    if partitions % homes:
        raise ConfigurationError(
            f"models live on {homes} partitions, and {partitions} is not a multiple of that, so events of many models "
            f"would become dead letters: expected {', '.join(str(homes * times) for times in (2, 3, 4))}, ..."
        )


def rewind(
    extents: Sequence[Extent],
    store: Store,
    partitioner: str,
    named: Sequence[str],
    to: int | None,
    count: int | None = None,
    members: Callable[[], Sequence[Member]] = tuple,
) -> list[str]:
    """Have every model learn again from the offset ``to``, or from the beginning of each partition.

    1. The placement goes back to the partitions of that time. After a crash, call this again.
    2. The marks go back. After a crash, models skip what they have taken.
    3. The models of this log are deleted, and those ``named`` that have no checkpoint. After a crash between two of
       them, call this again.
    4. Nobody may have joined the group or moved a mark since. A worker that read on while models were deleted begins
       them with later events.

    Parameters
    ----------
    count
        How many partitions the topic began with. If it is None, the store says so.
    members
        Says who is in the group now.

    Returns the names of the deleted models. Raises ConfigurationError if a partition does not have that offset, or was
    not read so far; StoreError if a worker joins the group or moves a mark.
    """
    marks = store.marks([extent.partition for extent in extents])
    for extent in extents:
        # What nobody has learned yet must not be passed over.
        reads = [read for read in (marks.get(extent.partition), extent.committed) if read is not None]
        last = max(extent.begin, min(reads, default=extent.begin))
        if to is not None and not extent.begin <= to <= last:
            raise _not_from(extent, last, to)
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
    if not all(store.move_mark(partition, marks.get(partition), start) for partition, start in starts.items()):
        raise _worker_started(members())
    models = store.models()
    positions = store.positions(models)
    learned = [name for name in models
               if (positions[name].home.topic_id == topic_id if name in positions else name in named)]  # fmt: skip
    for name in learned:
        store.delete(name)
    # Members first: one may have read on and not moved a mark yet, and the message names them.
    if (workers := members()) or store.marks(list(starts)) != starts:
        raise _worker_started(workers)
    return learned


def _not_from(extent: Extent, last: int, to: int) -> ConfigurationError:
    """The error for a rewind to an offset that a partition does not have, or that nobody has read so far."""
    if extent.begin == last:
        possible, action = f"only from offset {last}", "name this offset, or beginning"
    else:
        possible, action = (
            f"from an offset between {extent.begin} and {last}",
            "name an offset in this range, or beginning",
        )
    return ConfigurationError(
        f"partition {extent.partition.number} can be learned again {possible}, but not from {to}: {action}"
    )


def _worker_started(workers: Sequence[Member]) -> StoreError:
    """The error for a rewind while workers run; ``workers`` is empty if they have left again."""
    who = f" ({', '.join(map(str, workers))})" if workers else ""
    return StoreError(
        f"a worker started in the meantime{who}, so models may lack events: stop the workers, and run this command "
        "again"
    )


class Rehomed(NamedTuple):
    """How many partitions models lived on before, and live on now; how many events wait in the old ones."""

    before: int
    now: int
    waiting: int = 0


def rehome(extents: Sequence[Extent], store: Store, count: int | None = None, senders_go_on: bool = False) -> Rehomed:
    """Have models live on the added partitions, too.

    1. Check that everything on the old partitions is learned, saved and committed, because a model that moves begins on
       its new partition.
    2. Set the marks of the new partitions to their beginnings. After a crash nobody reads them yet.
    3. Change the placement to the new count, from the marks of the old partitions on. This moves all models at once.
       From then on the store refuses what a worker learned under the old placement, even if that worker was paused and
       does not know.
    4. If such a worker saved a model between steps 1 and 3, change the placement back. After a crash before this, a
       model that went too far waits at its new home, and says why (workers/learning/partition/claim_checks.py).

    Parameters
    ----------
    count
        How many partitions models will live on; all of the topic if it is None.
    senders_go_on
        Events may wait in the old partitions. Those of models that move become dead letters. If a worker was killed
        after it wrote letters about some of them, these get a second letter with another reason; readers count both
        as one, by their position.

    Raises
    ------
    ConfigurationError
        No worker has recorded where models live, the new count is not a multiple of the old one, or not everything is
        learned.
    StoreError
        Another process changed the placement, or a worker saved a model in the meantime.
    """
    topic_id, count = extents[0].partition.topic_id, count or len(extents)
    placement = store.placement(topic_id)
    if placement is None:
        raise ConfigurationError("no worker has read this topic yet: start one, it uses all partitions")
    if not placement.count <= count <= len(extents):
        raise ConfigurationError(
            f"models live on {placement.count} partitions and the topic has {len(extents)}, got {count}: expected a "
            "number between the two"
        )
    if count % placement.count:
        raise ConfigurationError(f"models live on {placement.count} partitions: {advice(placement.count, count)}")
    if count == placement.count:
        return Rehomed(count, count)
    marks = store.marks([extent.partition for extent in extents])
    old, new = extents[: placement.count], extents[placement.count : count]
    missing = [line for extent in old if (line := _missing(extent, marks.get(extent.partition), senders_go_on))]
    if missing:
        raise ConfigurationError(f"{'; '.join(missing)}. {_again(senders_go_on)}")
    for extent in new:
        # A mark that is there already stays: an attempt that was killed, or a rewind, has set it.
        store.move_mark(extent.partition, None, extent.begin)
    since = {extent.partition.number: min(extent.end, marks.get(extent.partition, extent.end)) for extent in old}
    after = placement.grown(count, since)
    _place(store, topic_id, placement, after)
    if ahead := _stayed_too_long(store, topic_id, after):
        _place(store, topic_id, after, placement)
        raise StoreError(
            f"{', '.join(ahead)}: a worker saved a model in the meantime, so nothing was changed. It still runs, or "
            f"was paused or killed. Stop all workers. {_again(senders_go_on)}"
        )
    return Rehomed(placement.count, count, sum(extent.end - since[extent.partition.number] for extent in old))


def _stayed_too_long(store: Store, topic_id: str, placement: Placement) -> list[str]:
    """Models that learned events on their old home which belong to the new one, each with how far it learned."""
    positions = store.positions(store.models())
    left_at = {name: placement.left(name, home.number) for name, (home, _) in positions.items()
            if home.topic_id == topic_id and placement.home(name) != home.number}  # fmt: skip
    return [
        f"model {name!r} has learned partition {positions[name].home.number} up to {positions[name].next}, beyond {end}"
        for name, end in left_at.items()
        if end is not None and positions[name].next > end
    ]


def _missing(extent: Extent, mark: int | None, senders_go_on: bool) -> str:
    """What is not learned, saved and committed on a partition, as a clause; empty if everything that must be is."""
    if extent.end == extent.begin and mark is None:
        return ""
    if mark is None or (mark < extent.end and not senders_go_on):
        behind = extent.end - (extent.begin if mark is None else mark)
        return f"partition {extent.partition.number}: {amount_is(behind, 'event')} not learned and saved yet"
    if extent.committed != mark:
        return f"partition {extent.partition.number}: learned up to {mark}, but committed up to {extent.committed}"
    return ""


def _again(senders_go_on: bool) -> str:
    """What to do before the next attempt."""
    if senders_go_on:
        return (
            "Start the workers, wait until they own every partition (omdml topics status), stop them with SIGTERM, and "
            "run this command again"
        )
    return (
        "Stop the senders, including routers and nodes that take feedback. Start a worker, wait until nothing is "
        "missing (omdml topics status), stop it, and run this command again. If you cannot stop all senders, run it "
        "with --senders-go-on: what waits then for models that move becomes dead letters, to be sent again"
    )


def _place(store: Store, topic_id: str, before: Placement | None, after: Placement) -> None:
    if not store.place(topic_id, before, after):
        raise StoreError(f"log {topic_id}: another process changed where models live in the meantime: try again")
