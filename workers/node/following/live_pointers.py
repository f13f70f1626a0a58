"""Which version a node answers with: the one that the store's pointer names, if it can be served."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import NamedTuple
from weakref import WeakValueDictionary

import structlog

from omdml.errors import CorruptError, OmdmlError, SnapshotGone, StoreError
from omdml.streams.protocols.store import Pointer, SnapshotStore
from omdml.workers.configuration.wording import STORE_FELL_BACK
from omdml.workers.node.following.first_views import FirstViews
from omdml.workers.node.following.hot_swap import LiveViews
from omdml.workers.node.metrics import NodeMetrics
from omdml.workers.node.view import View
from omdml.workers.versions.targets import readable, since_reset

# Older snapshots that a node tries to load if the newest is damaged.
OLDER_TRIED = 10

log = structlog.get_logger(__name__)


class RefusedSnapshot(NamedTuple):
    """A live snapshot that cannot be served, and why."""

    version: int
    digest: str
    reason: str


class Refresher:
    """Keeps the views of ``live`` at what the store points at. Any number of threads may use it.

    A model is refreshed by one thread at a time, so that its versions are swapped in in their order. No other model
    waits meanwhile, and no change of items: a large gallery takes seconds to embed.

    If the store lost its content or holds a snapshot that cannot be served, the last good view stays.

    Parameters
    ----------
    first
        What answers for models of which the store has nothing. None means that nothing answers for them.
    """

    def __init__(
        self, store: SnapshotStore, live: LiveViews, metrics: NodeMetrics, first: FirstViews | None = None
    ) -> None:
        self._store, self.live, self._metrics, self._first = store, live, metrics, first
        # A lock for each model that is being refreshed or forgotten. A thread that holds it may take ``live.changing``,
        # but not the other way round.
        self._refreshing: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()
        # Monotonic time at which a model's view was what the store points at.
        self._confirmed: dict[str, float] = {}
        self._behind: set[str] = set()
        # Models whose pointer vanished: they were deleted, or the store was emptied.
        self._gone: set[str] = set()
        # For each model whose pointer in the store is behind what answers: this pointer, as it was last seen.
        self._fallen: dict[str, Pointer] = {}
        # What the store points at and cannot be served, by model; it was logged and counted once.
        self.refused: dict[str, RefusedSnapshot] = {}

    def stale_seconds(self) -> float:
        """Seconds since the most outdated view was up to date; 0 if all are."""
        since = [self._confirmed[model] for model in tuple(self._behind) if model in self._confirmed]
        return time.monotonic() - min(since) if since else 0.0

    def fall_behind(self, models: Iterable[str]) -> None:
        """Note that these models may be out of date."""
        self._behind.update(self.live.views.keys() & set(models))

    def fell_back(self) -> dict[str, int | None]:
        """Models for which the store is behind what answers, and the version it has; None if it has none."""
        fallen, gone = dict(self._fallen), set(self._gone)
        return {model: fallen[model].version if model in fallen else None for model in sorted(gone | fallen.keys())}

    def forget(self, model: str) -> None:
        """Drop a model's view, and free its memory."""
        with self._turn(model), self.live.changing:
            self.live.forget(model)
            self._confirmed.pop(model, None)
            self.refused.pop(model, None)
            self._behind.discard(model)
            self._gone.discard(model)
            self._fallen.pop(model, None)

    def refresh(self, model: str) -> View | None:
        """Make the model's view what the store points at, if that can be served. Return the view that answers now.

        Raises StoreError if the store is out of reach.
        """
        with self._turn(model):
            began = time.perf_counter()
            pointer = self._store.current(model)
            try:
                self._follow(model, pointer, began)
            except OmdmlError as error:
                if isinstance(error, StoreError) and not isinstance(error, SnapshotGone):
                    # An outage says nothing about the snapshot.
                    raise
                # It is damaged, gone, or not made for these items.
                self._refuse(model, pointer, error, began)
            return self.live.views.get(model)

    def refresh_if_loaded(self, model: str) -> None:
        """The same as :meth:`refresh`, unless the model was dropped meanwhile: it must not come back by itself."""
        with self._turn(model):
            if model in self.live.views:
                self.refresh(model)

    def _turn(self, model: str) -> threading.RLock:
        """The lock that a refresh of this model holds, so that only one runs at a time."""
        with self.live.changing:
            return self._refreshing.setdefault(model, threading.RLock())

    def _follow(self, model: str, pointer: Pointer | None, began: float) -> None:
        view = self.live.views.get(model)
        if pointer is None:
            # What was refused is not there any more.
            self.refused.pop(model, None)
        if self._first and pointer is None and view is None:
            self._first.prepare(model)
        elif self._first:
            self._first.drop(model)
        if pointer is None and view and self._store.store_id == view.pointer.store_id:
            log.warning("model_deleted", model=model, was=view.snapshot.version)
            self.forget(model)
            # The view is made before the step is added, because listeners that hear of the step search at once.
            if self._first:
                self._first.prepare(model)
            self.live.steps.add_deleted(model)
        elif pointer is None:
            self._keep_last_view(model)
        elif view and pointer == view.pointer:
            with self.live.changing:
                self.live.take_in(model, self.live.catalogues(model), began)
            # This comes last: if the items cannot be taken in, the refusal stays known, and is logged only once.
            self._confirm(model)
        elif view is None or follows(pointer, view.pointer, model in self._gone, self._fallen.get(model)):
            self._adopt(model, view, pointer, began)
        else:
            self._keep_last_view(model, pointer)

    def _adopt(self, model: str, view: View | None, pointer: Pointer, began: float) -> None:
        """Answer with the pointer's snapshot. Equal bytes only get the new pointer."""
        catalogue = self.live.catalogues(model)
        if view and view.pointer.snapshot == pointer.snapshot:
            self._confirm(model)
            self.live.point(model, pointer, began)
        elif loaded := self._store.load(model):
            new_view = self.live.view_of(model, *loaded, catalogue)
            self._confirm(model)
            self.live.swap(model, new_view, began)
        else:
            self._keep_last_view(model)

    def _keep_last_view(self, model: str, pointer: Pointer | None = None) -> None:
        """Keep the last good view, because the store lacks the version that answers. It is logged once."""
        if model not in self.live.views:
            return
        # An outage before this, which leaves the model behind too, must not keep it from being logged.
        was_logged = model in self._fallen or (pointer is None and model in self._gone)
        if pointer:
            self._fallen[model] = pointer
        else:
            self._gone.add(model)
        self._behind.add(model)
        if not was_logged:
            serving, in_store = self.live.views[model].snapshot.version, pointer.version if pointer else None
            log.warning("store_fell_back", model=model, serving=serving, store=in_store, hint=STORE_FELL_BACK)

    def _confirm(self, model: str) -> None:
        self._confirmed[model] = time.monotonic()
        self._behind.discard(model)
        self._gone.discard(model)
        self._fallen.pop(model, None)
        self.refused.pop(model, None)

    def _refuse(self, model: str, pointer: Pointer | None, error: OmdmlError, began: float) -> None:
        """Keep the last good view, or load an older snapshot if there is none. Logged once for each snapshot."""
        version, digest = pointer.snapshot if pointer else (-1, "")
        refusal = RefusedSnapshot(version, digest, str(error))
        earlier = self.refused.get(model)
        if model not in self.live.views and isinstance(error, CorruptError):
            self._serve_older(model, began)
        self.refused[model] = refusal
        self.fall_behind([model])
        if earlier is None or earlier.digest != refusal.digest:
            self._metrics.refused_snapshot(error.reason)
            serving = self.live.views[model].snapshot.version if model in self.live.views else None
            log.error("snapshot_refused", model=model, error=str(error), digest=refusal.digest, serving=serving)

    def _serve_older(self, model: str, began: float) -> None:
        """Answer with the newest earlier live snapshot that can be served, until the live one can be."""
        catalogue = self.live.catalogues(model)
        published = [line for line in since_reset(self._store.history(model)) if line["what"] == "published"]
        for line in published[: -OLDER_TRIED - 1 : -1]:
            loaded = readable(self._store, model, line)
            if loaded is None or loaded[1].generation != catalogue.generation:
                continue
            try:
                view = self.live.view_of(model, *loaded, catalogue)
            except CorruptError:
                continue
            self._confirm(model)
            self.live.swap(model, view, began)
            return


def follows(new: Pointer, served: Pointer, gone: bool, fallen: Pointer | None = None) -> bool:
    """Whether a node that answers with the pointer ``served`` goes on to the pointer ``new``.

    Within one store, serials tell the order. If the pointer was ``gone``, the model began again: any new one counts.

    A store that was restored from a copy, or a replica that took over, may be behind what is served; ``fallen`` is the
    pointer that it had then. The versions that workers learn there again must not lead the node back: it waits until
    they are as many as it serves. What an operator does there counts at once: a pin, or a move to a version before that
    of ``fallen`` (a rollback, a reset).
    """
    before = fallen or served
    moved = new.store_id == before.store_id and new.serial > before.serial
    if moved and (fallen is None or new.version < fallen.version):
        return True
    if gone and new.store_id == served.store_id:
        return True
    return new.version >= served.version or new.pinned
