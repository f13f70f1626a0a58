"""Events that a sender repeats, because its first request timed out: each ``id`` is learned once.

A model remembers the ids of the newest events that it learned or held out, as hashes of eight bytes. What is remembered
follows from the log alone, and lies in the checkpoint, so that a replay passes over the same events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CorruptError
from omdml.workers.events.decoding import Batch, Refusal

# A model remembers this many ids.
WINDOW = 4096
ID_BYTES = 8
# Up to this many ids are looked up faster one after another than sorted together.
ONE_BY_ONE = 50

Array = NDArray[Any]
# The hash of each event's id; None if it brings no id.
Hashes = Sequence[int | None]


class NewEvents(NamedTuple):
    """Events in order, without repeats of earlier ones."""

    batch: Batch
    hashes: Hashes


class SeenIds:
    """The ids of the newest events of one model.

    An event that was refused is not remembered: it may come again once the cause is fixed, and must be learned then.

    Parameters
    ----------
    data
        What :meth:`to_bytes` made; raises CorruptError for anything else.
    """

    def __init__(self, data: bytes = b"") -> None:
        if len(data) % ID_BYTES or len(data) > WINDOW * ID_BYTES:
            raise CorruptError(
                f"ids of repeated events: {len(data)} bytes, expected a multiple of {ID_BYTES}, at most "
                f"{WINDOW * ID_BYTES}"
            )
        # The oldest is first.
        self._hashes: Array = np.frombuffer(data, "<u8")

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the ids take."""
        return int(self._hashes.nbytes)

    def to_bytes(self) -> bytes:
        """The ids as a checkpoint keeps them, oldest first."""
        return self._hashes.tobytes()

    def without_repeats(self, batch: Batch) -> Iterator[NewEvents]:
        """The events of a batch that are no repeats, in one or more pieces.

        Call :meth:`add` with each piece before asking for the next. There is more than one only if an id is twice in
        the batch, or comes again just as it leaves the window. Whether such an event is a repeat depends on what became
        of the events before it.
        """
        hashes = hashes_of(batch)
        ids = [number for number in hashes if number is not None]
        if len(set(ids)) == len(ids) and not self._knows_any(ids):
            yield NewEvents(batch, hashes)
            return
        start = 0
        while start < len(hashes):
            stay, start = self._longest_piece(hashes, start)
            if any(stay):
                yield NewEvents(batch.only(stay), list(compress(hashes, stay)))

    def add(self, events: NewEvents, refused: Sequence[Refusal]) -> None:
        """Remember the ids of a piece that was taken, except those of refused events."""
        refused_offsets = {refusal.record.offset for refusal in refused}
        taken = zip(events.batch.records, events.hashes, strict=True)
        new = [number for record, number in taken if number is not None and record.offset not in refused_offsets]
        self._hashes = np.concatenate([self._hashes, np.array(new, "<u8")])[-WINDOW:]

    def _knows_any(self, ids: Sequence[int]) -> bool:
        if len(ids) <= ONE_BY_ONE:
            return any((self._hashes == number).any() for number in ids)
        return bool(np.isin(np.array(ids, "<u8"), self._hashes).any())

    def _longest_piece(self, hashes: Hashes, begin: int) -> tuple[list[bool], int]:
        """The longest piece from ``begin`` on, so that it is certain which events repeat, and the piece's end."""
        place_of = {number: index for index, number in enumerate(self._hashes.tolist())}
        # This many ids can be added before the oldest one leaves the window, and one more for each place after it.
        room = WINDOW - len(self._hashes)
        stay = [False] * len(hashes)
        new: set[int] = set()
        for index in range(begin, len(hashes)):
            number = hashes[index]
            if number is not None:
                place = place_of.get(number)
                if number in new or (place is not None and place + room < len(new)):
                    return stay, index
                if place is not None:
                    continue
                new.add(number)
            stay[index] = True
        return stay, len(hashes)


def hashes_of(batch: Batch) -> Hashes:
    """Eight bytes of the blake2b of each event's id."""
    ids = [event.id for event in batch.events]
    digests = b"".join([blake2b((name or "").encode(), digest_size=ID_BYTES).digest() for name in ids])
    numbers = np.frombuffer(digests, "<u8").tolist()
    return [None if name is None else number for name, number in zip(ids, numbers, strict=True)]
