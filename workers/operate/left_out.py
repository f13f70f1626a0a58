"""Which events of a model are not to be learned again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from omdml.errors import StoreError
from omdml.streams.extents import Extent
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Store
from omdml.workers.events.decoding import Batch
from omdml.workers.model.tally import Tally


class LeftOut(NamedTuple):
    """Events of these ``users``; of the times ``since`` to ``until``, in seconds since the epoch, if both are given;
    and all that come after the model has reached this ``version``.
    """

    users: frozenset[str] = frozenset()
    since: float | None = None
    until: float | None = None
    version: int | None = None

    def split(self, batch: Batch, version: int) -> tuple[Batch, Batch, Batch]:
        """The first events of a batch that a model of this version learns, and leaves out; and the rest.

        The rest is to be asked about when these are learned: that says whether the version is reached.
        """
        if self.version is None:
            first, rest = batch, Batch()
        elif version >= self.version:
            return Batch(), batch, Batch()
        else:
            count = within(batch, self.version - version)
            first = batch.only([place < count for place in range(len(batch.records))])
            rest = batch.only([place >= count for place in range(len(batch.records))])
        out = [self._names(event.user, time) for event, time in zip(first.events, first.times, strict=True)]
        return first.only([not matches for matches in out]), first.only(out), rest

    def _names(self, user: str | None, time: float | None) -> bool:
        if user is not None and user in self.users:
            return True
        if self.since is None and self.until is None:
            return False
        begin = -math.inf if self.since is None else self.since
        end = math.inf if self.until is None else self.until
        return time is not None and begin <= time < end

    def check(self, reached: int, name: str) -> None:
        """Raise StoreError if the log did not lead to the version."""
        if self.version is None or reached == self.version:
            return
        if reached < self.version:
            reason = f"the log leads to version {reached} and no further: what was learned before has left the log"
        else:
            reason = f"no event of the log ends there, the first one beyond leads to {reached}"
        raise StoreError(f"model {name!r}: version {self.version}: {reason}. Nothing was changed: name another "
                         "version, or put a backup back (omdml restore)")  # fmt: skip


NOTHING = LeftOut()


def check_log(store: Store, name: str, extents: Iterable[Extent]) -> None:
    """Raise StoreError if the log holds no longer, or not yet, what a model learned, or more than it learned from."""
    checkpoint = store.peek(name)
    if checkpoint is None:
        return
    home = Partition(*checkpoint.home)
    tally = msgspec.convert(checkpoint.progress.get("tally", {}), Tally).resumed(home, checkpoint.next)
    if not tally.anew:
        raise StoreError(
            f"model {name!r} did not begin with its first event: it was reset, copied, rewound or moved at offset "
            f"{tally.since} of partition {home.number}. To learn the log again would restore what came before, too. "
            "Nothing was changed; --accept-gap does it all the same"
        )
    begin, end = next(((extent.begin, extent.end) for extent in extents if extent.partition == home), (0, 0))
    if begin > tally.since or end < checkpoint.next:
        raise StoreError(
            f"model {name!r} learned what lies at offsets {tally.since} to {checkpoint.next - 1} of partition "
            f"{home.number}, and the log holds {begin} to {end - 1}: the rest would be lost. Nothing was changed; "
            "--accept-gap goes on with what there is"
        )


def within(batch: Batch, comparisons: int) -> int:
    """How many events surely stand for no more comparisons than these; one at least. Each names two items or more."""
    named = 0
    for place, count in enumerate(batch.named):
        named += count
        if named > comparisons:
            return max(place, 1)
    return len(batch.named)
