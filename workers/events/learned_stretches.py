"""Which events of the log a model learned: so it learns none twice if a dead letter of it is sent again.

An event can be refused, become a dead letter, and be learned all the same: a crash has it taken again, and by then its
item is there or its model is configured. Its copy (``omdml letters resend``) must not be learned then.

A model remembers on which stretch of its partition it took events, and the offsets of those it refused. Any other event
of the stretch was learned. All of this follows from the log, and lies in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import CorruptError
from omdml.streams.protocols.log import Partition
from omdml.streams.resent_events import position_of_copy
from omdml.workers.events.decoding import Batch

# A model remembers this many offsets of refused events.
WINDOW = 4096
# A model remembers this many stretches before the present one.
EARLIER = 8
OFFSET_BYTES = 8

Array = NDArray[Any]


class Stretch(msgspec.Struct):
    """The offsets ``since`` up to ``until`` of a partition.

    ``refused`` are offsets in it, ascending, 8 bytes each: of events that the model refused. An offset is stored
    negative (``-1 - offset``) once a copy of the event was taken. If it is ``closed``, the next event begins another
    one: what lies between them was refused while the model was not configured, so that it could not know.
    """

    home: str
    since: int
    until: int
    refused: bytes = b""
    closed: bool = False


class Stretches:
    """The stretches of one model, the present one last.

    There are earlier ones if the model moved to a partition that was added, or was not configured for a time.

    Parameters
    ----------
    saved
        What :meth:`saved` returned; raises CorruptError for anything else.
    secret
        The store's: it tells copies from what others passed off as such. None if nothing is going to be taken.
    """

    def __init__(self, saved: Sequence[Stretch] = (), secret: bytes | None = None) -> None:
        for stretch in saved:
            if len(stretch.refused) % OFFSET_BYTES:
                raise CorruptError(
                    f"offsets of refused events: {len(stretch.refused)} bytes, expected a multiple of {OFFSET_BYTES}"
                )
        self._stretches = [_StretchInMemory(stretch) for stretch in saved]
        self._secret = secret

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the stretches take."""
        return sum(stretch.nbytes for stretch in self._stretches)

    def saved(self) -> list[Stretch]:
        """The stretches as a checkpoint keeps them, the oldest first."""
        return [stretch.saved() for stretch in self._stretches]

    def open(self, home: Partition, offset: int) -> None:
        """Note that the next event to be taken lies at this offset.

        What was known of this offset and of those behind it is forgotten, because a log that was cut holds other events
        there.
        """
        for stretch in self._stretches:
            if stretch.home == str(home):
                stretch.cut(offset)
        if not self._goes_on(home):
            self._stretches = [*self._stretches[-EARLIER:], _StretchInMemory(Stretch(str(home), offset, offset))]

    def end(self, offset: int) -> None:
        """Note that everything below this offset was taken."""
        self._stretches[-1].until = offset
        self.shrink()

    def refuse(self, home: Partition | None, offsets: Iterable[int]) -> None:
        """Remember refused events, unless they lie before the first one that was taken there."""
        if self._goes_on(home):
            self._stretches[-1].refuse(offsets)

    def _goes_on(self, home: Partition | None) -> bool:
        return bool(self._stretches) and self._stretches[-1].home == str(home) and not self._stretches[-1].closed

    def shrink(self) -> None:
        """Forget the oldest refused events if there are too many.

        All copies of them that came so far must be decided on before this.
        """
        if self._stretches:
            self._stretches[-1].shrink()

    def learned(self, partition: Partition, offset: int, below: int | None = None) -> bool:
        """Whether an event, or a copy of it, was learned for certain.

        ``below`` is the offset of the event that asks, if that lies on the same partition: what lies below it is taken.
        """
        return any(
            stretch.learned(offset, below if stretch is self._stretches[-1] else None)
            for stretch in self._stretches
            if stretch.home == str(partition)
        )

    def learned_in_place(self, partition: Partition, offset: int) -> bool:
        """Whether an event was learned for certain, and not by a copy."""
        return any(stretch.learned_in_place(offset) for stretch in self._stretches if stretch.home == str(partition))

    def without_copies(self, batch: Batch) -> Iterator[Batch]:
        """The events of a batch, in pieces, without copies of events that were learned.

        :meth:`take` must be told of each piece before the next is asked for. A piece ends before a copy of an event
        that lies in the piece, or that another copy in it is about: what becomes of that one decides about this copy.
        """
        here = batch.records[0].partition
        stay = [True] * len(batch.records)
        # The index of the piece's first event, and the events that copies in the piece are about.
        first, originals = 0, set[tuple[Partition, int]]()
        for index, record in enumerate(batch.records):
            original = position_of_copy(record, self._secret) if record.headers else None
            if original is None:
                continue
            partition, offset = original
            begin = batch.records[first].offset
            unsure = (partition == here and offset >= begin) or (partition, offset) in originals
            # If the piece's events were all refused, some that are remembered now would be forgotten before this copy.
            if unsure or self._stretches[-1].count + index - first > WINDOW:
                yield from _between(batch, stay, first, index)
                first, originals = index, set()
            originals.add((partition, offset))
            below = record.offset if partition == here else None
            stay[index] = not self.learned(partition, offset, below)
        yield from _between(batch, stay, first, len(stay))

    def take(self, piece: Batch, refused: Collection[int]) -> None:
        """Remember what became of a piece: which events, by offset, were refused. All other copies were taken."""
        here = piece.records[0].partition
        for record in piece.records:
            position = None if record.offset in refused else position_of_copy(record, self._secret)
            if position:
                partition, offset = position
                if partition != here or offset < record.offset:
                    self._copy_taken(partition, offset)
        self.refuse(here, refused)

    def _copy_taken(self, partition: Partition, offset: int) -> None:
        for stretch in self._stretches:
            if stretch.home == str(partition):
                stretch.copy_taken(offset)


