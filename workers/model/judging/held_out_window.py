"""The held-out events that judge metrics: the newest ones, of which one query and one item have a limited share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.comparisons import Judgement
from omdml.margins import margins, margins_of_sets
from omdml.metrics import Metric, SetMetric

Array = NDArray[Any]
# The most events of a window.
WINDOW = 256
# The most judged sets of a window: each holds many elements.
SETS = 64
# The most comparisons of an event. They are chosen evenly.
COMPARISONS = 8
# The largest shares of the window that one query, and one item, may have.
OF_A_QUERY, OF_AN_ITEM = 1 / 16, 1 / 8
# If a catalogue has few items, the largest shares are these multiples of the share that each would have on average.
FEW_QUERIES, FEW_ITEMS = 4, 8


class JudgingEvent(msgspec.Struct, array_like=True):
    """A held-out event as it judges versions: the rows of its items in the catalogue, not their vectors.

    Parameters
    ----------
    rows
        One list for each comparison; if the event judges sets, one for the query and one for each set.
    relevant
        How many of the sets after the query's are relevant.
    expected
        The margin of the metric that candidates are compared with; None if it has not been asked yet.
    """

    rows: list[list[int]]
    relevant: int = 0
    similar: bool | None = None
    task: str | None = None
    expected: float | None = None


class Window:
    """Keeps the newest held-out events. An event that would exceed a share replaces the oldest of its kind.

    Without shares, a few senders, or a storm of clicks about a few items, could become all that judges. The events of
    one query have a largest share, and so have the events in which one item occurs in any role. For pairs of each task,
    the similar and the dissimilar ones have equal shares, because only both together say something. If there are both
    comparisons and pairs, those judge that make up more of the window's opinions (:func:`judging`).

    Parameters
    ----------
    events
        The events that judge, oldest first. The window changes this list in place.
    items
        Number of items that the catalogue began with.
    sets
        Whether events judge sets.
    """

    def __init__(self, events: list[JudgingEvent], items: int, tasks: int = 1, sets: bool = False) -> None:
        self.events = events
        self._sets = sets
        self.size = SETS if sets else WINDOW
        self.limits = {
            "query": share(self.size, OF_A_QUERY, FEW_QUERIES, items),
            "item": share(self.size, OF_AN_ITEM, FEW_ITEMS, items),
            "side": max(1, self.size // (2 * tasks)),
        }
        self._keys = [tuple(self._keys_of(event)) for event in events]
        self._counts = Counter(key for keys in self._keys for key in keys)

    def add(self, event: JudgingEvent) -> None:
        """Admit an event, which is the newest."""
        keys = tuple(self._keys_of(event))
        for key in keys:
            while self._counts[key] >= self.limits[key[0]]:
                self._drop(next(index for index, others in enumerate(self._keys) if key in others))
        self.events.append(event)
        self._keys.append(keys)
        self._counts.update(keys)
        while len(self.events) > self.size:
            self._drop(0)

    def keep_newest(self, count: int) -> None:
        """Forget what is older than the newest ``count`` events that judge; of pairs, twice as many are kept."""
        judges = judging(self.events)
        wanted = count * (2 if in_pairs(judges) else 1)
        if len(judges) > wanted:
            oldest = judges[len(judges) - wanted]
            for _ in range(next(index for index, event in enumerate(self.events) if event is oldest)):
                self._drop(0)

    def expect(self, margins: Array) -> None:
        """Keep with each event that judges its margin (n,) under the new reference. Pairs keep none."""
        judges = judging(self.events)
        if not in_pairs(judges):
            for event, margin in zip(judges, margins.tolist(), strict=True):
                event.expected = margin

    def query_numbers(self, count: int) -> Array:
        """A number (n,) for each event that judges, the same for the same query. Pairs have no query: all differ."""
        if in_pairs(judging(self.events)):
            return np.arange(count)
        numbers: dict[Hashable, int] = {}
        queries = [keys[0] for keys in self._keys if keys[0][0] == "query"]
        return np.array([numbers.setdefault(query, len(numbers)) for query in queries], np.int64)

    def _drop(self, index: int) -> None:
        del self.events[index]
        for key in self._keys.pop(index):
            self._counts[key] -= 1
            # Otherwise a model would remember every item and query that an event was ever about.
            if not self._counts[key]:
                del self._counts[key]

    def _keys_of(self, event: JudgingEvent) -> Iterator[tuple[str, Hashable]]:
        """The limits that an event counts towards: those of its query or side, and of its items."""
        if event.similar is not None:
            yield "side", (event.task, event.similar)
        else:
            yield "query", tuple(event.rows[0]) if self._sets else event.rows[0][0]
        yield from (("item", item) for item in sorted({item for row in event.rows for item in row}))


def share(size: int, usual: float, times: int, items: int) -> int:
    """How many events of a window may be of the same query, or about the same item."""
    return max(int(size * usual), math.ceil(times * size / max(1, items)))


def chosen(rows: Array) -> Array:
    """At most ``COMPARISONS`` of an event's comparisons (n, w), evenly chosen."""
    if len(rows) <= COMPARISONS:
        return rows
    return rows[np.linspace(0, len(rows) - 1, COMPARISONS).astype(int)]


