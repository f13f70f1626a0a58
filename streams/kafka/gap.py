"""What a Kafka source says when going on would lose events silently."""

from __future__ import annotations

from omdml.errors import GapError
from streams.protocols import Partition


def out_of_range(topic: str, partition: Partition, position: int | None, available: tuple[int, int]) -> GapError:
    """The position is before the log's first offset or past its end."""
    return GapError(
        f"topic {topic!r} partition {partition.number} does not hold offset {position}: it has offsets {available[0]} "
        f"up to {available[1]}; retention deleted events before they were learned, or the log was truncated; "
        "`omdml worker --accept-gap` goes on without them",
        partition=partition,
        position=position,
        available=available,
    )


def created_anew(
    topic: str, partition: Partition, position: int | None, available: tuple[int, int], *, before: str, now: str
) -> GapError:
    """The topic has another id than the one that the position belongs to."""
    return GapError(
        f"topic {topic!r} was deleted and created anew: its id is {now}, it was {before}; offset {position} of "
        f"partition {partition.number} belongs to the old topic, the new one has offsets {available[0]} up to "
        f"{available[1]}; restart with `omdml worker --accept-gap` to read the new one from its beginning",
        partition=partition,
        available=available,
    )
