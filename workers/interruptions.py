"""What interrupts a partition, beside errors that end the worker: the loop knows how to go on."""

from __future__ import annotations

from omdml.errors import CorruptError, GapError, StoreError, StoreRefused
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


def learned_elsewhere(model: str, home: Partition, here: Partition) -> GapError:
    """The error for a model of a log of the past."""
    return GapError(
        f"model {model!r} was learned from log {home.topic_id}, this one is {here.topic_id}: it was made anew. Bring "
        "the old log back, begin with an empty store, or go on with this log as it is (omdml worker --accept-gap)"
    )


def ahead_of_log(model: str, here: Partition, position: int, end: int) -> GapError:
    """The error for a model whose checkpoint has learned more than the log holds."""
    return GapError(
        f"model {model!r} has learned partition {here.number} up to offset {position}, but the log ends at {end}: the "
        "log was cut, or brought back from an older copy. Bring the newer log back, learn the model again (omdml "
        "models reset), or go on with new events only (omdml worker --accept-gap)",
        position=position,
    )


def not_from_there(model: str, before: Partition, here: Partition, fell_back: bool) -> CorruptError:
    """The error for a model whose checkpoint lies on a partition that it cannot have come from."""
    why = "the newer ones are damaged, so what it learned there last is lost" if fell_back else "it never lived there"
    return CorruptError(
        f"model {model!r} lives on partition {here.number}, but its checkpoint is about partition {before.number} and "
        f"{why}: restore the store from a backup, or learn the model again: omdml models reset"
    )