def in_pairs(judges: Sequence[JudgingEvent]) -> bool:
    """Whether events say something only together: each similar pair with a dissimilar one."""
    return bool(judges) and judges[0].similar is not None


def judging(events: Sequence[JudgingEvent]) -> list[JudgingEvent]:
    """The events that judge: either the pairs, or all others.

    Pairs judge if they make more comparisons, each of a similar and a dissimilar pair, than there are other events, or
    if there are no others.
    """
    pairs = [event for event in events if event.similar is not None]
    comparisons = [event for event in events if event.similar is None]
    similar = sum(bool(event.similar) for event in pairs)
    opposed = min(similar, len(pairs) - similar)
    return pairs if not comparisons or opposed > len(comparisons) else comparisons


def margins_on(metric: Metric, events: Sequence[JudgingEvent], features: Mapping[str, Array]) -> Array:
    """The margin (n,) of each event that judges under a metric, oldest first: in [-1, 1], above 0 is right.

    A similar pair is taken together with a dissimilar pair of its task, as one comparison.
    """
    events = judging(events)
    if not events:
        return np.empty(0)
    if isinstance(metric, SetMetric):
        return margins_of_sets(metric, [judgement(event) for event in events], features)
    if in_pairs(events):
        return margins_by_pairs(metric, events, features)
    rows = [row for event in events for row in event.rows]
    items = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(rows[0]))
    of_comparisons = margins(metric, items.reshape(len(rows), -1), features)
    counts = [len(event.rows) for event in events]
    return np.add.reduceat(of_comparisons, np.cumsum([0, *counts[:-1]])) / counts


def margins_by_pairs(metric: Metric, events: Sequence[JudgingEvent], features: Mapping[str, Array]) -> Array:
    """The margin (n,) of each similar pair with a dissimilar one.

    The oldest is first, provided that the pairs of all tasks are equally old.
    """
    parts = [margins(metric, rows, features, task) for task, rows in opposed(events).items()]
    age = np.concatenate([np.arange(len(part)) for part in parts])
    return np.concatenate(parts)[np.argsort(-age, kind="stable")]


def judgement(event: JudgingEvent) -> Judgement:
    """The judgement of sets that an event holds."""
    query, *sets = (np.array(members) for members in event.rows)
    return Judgement(query, tuple(sets[: event.relevant]), tuple(sets[event.relevant :]))


def opposed(events: Sequence[JudgingEvent]) -> dict[str | None, Array]:
    """Similar pairs with dissimilar ones (n, 4), the newest with the newest, by task."""
    near: dict[str | None, list[list[int]]] = {}
    far: dict[str | None, list[list[int]]] = {}
    for event in reversed(events):
        side = near if event.similar else far
        side.setdefault(event.task, []).extend(event.rows)
    quadruplets: dict[str | None, Array] = {}
    for task in dict.fromkeys(event.task for event in reversed(events)):
        # The longer side's older pairs are left out.
        rows = [left + right for left, right in zip(near.get(task, []), far.get(task, []), strict=False)]
        quadruplets[task] = np.array(rows, np.int64).reshape(-1, 4)
    return quadruplets
