"""Brings each live version of a model to the readers of an index in a vector database.

The parts of a step, and what a kill means in each:

1. Compare the items, as the live version embeds them, with what readers see. If none moved further than the bound, only
   record the version. Nothing else is written, so a kill changes nothing.
2. Write the items that are further than the bound from the draft, in small committed batches, and remove items that are
   gone. Readers do not see the draft. After a kill the next process compares with the draft, and goes on from there.
3. Switch. Readers see the draft from one moment on. After a kill they see either it or the version before, and the next
   process finds out which.

Nothing is remembered outside the database, so nothing can contradict it.
"""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

import msgspec
import numpy as np
import structlog
from numpy.typing import NDArray

from omdml.errors import CatalogueError, CorruptError, OmdmlError, StoreError, StoreRefused
from omdml.streams.protocols.index import IndexAway, Indexed, IndexRefused, IndexRows, VectorIndex
from omdml.workers.configuration.wording import amount
from omdml.workers.operate.export.source import EmbeddedItems, LiveItems
from omdml.workers.operate.export.vectors import aligned, distances, matched, padded_to, spread, widened
from omdml.workers.operate.sync.metrics import SyncMetrics, SyncState
from omdml.workers.operate.sync.throttle import Throttle

# Seconds between two looks at the store, and after a failure.
LOOK_S, RETRY_S = 1.0, 5.0

log = structlog.get_logger(__name__)


class Changes(NamedTuple):
    """What to change in the draft or live side: places of the rows to write, and ids of the rows to remove."""

    written: NDArray[np.int64]
    removed: list[str]

    @property
    def rows(self) -> int:
        """How many rows change: those to write and those to remove."""
        return len(self.written) + len(self.removed)


class Synced(NamedTuple):
    """The result of a step: what readers see now, and how many rows were written and removed for it."""

    indexed: Indexed
    written: int
    removed: int
    switched: bool


class Syncer:
    """Keeps an index equal to what a model's nodes answer with.

    It needs memory for the embeddings of both sides and of the live version: three float32 arrays (n, width).

    Parameters
    ----------
    index
        The index to keep up to date.
    source
        The model's items.
    moved
        How far an item must move to be written, as a share of the items' root mean square distance from their mean.
    throttle
        Limits how fast rows are written.
    task
        The task in whose sense items are embedded, if the model has tasks.
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

        Raises IndexAway, IndexRefused, and whatever LiveItems.changed raises.
        """
        if (items := self._source.changed()) is None:
            self._metrics.checked()
            return None
        self._metrics.newest(items.snapshot.version)
        try:
            synced = self._bring(items)
        except BaseException:
            # It is not known what the index holds now, so the next step reads it again.
            self._forget()
            raise
        if synced is not None:
            self._source.done(items)
            self._metrics.brought("switched" if synced.switched else "unmoved")
            self._metrics.current(synced.indexed.version, synced.indexed.items)
            self._state.version = synced.indexed.version
        return synced

    def follow(self, stop: threading.Event, look_s: float = LOOK_S, retry_s: float = RETRY_S) -> None:
        """Keep the index up to date until ``stop``.

        Raises IndexRefused and StoreRefused, because waiting does not help then. Other failures are tried again.
        """
        while not stop.is_set():
            try:
                if synced := self.step():
                    log.info("sync_current", **fields_of(synced))
                self._state.waiting = ""
                stop.wait(look_s)
            except (IndexAway, StoreError, CatalogueError, CorruptError) as error:
                if isinstance(error, StoreRefused):
                    raise
                self._wait_for(error)
                stop.wait(retry_s)

    def _wait_for(self, error: OmdmlError) -> None:
        """Count a failure, and log its reason unless it is the same as before."""
        self._metrics.failed()
        if str(error) != self._state.waiting:
            self._state.waiting = str(error)
            log.warning("sync_waiting", reason=str(error), action="readers keep the version they have; trying again")

    def _forget(self) -> None:
        self._known: tuple[Indexed, IndexRows] | None = None
        self._draft: IndexRows | None = None

    def _bring(self, items: EmbeddedItems) -> Synced | None:
        live = self._known or self._index.live()
        if live and (live[0].model, live[0].task) != (items.snapshot.model, self._task):
            raise IndexRefused(
                f"{self._index} holds model {live[0].model!r}, task {live[0].task}, not {items.snapshot.model!r}, "
                f"task {self._task}: choose another --name"
            )
        goal = goal_of(items, live and live[1])
        indexed = self._indexed(items, goal)
        if live:
            bound = indexed.bound
            if live[0].stands_for(indexed):
                # Readers have this version already. But the rotation depends on what the index holds, so writing the
                # version has turned it a little. A few items now lie just beyond the bound, and without this each
                # start would write them again.
                bound, indexed = math.inf, msgspec.structs.replace(indexed, bound=live[0].bound, moved=live[0].moved)
            changes = changes_of(goal, live[1], bound)
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
        # An index of two alternating sides goes on with the side that was live until now.
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

    def _indexed(self, items: EmbeddedItems, goal: IndexRows) -> Indexed:
        snapshot = items.snapshot
        return Indexed(
            model=snapshot.model, task=self._task, version=snapshot.version, serial=items.pointer.serial,
            digest=snapshot.digest, generation=snapshot.generation, items=len(goal.ids),
            width=goal.embedding.shape[1], moved=self._moved, bound=self._moved * spread(goal.embedding),
            rows=items.catalogue_rows,
            places=items.places,
        )  # fmt: skip


