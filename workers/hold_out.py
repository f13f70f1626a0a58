"""The share of a model's events that is never learned from: what its metrics are compared by before they go live."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.comparisons import Judgement
from omdml.feedback import AnyFeedback, SetJudgement
from omdml.margins import margins, margins_of_sets
from omdml.metrics import Metric, SetMetric
from streams.protocols import Catalogue
from workers.lookup import Located, elements

Array = NDArray[Any]
WINDOW = 256  # events kept, the newest
SETS = 64  # of these that judge sets are compared on, the newest: each holds many elements
COMPARISONS = 8  # kept of an event at most, evenly chosen


class HeldEvent(msgspec.Struct, frozen=True, array_like=True):
    """One event that was not learned: row numbers of its comparisons' items, or of a query's and of judged sets'."""

    rows: list[list[int]]
    relevant: int = 0  # of the sets
    similar: bool | None = None
    task: str | None = None


class HoldOut(msgspec.Struct):
    """Every so many events one is held back, by their order alone: a replay holds back the same.

    An event that brings vectors of its own is not held back, but the next one in its stead. So is a pair like the one
    held back before in its task, both similar or both not: in a log where they alternate every so many are alike.
    """

    every: int = 0  # one of so many; 0 holds back none
    since: int = 0  # accepted events after the last that was held back
    count: int = 0  # held back so far
    kept: list[HeldEvent] = []

    def split(self, located: Located, catalogue: Catalogue, tasks: Collection[str]) -> tuple[Located, frozenset[int]]:
        """Hold back what is due; answers the others, to be learned, and the offsets of what is not.

        Parameters
        ----------
        tasks
            Those of the learner: it refuses pairs of other ones, so these are left to it.
        """
        due = self._due(located.events.events, tasks) if self.every else []
        if not due:
            return located, frozenset()
        self.kept = [*self.kept, *(held_event(located, event, catalogue) for event in due)][-WINDOW:]
        self.count += len(due)
        return located.without(due), frozenset(located.events.records[index].offset for index in due)

    def _due(self, events: Sequence[AnyFeedback], tasks: Collection[str]) -> list[int]:
        due: list[int] = []
        newest = {event.task: event.similar for event in self.kept}
        at = max(0, self.every - 1 - self.since)
        while at < len(events):
            task, similar = (getattr(events[at], name, None) for name in ("task", "similar"))
            told = similar is not None and newest.get(task) == similar
            if events[at].features is None and task in (None, *tasks) and not told:
                due.append(at)
                newest[task] = similar
                at += self.every
            else:
                at += 1
        self.since = len(events) - due[-1] - 1 if due else self.since + len(events)
        return due

    def margins(self, metric: Metric, features: Mapping[str, Array]) -> Array:
        """How clearly a metric gets what is kept right, event by event: in [-1, 1], above 0 is right.

        Pairs say something only together: each similar one is compared with a dissimilar one of its task.
        """
        if isinstance(metric, SetMetric):
            return margins_of_sets(metric, [judgement(event) for event in self.kept[-SETS:]], features)
        if any(event.similar is not None for event in self.kept):
            found = [margins(metric, rows, features, task) for task, rows in opposed(self.kept).items()]
            return np.concatenate([np.empty(0), *found])
        if not self.kept:
            return np.empty(0)
        each = margins(metric, np.concatenate([np.array(event.rows) for event in self.kept]), features)
        counts = [len(event.rows) for event in self.kept]
        return np.add.reduceat(each, np.cumsum([0, *counts[:-1]])) / counts


def held_event(located: Located, index: int, catalogue: Catalogue) -> HeldEvent:
    """An event as it is kept, its items by their rows in the catalogue."""
    event = located.events.events[index]
    if isinstance(event, SetJudgement):
        sets = [list(event.query), *(elements(event, name, catalogue) for name in (*event.relevant, *event.irrelevant))]
        return HeldEvent([catalogue.rows(members).tolist() for members in sets], len(event.relevant))
    rows = catalogue.rows(located.ids(index)).reshape(located.count(index), -1)
    chosen = rows[np.linspace(0, len(rows) - 1, min(len(rows), COMPARISONS)).astype(int)]
    return HeldEvent(chosen.tolist(), 0, getattr(event, "similar", None), getattr(event, "task", None))


def judgement(event: HeldEvent) -> Judgement:
    """What an event says of sets."""
    query, *sets = (np.array(members) for members in event.rows)
    return Judgement(query, tuple(sets[: event.relevant]), tuple(sets[event.relevant :]))


def opposed(kept: Sequence[HeldEvent]) -> dict[str | None, Array]:
    """Similar pairs with dissimilar ones (n, 4), the newest with the newest, by task."""
    pairs: dict[str | None, tuple[list[list[int]], list[list[int]]]] = {}
    for event in reversed(kept):
        pairs.setdefault(event.task, ([], []))[not event.similar].extend(event.rows)
    return {task: np.array([near + far for near, far in zip(*both, strict=False)], np.int64).reshape(-1, 4)
            for task, both in pairs.items()}  # fmt: skip
