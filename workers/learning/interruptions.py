"""Interruptions of a partition from which the worker's loop can continue; other errors end the worker."""

from __future__ import annotations

from omdml.errors import Fenced, StoreError
from omdml.streams.protocols.log import Partition


class StoreChanged(StoreError):
    """The store may have forgotten saves. Only what it holds now is certain."""


class ModelReplaced(Fenced):
    """Somebody replaced a model. This worker may have passed over events that only the replaced model had learned."""


class Rewind(Exception):
    """A partition must be read again from an offset on, and what was polled of it be dropped.

    ``why`` is what the log calls it.
    """

    def __init__(self, model: str, partition: Partition, offset: int, why: str) -> None:
        super().__init__(f"model {model!r} goes on from offset {offset}")
        self.partition, self.offset, self.why = partition, offset, why
