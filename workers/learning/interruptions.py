"""What interrupts a partition, beside errors that end the worker: the loop knows how to go on."""

from __future__ import annotations

from omdml.errors import StoreError
from omdml.streams.protocols.log import Partition


class StoreChanged(StoreError):
    """The store may have forgotten what was saved: nothing is known to be kept but what it says now."""


class Rewind(Exception):
    """A partition must be read again from an offset on, and what was polled of it be dropped.

    ``why`` is what the log calls it.
    """

    def __init__(self, model: str, partition: Partition, offset: int, why: str) -> None:
        super().__init__(f"model {model!r} goes on from offset {offset}")
        self.partition, self.offset, self.why = partition, offset, why
