"""Which snapshots stay when new ones come: dense in the recent past, ever thinner before."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple, Protocol, TypeVar

# Publications between two rounds of thinning out: a round reads the whole history.
SPARE = 10

Key = TypeVar("Key", bound=Hashable)


class RetentionOf(Protocol):
    """Which snapshots stay, model by model."""

    def of(self, model: str) -> Retention:
        """The retention that applies to a model, by its name."""


class Retention(NamedTuple):
    """The newest ``last``, then the newest of each minute for ``minutes``, of each hour, of each day.

    With the defaults a model that is published without pause keeps about a hundred snapshots.
    """

    last: int = 10
    minutes: int = 60
    hours: int = 24
    days: int = 7

    def of(self, model: str) -> Retention:
        """Itself: the retention is the same for all models."""
        return self

    def superfluous(self, published: Mapping[Key, float]) -> list[Key]:
        """The keys that need not stay, oldest first, given when each was published, in seconds since the epoch.

        They are in the order of publication, and the age of each counts from the last one. If a clock was ahead when
        some were published, these seem to be later than the last one: they stay until they have become old. The newest
        of an hour is the newest of one of its minutes too: it is still there when only hours count.

        Examples
        --------
        >>> two_minutes = Retention(last=1, minutes=2, hours=0, days=0)
        >>> two_minutes.superfluous({"first": 59.0, "second": 61.0, "third": 62.0})
        ['second']
        """
        newest_first = [*published][::-1]
        now = published[newest_first[0]] if published else 0.0
        stay = set(newest_first[: self.last])
        for span_s, count in ((60, self.minutes), (3600, self.hours), (86400, self.days)):
            seen: set[int] = set()
            for key in newest_first:
                span = int(published[key] // span_s)
                if span not in seen and now // span_s - span < count:
                    stay.add(key)
                seen.add(span)
        return [key for key in reversed(newest_first) if key not in stay]


RETENTION = Retention()
# The retention for thousands of models: snapshots take less than half of the bytes.
OF_MANY = Retention(last=3, minutes=10, hours=24, days=7)
