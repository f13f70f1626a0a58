"""The events that a model does not learn when it learns its log again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from omdml.errors import StoreError
from omdml.snapshot import Checkpoint
from omdml.streams.protocols.log import Partition
from omdml.streams.topic_extents import Extent
from omdml.workers.events.decoding import Batch
from omdml.workers.model.tally import Tally


class LeftOut(NamedTuple):
    """Events to leave out.

    These are the events of ``users``, those from the time ``since`` on and before ``until`` (in seconds since the
    epoch), and all that come after the model has reached ``version``. Without ``since``, the time begins with the first
    event; without ``until`` it has no end. Without both, no event is left out because of its time.
    """

    users: frozenset[str] = frozenset()
    since: float | None = None
    until: float | None = None
    version: int | None = None

    def split(self, batch: Batch, version: int) -> tuple[Batch, Batch, Batch]:
        """Split a batch for a model at this version: events to learn, events to leave out, and the rest.

        Split the rest again after these are learned, because only then it is known whether the version is reached.
        """
        if self.version is None:
            first, rest = batch, Batch()
        elif version >= self.version:
            return Batch(), batch, Batch()
        else:
            count = within(batch, self.version - version)
            first = batch.only([place < count for place in range(len(batch.records))])
            rest = batch.only([place >= count for place in range(len(batch.records))])
        left_out = [self._leaves_out(event.user, time) for event, time in zip(first.events, first.times, strict=True)]
        return first.only([not matches for matches in left_out]), first.only(left_out), rest

    def _leaves_out(self, user: str | None, time: float | None) -> bool:
        if user is not None and user in self.users:
            return True
        if self.since is None and self.until is None:
            return False
        begin = -math.inf if self.since is None else self.since
        end = math.inf if self.until is None else self.until
        return time is not None and begin <= time < end

    def check_found(self, count: int, name: str) -> None:
        """Raise StoreError if users or a time are to be left out, and ``count``, the events that were left out, is 0.

        The model's history would be deleted for nothing. With ``version`` it is what was asked for.
        """
        if count or self.version is not None or self == NOTHING:
            return
        users = f"of {', '.join(sorted(map(repr, self.users)))}" if self.users else ""
        time = "from that time (UTC)" if (self.since, self.until) != (None, None) else ""
        which = " or ".join(filter(None, (users, time)))
        check = " and ".join(filter(None, (users and "how the events write the user", time and "the time")))
        raise StoreError(
            f"model {name!r}: no event {which} is in the log. Nothing was changed. Check {check}. To learn the "
            "log again anyway, pass --accept-gap"
        )

    def check(self, reached: int, name: str) -> None:
        """Raise StoreError if the log did not lead to the version."""
        if self.version is None or reached == self.version:
            return
        if reached < self.version:
            reason = (
                f"the log only leads to version {reached}: there was no such version, the log lost events, or "
                "items were deleted since"
            )
        else:
            reason = f"no event of the log ends at this version, the next one leads to {reached}"
        raise StoreError(f"model {name!r}: version {self.version}: {reason}. Nothing was changed. Name another "
                         "version, or put a backup back (omdml restore)")  # fmt: skip

    def check_no_later(self, newest: float | None, version_time: float | None, name: str) -> None:
        """Raise StoreError if the newest learned event is later than the version's newest, at ``version_time``.

        The version is counted again. If fewer comparisons of the earlier events are learned than at that time, because
        items were deleted or users are left out, the count reaches on into events that were to be left out.
        """
        if newest is None or version_time is None or newest <= version_time:
            return
        since = datetime.fromtimestamp(math.floor(version_time) + 1, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        raise StoreError(
            f"model {name!r}: version {self.version}: events that came after it would be learned too, because fewer "
            "comparisons of the earlier ones can be learned now: items were deleted since, or users are left out. "
            f"Nothing was changed. Name the time instead of the version: --since {since}"
        )


NOTHING = LeftOut()


def check_beginning(checkpoint: Checkpoint, name: str) -> None:
    """Raise StoreError if the log holds events from before the model began."""
    tally = tally_of(checkpoint)
    if not tally.anew:
        raise StoreError(
            f"model {name!r} did not begin with its first event: it was reset, copied, rewound or moved at offset "
            f"{tally.since} of partition {Partition(*checkpoint.home).number}. Learning the log again would bring back "
            "what came before that. Nothing was changed. To do it anyway, pass --accept-gap"
        )


def check_log(checkpoint: Checkpoint, name: str, extents: Iterable[Extent]) -> None:
    """Raise StoreError if the log lacks events that the model learned."""
    home, since = Partition(*checkpoint.home), tally_of(checkpoint).since
    extent = next((extent for extent in extents if extent.partition == home), None)
    begin, end = (extent.begin, extent.end) if extent else (0, 0)
    if begin > since or end < checkpoint.next:
        learned = f"the offsets {since} to {checkpoint.next - 1} of partition {home.number}"
        holds = f"the log only holds {begin} to {end - 1}" if begin < end else "the log holds nothing there"
        if extent is None:
            learned = f"{learned} of log {home.topic_id}"
            holds = "the configured log is another one, or was made again"
        raise StoreError(
            f"model {name!r} learned {learned}, but {holds}: the rest would be lost. Nothing was changed. To learn "
            "only what the log holds, pass --accept-gap"
        )


def tally_of(checkpoint: Checkpoint) -> Tally:
    """What became of the events that a checkpoint's model has taken."""
    tally = msgspec.convert(checkpoint.progress.get("tally", {}), Tally)
    return tally.resumed(Partition(*checkpoint.home), checkpoint.next)


def within(batch: Batch, comparisons: int) -> int:
    """How many events of a batch surely make no more comparisons than these, at least one event.

    An event makes fewer comparisons than it names items, so counting items is safe.
    """
    named = 0
    for place, count in enumerate(batch.id_counts):
        named += count
        if named > comparisons:
            return max(place, 1)
    return len(batch.id_counts)
