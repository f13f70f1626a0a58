"""From the ids in events to the input of a learner: rows of a table, and the other columns of comparisons."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

from omdml.comparisons import Judgement, weights
from omdml.errors import CatalogueError, FeedbackError
from omdml.feedback import AnyFeedback, Page, SetJudgement, kind_of
from omdml.learners import Learner
from omdml.streams.catalogues.inline import InlineTable, unknown_item
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.log import Record
from omdml.workers.events.decoding import Batch, Refusal, without_indices

Array = NDArray[Any]
# The rows of each comparison's items (comparisons, width), or a judgement for each event about sets.
Compared = Array | list[Judgement]
# The margin of an event that names none (MATHS 1).
MARGIN = 1.0
# Seconds between two looks at what changed in a catalogue.
FOLLOW_S = 1.0
log = structlog.get_logger(__name__)
# What was logged last of each catalogue that cannot be read, by its generation.
_logged: dict[str, str] = {}


class Located(NamedTuple):
    """Events whose items are known, as a learner takes them.

    ``columns`` are keywords of its ``learn_many``, with a value for each comparison. ``ends`` (events,) counts the
    comparisons up to and including each event. ``features`` is the table that rows point into.
    """

    events: Batch
    compared: Compared
    columns: Mapping[str, Array]
    ends: Array
    features: Mapping[str, Array]

    def learn(self, learner: Learner, first: int, stop: int) -> Array:
        """Learn the events from ``first`` up to ``stop``; returns the score of each of their comparisons."""
        span = slice(self._begin(first), self._begin(stop))
        columns = {name: column[span] for name, column in self.columns.items()}
        return learner.learn_many(self.compared[span], self.features, **columns).scores

    def event(self, first: int, row: int) -> int:
        """The event that a comparison belongs to; ``row`` counts from those of the event ``first``."""
        return int(np.searchsorted(self.ends, self._begin(first) + row, side="right"))

    def reaches(self, first: int, comparisons: int) -> int:
        """The index after the events, from ``first`` on, that together have at least this many comparisons."""
        return min(len(self.ends), int(np.searchsorted(self.ends, self._begin(first) + comparisons)) + 1)

    def count(self, event: int) -> int:
        """How many comparisons an event consists of."""
        return int(self.ends[event]) - self._begin(event)

    def without(self, events: Collection[int]) -> Located:
        """A copy that lacks these events."""
        dropped = sorted(events)
        rows = [row for event in dropped for row in range(self._begin(event), int(self.ends[event]))]
        compared = self.compared
        return Located(
            self.events.without(dropped),
            np.delete(compared, rows, 0) if isinstance(compared, np.ndarray) else without_indices(compared, rows),
            {name: np.delete(column, rows) for name, column in self.columns.items()},
            np.cumsum(np.delete(np.diff(self.ends, prepend=0), dropped)),
            self.features,
        )

    def _begin(self, event: int) -> int:
        return int(self.ends[event - 1]) if event else 0


class Lookup:
    """Finds what the events of one model name."""

    def __init__(self, model: str, learner: type[Learner], catalogue: Catalogue) -> None:
        self._model, self._learner, self._catalogue = model, learner, catalogue

    def locate(self, batch: Batch) -> tuple[Located, list[Refusal]]:
        """The events whose items are known, and the others.

        Rows point into the catalogue's own table, or into a small one if an event brings vectors, names an unknown
        item, or judges sets.
        """
        if self._learner.width and not batch.inline:
            return self._by_catalogue(batch)
        return self._by_own_table(batch)

    def _by_catalogue(self, batch: Batch) -> tuple[Located, list[Refusal]]:
        rows, refused = self._rows(batch.ids), list[Refusal]()
        if rows.min(initial=0) < 0:
            batch, rows = without_gone_results(batch, rows, self._learner.width)
            batch, rows, refused = self._without_unknown(batch, rows)
        return self._located(batch, rows.reshape(-1, self._learner.width), self._catalogue.features), refused

    def _by_own_table(self, batch: Batch) -> tuple[Located, list[Refusal]]:
        width = self._learner.width
        sets = {} if width else self._catalogue.sets
        # This also takes in what changed in the catalogue since the last look.
        rows = self._rows([name for name in batch.ids if name not in sets])
        if width and rows.min(initial=0) < 0:
            batch, _ = without_gone_results(batch, rows, width)
        table, located = InlineTable(self._catalogue), Batch()
        parts: list[Compared] = []
        refused: list[Refusal] = []
        for record, event, ids in batch.entries():
            try:
                parts.append(compared(event, ids, width, table, self._catalogue))
                located.add(record, event, ids)
            except FeedbackError as error:
                refused.append(self._refusal(record, event, error))
        return self._located(located, joined(parts, width), table.features), refused

    def _without_unknown(self, batch: Batch, rows: Array) -> tuple[Batch, Array, list[Refusal]]:
        """The events whose items all have rows, these rows (ids,), and the other events."""
        id_counts = np.array(batch.id_counts, np.int64)
        unknown = np.flatnonzero(rows < 0)
        event_of_id = np.repeat(np.arange(len(id_counts)), id_counts)
        events, first = np.unique(event_of_id[unknown], return_index=True)
        stay = np.ones(len(id_counts), bool)
        stay[events] = False
        refused = [
            self._refusal(batch.records[event], batch.events[event], unknown_item(self._catalogue, batch.ids[place]))
            for event, place in zip(events.tolist(), unknown[first].tolist(), strict=True)
        ]
        return batch.only(stay.tolist()), rows[np.repeat(stay, id_counts)], refused

    def _refusal(self, record: Record, event: AnyFeedback, error: FeedbackError) -> Refusal:
        return Refusal.of(record, error, self._model, kind_of(event))

    def _rows(self, ids: Sequence[str]) -> Array:
        """Row numbers, -1 for an item that the catalogue does not have even after a refresh.

        The catalogue is also refreshed every FOLLOW_S, so that changed and deleted items are noticed, too.
        """
        if time.monotonic() - self._catalogue.refreshed_at >= FOLLOW_S:
            self._refresh_catalogue()
        rows = self._catalogue.rows(ids)
        if rows.min(initial=0) < 0 and self._refresh_catalogue():
            rows = self._catalogue.rows(ids)
        return rows

    def _refresh_catalogue(self) -> bool:
        """Take in what changed in the catalogue. Returns whether items came."""
        try:
            added = self._catalogue.refresh() > 0
        except CatalogueError as error:
            if _logged.get(self._catalogue.generation) != str(error):
                _logged[self._catalogue.generation] = str(error)
                log.warning(
                    "catalogue_not_refreshed",
                    model=self._model,
                    reason=str(error),
                    action="goes on with the items that it has",
                    hint="do what the reason says; if the catalogue was built again, restart workers, then nodes",
                )
            return False
        _logged.pop(self._catalogue.generation, None)
        return added

    def _located(self, events: Batch, rows: Compared, features: Mapping[str, Array]) -> Located:
        id_counts = np.array(events.id_counts, np.int64)
        counts = id_counts // self._learner.width if self._learner.width else np.ones_like(id_counts)
        columns = {}
        for name in self._learner.columns:
            if name == "weight":
                columns[name] = np.repeat(weights(counts), counts)
            else:
                columns[name] = np.repeat([getattr(event, name, MARGIN) for event in events.events], counts)
        return Located(events, rows, columns, np.cumsum(counts), features)


def without_gone_results(batch: Batch, rows: Array, width: int) -> tuple[Batch, Array]:
    """The batch without the comparisons of a page that name an item without a row, and the rows of the others.

    Items of a page may be deleted before it is learned, and the others were still seen and clicked. A page of which
    nothing would be left stays as it is, and is refused for its unknown item.
    """
    stay = np.ones(len(rows), bool)
    id_counts, start = [], 0
    for event, count in zip(batch.events, batch.id_counts, strict=True):
        span = slice(start, start + count)
        if type(event) is Page and rows[span].min() < 0:
            stay[span] = learned_of_page(event, batch.ids[span], rows[span], width)
        id_counts.append(int(stay[span].sum()))
        start += count
    shortened = Batch()
    shortened.records, shortened.events, shortened.times = batch.records, batch.events, batch.times
    shortened.ids, shortened.id_counts = list(compress(batch.ids, stay)), id_counts
    return shortened, rows[stay]


def learned_of_page(page: Page, ids: Sequence[str], rows: Array, width: int) -> Array:
    """Which of the ids (n,) of a page's comparisons are learned: their items all have rows, or vectors of their own.

    If there is no such comparison, all are named.
    """
    own_vectors = page.features or {}
    has_vectors = (rows >= 0) | np.array([item in own_vectors for item in ids], bool)
    learned = has_vectors.reshape(-1, width).all(axis=1)
    return np.repeat(learned, width) if learned.any() else np.ones(len(ids), bool)


def compared(event: AnyFeedback, ids: list[str], width: int, table: InlineTable, catalogue: Catalogue) -> Compared:
    """The comparisons of one event, whose items are added to ``table``; raises FeedbackError for an unknown one."""
    if not isinstance(event, SetJudgement):
        return table.add(event, ids).reshape(-1, width)
    judged = [elements(event, name, catalogue) for name in (*event.relevant, *event.irrelevant)]
    parts = [list(event.query), *judged]
    rows = table.add(event, [item for part in parts for item in part])
    query, *sets = np.split(rows, np.cumsum([len(part) for part in parts])[:-1])
    count = len(event.relevant)
    return [Judgement(query, tuple(sets[:count]), tuple(sets[count:]))]


def elements(event: SetJudgement, name: str, catalogue: Catalogue) -> list[str]:
    """Ids of the items in a set; an item's own id stands for a set of one."""
    if name in (event.features or {}) or name not in catalogue.sets:
        return [name]
    return [catalogue.ids[row] for row in catalogue.sets[name].tolist()]


def joined(parts: list[Compared], width: int) -> Compared:
    """The comparisons of several events, one after another."""
    if not width:
        return [judgement for part in parts for judgement in part]
    return np.concatenate([np.empty((0, width), np.int64), *parts])
