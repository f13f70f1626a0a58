"""Whether every partition of a topic is read, by workers that agree with the store on where models live."""

from __future__ import annotations

from collections.abc import Sequence

from streams.placement import Placement
from workers.configuration.wording import amount
from workers.doctor.findings import Remark, error, warning
from workers.operate.topics import Line, advice


def partitions(
    lines: Sequence[Line], placement: Placement | None, partitioner: str, learning: bool
) -> str | list[Remark]:
    """What is wrong with the partitions of a topic.

    Parameters
    ----------
    placement
        Where the store says that models live; None if no worker has read the topic yet.
    partitioner
        The configured one.
    learning
        Whether any worker is a member of the group.
    """
    count = placement.count if placement else len(lines)
    known, added = lines[:count], lines[count:]
    told = foreign(placement, partitioner) + unread(added, count, len(lines)) + stopped(known)
    if learning:
        told += unowned([line for line in known if not line.worker and not line.wrong])
    workers, lag = sorted({line.worker for line in lines if line.worker}), sum(line.lag for line in lines)
    by = f"by {', '.join(workers)}" if workers else "no worker reads them now"
    return told or f"{amount(len(lines), 'partition')}, {amount(lag, 'event')} to be learned, {by}"


def foreign(placement: Placement | None, partitioner: str) -> list[Remark]:
    """A partitioner that is not the one by which models were placed."""
    if placement is None or placement.partitioner == partitioner:
        return []
    return [error(f"log.partitioner is {partitioner!r}, but models of this topic live where {placement.partitioner!r} "
                  "puts them, so no worker starts: set it back, or stop the workers and learn the topic again under "
                  "the new one: omdml topics rewind")]  # fmt: skip


def unread(added: Sequence[Line], count: int, partitions: int) -> list[Remark]:
    """Partitions that were added since models were placed."""
    if not added:
        return []
    waiting = sum(line.lag for line in added)
    remark = error if waiting else warning
    return [remark(f"{numbered(added)} came after models were placed on {count}, and no worker "
                   f"reads there; {amount(waiting, 'event')} wait: {advice(count, partitions)}")]  # fmt: skip


def stopped(known: Sequence[Line]) -> list[Remark]:
    """Partitions that workers cannot go on with, by what is wrong with them."""
    alike: dict[str, list[Line]] = {}
    for line in known:
        if line.wrong:
            alike.setdefault(line.wrong, []).append(line)
    return [error(f"{numbered(lines)}: {wrong}; {amount(sum(line.lag for line in lines), 'event')} wait there")
            for wrong, lines in alike.items()]  # fmt: skip


def numbered(lines: Sequence[Line]) -> str:
    """These partitions by their numbers."""
    return f"partition{'s' * (len(lines) > 1)} {', '.join(str(line.extent.partition.number) for line in lines)}"


def unowned(lines: Sequence[Line]) -> list[Remark]:
    """Partitions that no worker owns although there are workers."""
    if not lines:
        return []
    waiting = sum(line.lag for line in lines)
    remark = error if waiting else warning
    return [remark(f"there are workers, but none owns {numbered(lines)}; {amount(waiting, 'event')} wait there. A "
                   "rebalance ends within seconds: run this again. If it stays so, a worker's log says why it cannot "
                   "take the partition")]  # fmt: skip
