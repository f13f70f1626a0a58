"""One owned model: its learner, and what of it is learned, published and saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import numpy as np
import structlog
from numpy.typing import NDArray

from omdml.errors import CatalogueError, FeedbackError
from omdml.evaluate import Prequential
from omdml.learners import Learner
from omdml.snapshot import Checkpoint, Snapshot
from streams.catalogues.inline import InlineTable
from streams.protocols import Catalogue, Partition
from workers.intake import Batch, Refusal

Array = NDArray[Any]
log = structlog.get_logger(__name__)
Timed = Callable[[str], AbstractContextManager[None]]  # counts the time inside to a stage


class OwnedModel:
    """A model this worker learns, from its claim until it is let go.

    ``next`` is the offset after the last event taken; events below it are skipped. ``epoch`` guards every write.
    """

    def __init__(self, name: str, learner: Learner, catalogue: Catalogue, epoch: str, configuration: str) -> None:
        self.name = name
        self.learner = learner
        self.catalogue = catalogue
        self.epoch = epoch
        self.configuration = configuration
        self.home: Partition | None = None
        self.next = 0
        self.prequential = Prequential()
        self.event_time: float | None = None
        self.oldest: float | None = None  # event time of the oldest event in no publication yet
        self.changed_at: float | None = None  # clock of the oldest change in no checkpoint yet
        self.published = -1  # version
        self.counted = {name: getattr(learner, name) for name in ("mistakes", "updates") if hasattr(learner, name)}

    def resume(self, checkpoint: Checkpoint) -> None:
        """Take on the position and the counts of a checkpoint (the learner is made from its state)."""
        self.home = Partition(*checkpoint.home)
        self.next = checkpoint.next
        self.event_time = checkpoint.event_time
        self.prequential = msgspec.convert(checkpoint.progress, Prequential)

    def take(self, batch: Batch, timed: Timed) -> list[Refusal]:
        """Learn a batch; answers the events that could not be learned, which changed nothing but ``next``."""
        with timed("look-up"):
            found, rows, features, refused = self._locate(batch)
        with timed("learn"):
            refused += self._learn(found, rows, features)
        self.next = batch.records[-1].offset + 1
        return refused

    def _locate(self, batch: Batch) -> tuple[Batch, Array, Mapping[str, Array], list[Refusal]]:
        """The events whose items are known, their rows (T, 3), and the table these point into: the catalogue's own, or
        a small one where an event brings vectors or names an unknown item."""
        rows = self.catalogue.rows(batch.ids)
        if rows.min(initial=0) < 0 and self._items_added():
            rows = self.catalogue.rows(batch.ids)
        if rows.min(initial=0) >= 0 and not batch.inline:
            return batch, rows.reshape(-1, 3), self.catalogue.features, []
        table, found, parts, refused = InlineTable(self.catalogue), Batch(), [], []
        for record, event, ids in batch.each():
            try:
                parts.append(table.add(event, ids))
                found.add(record, event, ids)
            except FeedbackError as error:
                refused.append(Refusal(record, error, self.name))
        return found, np.concatenate([np.empty(0, np.int64), *parts]).reshape(-1, 3), table.features, refused

    def _items_added(self) -> bool:
        """Whether the catalogue holds more items than when it was last looked at."""
        try:
            return self.catalogue.refresh() > 0
        except CatalogueError as error:
            log.warning("catalogue_not_refreshed", model=self.name, reason=str(error))
            return False

    def _learn(self, batch: Batch, rows: Array, features: Mapping[str, Array]) -> list[Refusal]:
        """Learn events in order, each whole or not at all."""
        refused: list[Refusal] = []
        ends = np.cumsum(batch.counts)
        first = begin = 0  # event, comparison
        while first < len(batch.records):
            try:
                self._learned(batch.times[first:], self.learner.learn_many(rows[begin:], features).scores)
                break
            except FeedbackError as error:
                if error.row is None:
                    raise
                bad = int(np.searchsorted(ends, begin + error.row, side="right"))
                if bad > first:
                    sound = rows[begin : ends[bad - 1]]
                    self._learned(batch.times[first:bad], self.learner.learn_many(sound, features).scores)
                refused.append(Refusal(batch.records[bad], error, self.name))
                first, begin = bad + 1, int(ends[bad])
        return refused

    def _learned(self, event_times: list[float | None], scores: Array) -> None:
        self.prequential.add(scores)
        times = [time for time in event_times if time is not None]
        if not times:
            return
        self.event_time = max(times) if self.event_time is None else max(self.event_time, *times)
        if self.learner.version > self.published:  # else a replay of what is live already
            self.oldest = min(times) if self.oldest is None else min(self.oldest, *times)

    def checkpoint(self, platform: str) -> Checkpoint:
        """Everything that resumes this model."""
        assert self.home is not None
        return Checkpoint(
            model=self.name,
            home=(self.home.topic_id, self.home.number),
            next=self.next,
            version=self.learner.version,
            generation=self.catalogue.generation,
            configuration=self.configuration,
            platform=platform,
            event_time=self.event_time,
            progress=msgspec.to_builtins(self.prequential),
            state=self.learner.to_bytes(),
        )

    def snapshot(self) -> Snapshot:
        """What nodes serve, as of now."""
        return Snapshot(
            model=self.name,
            learner=self.learner.name,
            version=self.learner.version,
            generation=self.catalogue.generation,
            event_time=self.event_time,
            oldest_event_time=self.oldest,
            progress={
                "mistake_rate": self.prequential.mistake_rate,
                "recent_mistake_rate": self.prequential.recent_mistake_rate,
            },
            metric=self.learner.metric,
        )
