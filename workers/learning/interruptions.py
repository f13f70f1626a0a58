"""What interrupts a partition, beside errors that end the worker: the loop knows how to go on."""

from __future__ import annotations

from omdml.errors import StoreError, StoreRefused
from streams.protocols import Partition


class StoreChanged(StoreError):
    """The store may have forgotten what was saved: nothing is known to be kept but what it says now."""


class PlacementChanged(StoreRefused):
    """An operator placed the models on other partitions while this worker was at work."""

    def __init__(self, topic_id: str) -> None:
        super().__init__(
            f"log {topic_id}: its models were placed on other partitions (omdml topics rehome) while this worker was "
            "at work: it stops without saving, start it again"
        )


class Rewind(Exception):
    """The source was moved back; what was polled meanwhile must be dropped. ``why`` is what the log calls it."""

    def __init__(self, model: str, partition: Partition, offset: int, why: str) -> None:
        super().__init__(f"model {model!r} goes on from offset {offset}")
        self.partition, self.why = partition, why