class _StretchInMemory:
    """A stretch in memory, in a form that is quick to search."""

    def __init__(self, saved: Stretch) -> None:
        self.home, self.since, self.until, self.closed = saved.home, saved.since, saved.until, saved.closed
        self._refused: Array = np.frombuffer(saved.refused, "<i8")

    @property
    def nbytes(self) -> int:
        return int(self._refused.nbytes)

    @property
    def count(self) -> int:
        return len(self._refused)

    def saved(self) -> Stretch:
        return Stretch(self.home, self.since, self.until, self._refused.tobytes(), self.closed)

    @property
    def _offsets(self) -> Array:
        return offsets_in(self._refused)

    def cut(self, offset: int) -> None:
        """Note that nothing from this offset on was taken."""
        if offset < self.until:
            self.until, self.since = offset, min(self.since, offset)
            self._refused = self._refused[self._offsets < offset]

    def refuse(self, offsets: Iterable[int]) -> None:
        new = np.array(sorted(offset for offset in offsets if offset >= self.since), "<i8")
        if not len(new):
            return
        if not len(self._refused) or new[0] > self._offsets[-1]:
            self._refused = np.concatenate([self._refused, new])
            return
        joined = np.concatenate([self._refused, new[~np.isin(new, self._offsets)]])
        self._refused = joined[np.argsort(offsets_in(joined), kind="stable")]

    def learned(self, offset: int, below: int | None) -> bool:
        end = self.until if below is None else below
        if not self.since <= offset < end:
            return False
        offsets = self._offsets
        # Refusals that are known already, but lie behind the event that asks, do not push others out.
        known = len(offsets) if below is None else int(np.searchsorted(offsets, below))
        if known > WINDOW and offset <= offsets[known - WINDOW - 1]:
            return False
        index = int(np.searchsorted(offsets, offset))
        return not (index < len(offsets) and offsets[index] == offset and self._refused[index] >= 0)

    def learned_in_place(self, offset: int) -> bool:
        return self.learned(offset, None) and offset not in self._offsets

    def copy_taken(self, offset: int) -> None:
        index = int(np.searchsorted(self._offsets, offset))
        if index < len(self._refused) and self._refused[index] == offset:
            self._refused = self._refused.copy()
            self._refused[index] = -1 - offset

    def shrink(self) -> None:
        """Remember the newest refusals only. For earlier events it is no longer known whether they were learned."""
        if len(self._refused) > WINDOW:
            self.since = int(self._offsets[-WINDOW - 1]) + 1
            self._refused = self._refused[-WINDOW:]


def offsets_in(stored: Array) -> Array:
    """The offsets of refused events, as they are stored: ``-1 - offset`` once a copy was taken."""
    return np.where(stored < 0, -1 - stored, stored)


def _between(batch: Batch, stay: Sequence[bool], first: int, end: int) -> Iterator[Batch]:
    chosen = [first <= index < end and stays for index, stays in enumerate(stay)]
    if all(chosen):
        yield batch
    elif any(chosen):
        yield batch.only(chosen)
