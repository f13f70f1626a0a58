"""The row of a model: who owns it, how many entries its journal has had, which checkpoints are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from omdml.errors import StoreError
from omdml.streams.stores.checkpoints import Saved
from omdml.streams.stores.transactional.database import Rows

GROUP = "models"

Value = TypeVar("Value")


class KeptCheckpoint(NamedTuple):
    """A checkpoint by the number of its row, and whether a claim found it damaged."""

    number: int
    saved: Saved
    damaged: bool = False


class ModelRow(msgspec.Struct):
    """What a store notes of a model, beside its checkpoints, journal and snapshots.

    Parameters
    ----------
    owner
        The epoch of the owner.
    entries
        The number of the journal's last entry.
    checkpoints
        Those that are kept, the newest first.
    saved_last
        The checkpoint that was saved last, even if it is gone.
    """

    owner: str
    entries: int = 0
    checkpoints: list[KeptCheckpoint] = []
    saved_last: Saved | None = None

    @classmethod
    def read(cls, rows: Rows, model: str) -> ModelRow | None:
        """The row of a model; None if it was never claimed."""
        return read_row(rows, GROUP, quote(model, ""), decode)

    def write(self, rows: Rows, model: str) -> None:
        """Write the row."""
        rows.put(GROUP, quote(model, ""), encode(self))


def read_row(rows: Rows, group: str, name: str, decode: Callable[[bytes], Value]) -> Value | None:
    """What is in a row; None if there is no such row. Raises StoreError if it cannot be decoded."""
    data = rows.get(group, name)
    try:
        return None if data is None else decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"row {name} of group {group} cannot be read ({error}): restore the store from a backup"
        ) from error


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(ModelRow).decode
