"""Whether every partition of a topic is read, by workers that agree with the store on where models live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omdml.streams.placement import Placement
from omdml.workers.configuration.config import KafkaLog
from omdml.workers.configuration.wording import amount, amount_is, span, when
from omdml.workers.doctor.checks.durability import duration, set_topic
from omdml.workers.doctor.checks.waiting_events import BEHIND_S
from omdml.workers.doctor.findings import Remark, error, warning
from omdml.workers.operate.topics import PartitionReport, advice

# The share of the topic's retention after which a waiting event is in danger.
EXPIRING = 0.5


def partitions(
    lines: Sequence[PartitionReport],
    placement: Placement | None,
    partitioner: str,
    learning: bool,
    since: Mapping[int, float],
    now: float,
) -> str | list[Remark]:
    """What is wrong with the partitions of a topic.

    Parameters
    ----------
    placement
        The placement in the store; None if no worker has read the topic yet.
    partitioner
        The configured one.
    learning
        Whether any worker is a member of the group.
    since
        When the first event that waits in a partition came, by the partition's number, as far as that is known.
    now
        Seconds since the epoch.
    """
    count = placement.count if placement else len(lines)
    placed, added = lines[:count], lines[count:]
    remarks = foreign(placement, partitioner) + unread(added, count, len(lines)) + stopped(placed)
    if learning:
        remarks += unowned([line for line in placed if not line.worker and not line.wrong])
        remarks += behind([line for line in placed if line.worker and not line.wrong], since, now)
    elif not remarks:
        remarks = [warning("no worker is running (none is a member of the group). Nothing waits to be learned, but "
                           "what comes next will. Start one: omdml worker")]  # fmt: skip
    workers, lag = sorted({line.worker for line in lines if line.worker}), sum(line.lag for line in lines)
    owners = ", ".join(workers)
    return remarks or f"{amount(len(lines), 'partition')}, {amount(lag, 'event')} to be learned, by {owners}"


def foreign(placement: Placement | None, partitioner: str) -> list[Remark]:
    """A partitioner that is not the one by which models were placed."""
    if placement is None or placement.partitioner == partitioner:
        return []
    return [error(f"log.partitioner is {partitioner!r}, but models of this topic live where {placement.partitioner!r} "
                  "puts them, so no worker starts. Set it back, or stop the workers and learn the topic again under "
                  "the new one: omdml topics rewind")]  # fmt: skip


def unread(added: Sequence[PartitionReport], count: int, partitions: int) -> list[Remark]:
    """Partitions that were added since models were placed."""
    if not added:
        return []
    waiting = sum(line.lag for line in added)
    remark = error if waiting else warning
    return [remark(f"{numbered(added)} {verb(added)} added after models had been placed on {count}, and no worker "
                   f"reads there; {amount(waiting, 'event')} wait: {advice(count, partitions)}")]  # fmt: skip


def stopped(lines: Sequence[PartitionReport]) -> list[Remark]:
    """Partitions that workers cannot go on with, by what is wrong with them."""
    by_problem: dict[str, list[PartitionReport]] = {}
    for line in lines:
        if line.wrong:
            by_problem.setdefault(line.wrong, []).append(line)
    return [error(f"{numbered(group)}: {wrong}; {amount(max(0, sum(line.lag for line in group)), 'event')} wait there")
            for wrong, group in by_problem.items()]  # fmt: skip


def expiring(
    lines: Sequence[PartitionReport], since: Mapping[int, float], retention_s: float | None, log: KafkaLog, now: float
) -> list[Remark]:
    """Partitions whose events the topic will delete soon, although they are not learned.

    Parameters
    ----------
    since
        When the first event that waits in a partition came, by the partition's number, as far as that is known.
    retention_s
        For how long the topic keeps events; None is for ever.
    """
    if retention_s is None:
        return []
    late = [line for line in lines
            if now - since.get(line.extent.partition.number, now) > EXPIRING * retention_s]  # fmt: skip
    if not late:
        return []
    oldest = min(since[line.extent.partition.number] for line in late)
    command = f"{set_topic(log.servers, log.topic)} retention.ms=-1"
    return [error(f"{numbered(late)}: the oldest event to be learned is of {when(oldest)} ({span(now - oldest)} ago), "
                  f"and the topic deletes events after {duration(retention_s)}. First have it keep them: {command}. "
                  "Then see why they are not learned")]  # fmt: skip


def numbered(lines: Sequence[PartitionReport]) -> str:
    """The numbers of these partitions, as a list for a sentence."""
    return f"partition{'s' * (len(lines) > 1)} {', '.join(str(line.extent.partition.number) for line in lines)}"


def verb(lines: Sequence[PartitionReport]) -> str:
    """The verb that goes with these partitions."""
    return "were" if len(lines) > 1 else "was"


def unowned(lines: Sequence[PartitionReport]) -> list[Remark]:
    """Partitions that no worker owns although there are workers."""
    if not lines:
        return []
    waiting = sum(line.lag for line in lines)
    remark = error if waiting else warning
    return [remark(f"there are workers, but none owns {numbered(lines)}; {amount(waiting, 'event')} wait there. A "
                   "rebalance ends within seconds, so run this again. If it stays so, a worker's log says why it "
                   "cannot take the partition. If no log says so, restart a worker")]  # fmt: skip


def behind(owned: Sequence[PartitionReport], since: Mapping[int, float], now: float) -> list[Remark]:
    """Partitions whose worker is there, but has not learned and saved what came a while ago."""
    late = {line.extent.partition.number: line for line in owned
            if line.lag > 0 and now - since.get(line.extent.partition.number, now) >= BEHIND_S}  # fmt: skip
    if not late:
        return []
    oldest, lines = min(since[number] for number in late), list(late.values())
    workers, waiting = sorted({line.worker for line in lines}), sum(line.lag for line in lines)
    wait = f"{amount_is(waiting, 'event')} not learned or not saved yet"
    return [warning(f"{numbered(lines)} of {', '.join(workers)}: {wait}, the oldest of {when(oldest)} "
                    f"({span(now - oldest)} ago). Run this again. If the number does not fall, read the worker's log: "
                    "a model waits (see checkpoints), the store or the dead letters refuse writes, or the process "
                    "hangs")]  # fmt: skip
