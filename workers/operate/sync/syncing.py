"""Brings each live version of a model to the readers of an index in a vector database.

One step, and what a kill after each part of it means:

1. Compare the items, as the live version embeds them, with what readers see. If none moved further than the bound, only
   note the version. Nothing else is written.
2. Write to the draft what lies further from it than the bound, in small committed batches, and remove what is gone.
   Readers do not see the draft. The next process compares with what the draft holds, and goes on from there.
3. Switch. Readers see the draft from one moment on, or they still see the version before; the next process looks.

Nothing is remembered outside of the database, so nothing can contradict it.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

from omdml.errors import CatalogueError, CorruptError, OmdmlError, StoreError, StoreRefused
from omdml.streams.protocols.index import IndexAway, Indexed, IndexRefused, IndexRows, VectorIndex
from omdml.workers.operate.export.source import LiveItems, Look
from omdml.workers.operate.export.vectors import aligned, distances, matched, padded_to, spread, widened
from omdml.workers.operate.sync.metrics import SyncMetrics, SyncState
from omdml.workers.operate.sync.throttle import Throttle

# Between two looks at the store, and after a failure.
LOOK_S, RETRY_S = 1.0, 5.0

log = structlog.get_logger(__name__)


class Changes(NamedTuple):
    """What to do to a side: places of the rows to write, and ids of the rows to remove."""

    written: NDArray[np.int64]
    removed: list[str]

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.written) + len(self.removed)


class Synced(NamedTuple):
    """What a step came to: what readers see, and the rows that were written and removed for it."""

    indexed: Indexed
    written: int
    removed: int
    switched: bool


class Syncer:
    """Keeps an index equal to what a model's nodes answer with.

    It holds the embeddings of both sides and of the live version: three float32 (n, width).

    Parameters
    ----------
    index
        What is kept current.
    source
        The model's items.
    moved
        The bound, as a share of the items' root mean square distance from their mean.
    throttle
        How fast rows are written.
    task
        In whose sense, if the model has tasks.
    """

    def __init__(
        self,
        index: VectorIndex,
        source: LiveItems,
        moved: float,
        throttle: Throttle,
        metrics: SyncMetrics,
        state: SyncState,
        task: str | None = None,
    ) -> None:
        self._index, self._source, self._moved, self._task = index, source, moved, task
        self._throttle, self._metrics, self._state = throttle, metrics, state
        self._forget()

    def step(self) -> Synced | None:
        """Bring the live version to the readers; None if they have it, or the process was asked to stop.

        Raises IndexAway, IndexRefused, and whatever LiveItems.look raises.
        """
        if (look := self._source.look()) is None:
            self._metrics.checked()
            return None
        self._metrics.newest(look.snapshot.version)
        try:
            found = self._bring(look)
        except BaseException:
            # What the index holds now is asked again.
            self._forget()
            raise
        if found is not None:
            self._source.done(look)
            self._metrics.brought("switched" if found.switched else "unmoved")
            self._metrics.current(found.indexed.version, found.indexed.items)
            self._state.version = found.indexed.version
        return found

    def follow(self, stop: threading.Event, look_s: float = LOOK_S, retry_s: float = RETRY_S) -> None:
        """Keep the index current until ``stop``. Raises IndexRefused and StoreRefused: waiting does not help then."""
        while not stop.is_set():
            try:
                if found := self.step():
                    log.info("sync_current", **told(found))
                self._state.waiting = ""
                stop.wait(look_s)
            except (IndexAway, StoreError, CatalogueError, CorruptError) as error:
                if isinstance(error, StoreRefused):
                    raise
                self._wait_for(error)
                stop.wait(retry_s)

    def _wait_for(self, error: OmdmlError) -> None:
        """Say what keeps it waiting, once."""
        self._metrics.failed()
        if str(error) != self._state.waiting:
            self._state.waiting = str(error)
            log.warning("sync_waiting", reason=str(error), action="readers keep the version they have; trying again")

    def _forget(self) -> None:
        self._known: tuple[Indexed, IndexRows] | None = None
        self._draft: IndexRows | None = None

    def _bring(self, look: Look) -> Synced | None:
        live = self._known or self._index.live()
        if live and (live[0].model, live[0].task) != (look.snapshot.model, self._task):
            raise IndexRefused(
                f"{self._index} holds model {live[0].model!r}, task {live[0].task}, not {look.snapshot.model!r}, "
                f"task {self._task}: choose another --name"
            )
        goal = goal_of(look, live and live[1])
        indexed = self._indexed(look, goal)
        if live:
            changes = changes_of(goal, live[1], indexed.bound)
            if not changes.rows and live[0].width == indexed.width:
                if live[0] != indexed:
                    self._index.keep(indexed)
                self._known = indexed, live[1]
                return Synced(indexed, 0, 0, switched=False)
        draft = self._draft
        if draft is None or draft.embedding.shape[1] != indexed.width:
            draft = self._index.draft(indexed.width)
        changes = changes_of(goal, draft, indexed.bound)
        if not self._write(goal, changes):
            self._forget()
            return None
        self._index.switch(indexed)
        self._known = indexed, after(goal, draft, changes)
        self._draft = self._known[1] if not self._index.alternating else live and live[1]
        return Synced(indexed, len(changes.written), len(changes.removed), switched=True)

    def _write(self, goal: IndexRows, changes: Changes) -> bool:
        """Write and remove in batches; False if the process was asked to stop."""
        self._metrics.pending(changes.rows)
        log.info("sync_writing", rows=len(changes.written), removing=len(changes.removed), items=len(goal.ids))
        self._index.prepare(changes.rows, len(goal.ids))
        size = self._throttle.batch
        for start in range(0, len(changes.removed), size):
            ids = changes.removed[start : start + size]
            if not self._throttle.wait(len(ids)):
                return False
            self._index.remove(ids)
            self._metrics.wrote("removed", len(ids))
        for start in range(0, len(changes.written), size):
            places = changes.written[start : start + size]
            if not self._throttle.wait(len(places)):
                return False
            self._index.write(goal.chosen(places))
            self._metrics.wrote("written", len(places))
        return True

    def _indexed(self, look: Look, goal: IndexRows) -> Indexed:
        snapshot = look.snapshot
        return Indexed(
            model=snapshot.model, task=self._task, version=snapshot.version, serial=look.pointer.serial,
            digest=snapshot.digest, generation=snapshot.generation, items=len(goal.ids),
            width=goal.embedding.shape[1], moved=self._moved, bound=self._moved * spread(goal.embedding),
        )  # fmt: skip


def goal_of(look: Look, live: IndexRows | None) -> IndexRows:
    """The items as readers shall see them: as wide as what is live, or wider, and turned to lie as close to it as they
    can. Both sides are turned to the live one, so a draft that was left unfinished is gone on with."""
    rows = look.rows
    embedding = widened(rows.embedding)
    if live is not None:
        width = max(embedding.shape[1], live.embedding.shape[1])
        rows_now, rows_live = matched(rows.ids, live.ids)
        embedding = aligned(rows.embedding, padded_to(width, live.embedding), rows_now, rows_live)
    return IndexRows(rows.ids, embedding, rows.attributes or [{}] * len(rows.ids))


def changes_of(goal: IndexRows, side: IndexRows, bound: float) -> Changes:
    """What a side lacks: items that lie further than ``bound`` from their goal, new ones, other attributes, and items
    that are gone."""
    width = goal.embedding.shape[1]
    rows_goal, rows_side = matched(goal.ids, side.ids)
    far = np.ones(len(goal.ids), bool)
    far[rows_goal] = distances(goal.embedding, padded_to(width, side.embedding), rows_goal, rows_side) > bound
    pairs = zip(rows_goal.tolist(), rows_side.tolist(), strict=True)
    far[[row for row, before in pairs if goal.attributes[row] != side.attributes[before]]] = True
    return Changes(np.flatnonzero(far), sorted(set(side.ids) - set(goal.ids)))


def after(goal: IndexRows, side: IndexRows, changes: Changes) -> IndexRows:
    """What a side holds after the changes: rows that did not move far stay as they were."""
    written = np.zeros(len(goal.ids), bool)
    written[changes.written] = True
    rows_goal, rows_side = matched(goal.ids, side.ids)
    stays = ~written[rows_goal]
    embedding = goal.embedding.copy()
    embedding[rows_goal[stays]] = side.embedding[rows_side[stays]]
    return IndexRows(goal.ids, embedding, goal.attributes)


def told(synced: Synced) -> dict[str, object]:
    """A step as the fields of a log line."""
    indexed = synced.indexed
    return {
        "model": indexed.model, "version": indexed.version, "serial": indexed.serial, "items": indexed.items,
        "width": indexed.width, "written": synced.written, "removed": synced.removed, "switched": synced.switched,
    }  # fmt: skip


def sentence(synced: Synced) -> str:
    """A step in a sentence."""
    indexed = synced.indexed
    if not synced.switched:
        what = "nothing moved far enough"
    else:
        what = f"{synced.written:,} rows written, {synced.removed:,} removed"
    shape = f"{indexed.items:,} items of {indexed.width} numbers"
    return f"version {indexed.version:,}, serial {indexed.serial}: {what}, {shape}"
