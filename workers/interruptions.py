"""What interrupts a partition, beside errors that end the worker: the loop knows how to go on."""

from __future__ import annotations

from omdml.errors import GapError, StoreError
from streams.protocols import Partition
from workers.growth import REHOME


class StoreChanged(StoreError):
    """The store may have forgotten what was saved: nothing is known to be kept but what it says now."""


class Moved(Exception):
    """The partitioner sends a model's events elsewhere by now: in that ``partition`` they wait."""

    def __init__(self, name: str, partition: Partition, before: Partition) -> None:
        super().__init__(
            f"events of model {name!r} come by partition {partition.number} by now, those before them by "
            f"{before.number}: partitions were added to the log. They wait until: {REHOME}"
        )


class Rewind(Exception):
    """The source was moved back; what was polled meanwhile must be dropped. ``why`` is what the log calls it."""

    def __init__(self, model: str, partition: Partition, offset: int, why: str) -> None:
        super().__init__(f"model {model!r} goes on from offset {offset}")
        self.partition, self.why = partition, why


def learned_elsewhere(model: str, home: Partition, here: Partition) -> GapError:
    """The error for a model of a log of the past."""
    return GapError(
        f"model {model!r} was learned from log {home.topic_id}, this one is {here.topic_id}: it was made anew. Bring "
        "the old log back, begin with an empty store, or go on with this log as it is (omdml worker --accept-gap)"
    )