def goal_of(items: EmbeddedItems, live: IndexRows | None) -> IndexRows:
    """The items as readers will see them: at least as wide as the live side, and rotated as close to it as possible.

    Both sides are rotated to the live one, so an unfinished draft can be continued.
    """
    rows = items.rows
    embedding = widened(rows.embedding)
    if live is not None:
        width = max(embedding.shape[1], live.embedding.shape[1])
        rows_now, rows_live = matched(rows.ids, live.ids)
        embedding = aligned(rows.embedding, padded_to(width, live.embedding), rows_now, rows_live)
    return IndexRows(rows.ids, embedding, rows.attributes or [{}] * len(rows.ids))


def changes_of(goal: IndexRows, side: IndexRows, bound: float) -> Changes:
    """What must change in a side to become the goal.

    Items are written if they are new, are further than ``bound`` from their goal, or have other attributes. Items that
    are not in the goal are removed.
    """
    width = goal.embedding.shape[1]
    rows_goal, rows_side = matched(goal.ids, side.ids)
    far = np.ones(len(goal.ids), bool)
    far[rows_goal] = distances(goal.embedding, padded_to(width, side.embedding), rows_goal, rows_side) > bound
    pairs = zip(rows_goal.tolist(), rows_side.tolist(), strict=True)
    far[[row for row, before in pairs if goal.attributes[row] != side.attributes[before]]] = True
    return Changes(np.flatnonzero(far), sorted(set(side.ids) - set(goal.ids)))


def after(goal: IndexRows, side: IndexRows, changes: Changes) -> IndexRows:
    """What a side holds after the changes. Rows that did not move far stay as they were."""
    written = np.zeros(len(goal.ids), bool)
    written[changes.written] = True
    rows_goal, rows_side = matched(goal.ids, side.ids)
    stays = ~written[rows_goal]
    embedding = goal.embedding.copy()
    embedding[rows_goal[stays]] = side.embedding[rows_side[stays]]
    return IndexRows(goal.ids, embedding, goal.attributes)


def fields_of(synced: Synced) -> dict[str, object]:
    """The fields of the log line about a step."""
    indexed = synced.indexed
    return {
        "model": indexed.model, "version": indexed.version, "serial": indexed.serial, "items": indexed.items,
        "width": indexed.width, "written": synced.written, "removed": synced.removed, "switched": synced.switched,
    }  # fmt: skip


def sentence(synced: Synced) -> str:
    """Describe a step in one sentence."""
    indexed = synced.indexed
    if not synced.switched:
        what = "nothing moved far enough"
    else:
        what = f"{amount(synced.written, 'row')} written, {synced.removed:,} removed"
    shape = f"{amount(indexed.items, 'item')} of {indexed.width} numbers"
    return f"version {indexed.version:,}, serial {indexed.serial}: {what}, {shape}"
