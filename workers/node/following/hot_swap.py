"""The hot swap: a new version of a model is loaded, verified, and swapped in by replacing one reference."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import structlog

from omdml.errors import CorruptError, OmdmlError, SnapshotGone, StoreError
from omdml.snapshot import Snapshot
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.store import Pointer, SnapshotStore
from omdml.workers.configuration.wording import STORE_FELL_BACK
from omdml.workers.node.following.first_views import FirstViews
from omdml.workers.node.following.making_views import PATIENCE_S, bridged_view, embedded_view, grown_view
from omdml.workers.node.following.went_live import Steps
from omdml.workers.node.galleries.candidates import NO_CANDIDATES, CandidateIndex
from omdml.workers.node.galleries.indexing import is_index_due, with_cells
from omdml.workers.node.live_model import View
from omdml.workers.node.metrics import NodeMetrics
from omdml.workers.versions.targets import readable, since_reset

# Older snapshots that a node tries to load if the newest is damaged.
OLDER_TRIED = 10
# If more rows than this came to a large gallery, they are embedded in the background.
ROWS_AT_ONCE = 10_000
# Seconds between two lines of the log about new versions, whichever models they are of.
LOG_EVERY_S = 60.0

log = structlog.get_logger(__name__)


class RefusedSnapshot(NamedTuple):
    """A live snapshot that cannot be served, and why."""

    version: int
    digest: str
    reason: str


class Refresher:
    """Keeps ``views`` at what the store points at. Any number of threads may use it.

    A view is replaced whole, by one assignment: whoever took the one before goes on with it. If the store lost its
    content or holds a snapshot that cannot be served, the last good view stays. ``steps`` is what went live, and when.

    Parameters
    ----------
    catalogues
        The catalogue of a model; asked at every refresh, so that it may take in what changed. One object as long as it
        is one generation.
    label
        The name of a model in metrics.
    patience_s
        If embedding a gallery takes longer than this, a bridge answers under the new metric in the meantime.
    first
        What answers for models of which the store has nothing; None: nothing does.
    approximate
        Whether a model is answered from an approximate index, which is made in the background.
    candidates
        The indexes in vector databases that propose candidates, by model.
    """

    def __init__(
        self,
        store: SnapshotStore,
        catalogues: Callable[[str], Catalogue],
        metrics: NodeMetrics,
        label: Callable[[str], str],
        patience_s: float = PATIENCE_S,
        first: FirstViews | None = None,
        approximate: Callable[[str], bool] = lambda model: False,
        candidates: Mapping[str, CandidateIndex] = NO_CANDIDATES,
    ) -> None:
        self.views: dict[str, View] = {}
        self.steps = Steps(label)
        self._store, self._catalogues, self._metrics, self._label = store, catalogues, metrics, label
        self._patience_s = patience_s
        self._first, self._approximate, self._candidates = first, approximate, candidates
        # For writers only: two loads at once could swap in the wrong order.
        self._loading = threading.RLock()
        # Monotonic time at which a model's view was what the store points at.
        self._confirmed: dict[str, float] = {}
        self._behind: set[str] = set()
        # Models whose pointer vanished: they were deleted, or the store was emptied.
        self._gone: set[str] = set()
        # The store's pointer as it was last seen, of each model for which it is behind what answers.
        self._fallen: dict[str, Pointer] = {}
        # What the store points at and cannot be served, by model; it was logged and counted once.
        self.refused: dict[str, RefusedSnapshot] = {}
        self._embedder = ThreadPoolExecutor(1, thread_name_prefix="omdml-embed")
        self._embedding: set[str] = set()
        # When new versions were last logged, and how many came since then.
        self._logged_at, self._swaps_not_logged = float("-inf"), 0
        self._closed = False

    def close(self) -> None:
        """Stop embedding. Views stay as they are."""
        self._closed = True
        self._embedder.shutdown(cancel_futures=True)

    def stale_seconds(self) -> float:
        """Seconds since the most outdated view was up to date; 0 if all are."""
        since = [self._confirmed[model] for model in tuple(self._behind) if model in self._confirmed]
        return time.monotonic() - min(since) if since else 0.0

    def fall_behind(self, models: Iterable[str]) -> None:
        """Note that it is unknown which version of these models is live."""
        self._behind.update(self.views.keys() & set(models))

    def fell_back(self) -> dict[str, int | None]:
        """Models for which the store is behind what answers, and the version it has; None if it has none."""
        fallen, gone = dict(self._fallen), set(self._gone)
        return {model: fallen[model].version if model in fallen else None for model in sorted(gone | fallen.keys())}

    def forget(self, model: str) -> None:
        """Drop a model's view, and free its memory."""
        with self._loading:
            self.views.pop(model, None)
            self._confirmed.pop(model, None)
            self.refused.pop(model, None)
            self._behind.discard(model)
            self._gone.discard(model)
            self._fallen.pop(model, None)
            self.steps.forget(model)

    def refresh(self, model: str) -> View | None:
        """Make the model's view what the store points at, if that can be served; answer the view there is.

        Raises StoreError if the store is out of reach.
        """
        with self._loading:
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
            return self.views.get(model)

    def refresh_if_loaded(self, model: str) -> None:
        """The same as :meth:`refresh`, unless the model was dropped meanwhile: it must not come back by itself."""
        with self._loading:
            if model in self.views:
                self.refresh(model)

    def _follow(self, model: str, pointer: Pointer | None, began: float) -> None:
        view = self.views.get(model)
        if self._first and pointer is None and view is None:
            self._first.prepare(model)
        elif self._first:
            self._first.drop(model)
        if pointer is None and view and self._store.store_id == view.pointer.store_id:
            log.warning("model_deleted", model=model, was=view.snapshot.version)
            self.forget(model)
        elif pointer is None:
            self._keep_last_view(model)
        elif view and pointer == view.pointer:
            self._take_in(model, view, self._catalogues(model), began)
            # This comes last: if the items cannot be taken in, the refusal stays known, and is logged only once.
            self._confirm(model)
        elif view is None or follows(pointer, view.pointer, model in self._gone, self._fallen.get(model)):
            self._adopt(model, view, pointer, began)
        else:
            self._keep_last_view(model, pointer)

    def _keep_last_view(self, model: str, pointer: Pointer | None = None) -> None:
        """Keep the last good view, because the store lacks the version that answers. It is logged once."""
        if model not in self.views:
            return
        # An outage before this, which leaves the model behind too, must not keep it from being logged.
        known = model in self._fallen or (pointer is None and model in self._gone)
        if pointer:
            self._fallen[model] = pointer
        else:
            self._gone.add(model)
        self._behind.add(model)
        if not known:
            serving, has = self.views[model].snapshot.version, pointer.version if pointer else None
            log.warning("store_fell_back", model=model, serving=serving, store=has, hint=STORE_FELL_BACK)

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
        known = self.refused.get(model)
        if model not in self.views and isinstance(error, CorruptError):
            self._serve_older(model, began)
        self.refused[model] = refusal
        self.fall_behind([model])
        if known is None or known.digest != refusal.digest:
            self._metrics.refused_snapshot(error.reason)
            serving = self.views[model].snapshot.version if model in self.views else None
            log.error("snapshot_refused", model=model, error=str(error), digest=refusal.digest, serving=serving)

    def _serve_older(self, model: str, began: float) -> None:
        """Answer with the newest earlier live snapshot that can be served, until the live one can be."""
        catalogue = self._catalogues(model)
        published = [line for line in since_reset(self._store.history(model)) if line["what"] == "published"]
        for line in published[: -OLDER_TRIED - 1 : -1]:
            snapshot = readable(self._store, model, line)
            if snapshot is None or snapshot.generation != catalogue.generation:
                continue
            pointer = Pointer(
                serial=line["serial"],
                version=line["version"],
                digest=line["digest"],
                epoch=line["epoch"],
                published_at=line["at"],
                store_id=self._store.store_id,
            )
            try:
                view = self._embedded(model, pointer, snapshot, catalogue, None)
            except CorruptError:
                continue
            self._swap(model, None, view, began)
            return

    def _adopt(self, model: str, view: View | None, pointer: Pointer, began: float) -> None:
        """Swap in the pointer's snapshot, over a bridge if one is possible. Equal bytes only get the new pointer."""
        catalogue = self._catalogues(model)
        if view and view.pointer.snapshot == pointer.snapshot:
            self._swap(model, view, replace(view, pointer=pointer), began)
            return
        loaded = self._store.load(model)
        if loaded is None:
            self._keep_last_view(model)
            return
        bridge = view and bridged_view(view.complete, *loaded, catalogue)
        self._swap(model, view, bridge or self._embedded(model, *loaded, catalogue, view), began)
        if bridge:
            self._embed_later(model)

    def _embedded(
        self, model: str, pointer: Pointer, snapshot: Snapshot, catalogue: Catalogue, before: View | None
    ) -> View:
        """A view of a snapshot, over the model's index if it has one, else over its embedded gallery."""
        own = self._candidates.get(model)
        return embedded_view(pointer, snapshot, catalogue, before, self._patience_s, own)

    def _swap(self, model: str, before: View | None, view: View, began: float) -> None:
        self.views[model] = view
        self._index_later(model, view)
        took_s = time.perf_counter() - began
        self._metrics.swapped(self._label(model), before, view, took_s)
        self._confirm(model)
        if before is None or before.pointer != view.pointer:
            move = move_between(before.pointer, view.pointer) if before else "model_live"
            self.steps.add(move, model, before, view, took_s)
            self._log_move(move, model, before, view)

    def _log_move(self, move: str, model: str, before: View | None, view: View) -> None:
        """Log a move of what is served: an operator's at once, new versions of all models once a minute together."""
        fields = {
            "model": model,
            "version": view.snapshot.version,
            "before": before.snapshot.version if before else None,
        }
        if before is None or move != "new_version":
            log.info(move, **fields)
            return
        self._swaps_not_logged += 1
        if time.monotonic() - self._logged_at >= LOG_EVERY_S:
            log.info(move, **fields, swaps=self._swaps_not_logged)
            self._logged_at, self._swaps_not_logged = time.monotonic(), 0

    def take_in(self) -> None:
        """Let every view answer with its catalogue as it is now. All answers after the return know the changes.

        Raises CorruptError if a metric cannot embed what came.
        """
        with self._loading:
            for model, view in tuple(self.views.items()):
                self._take_in(model, view, view.catalogue, time.perf_counter(), at_once=True)

    def _take_in(self, model: str, view: View, catalogue: Catalogue, began: float, at_once: bool = False) -> None:
        """Search in the catalogue as it is now: items may have come or gone, or it may have been opened again.

        If very many items came, they are embedded in the background, unless they are to be searched in ``at_once``.
        """
        if view.covers(catalogue):
            return
        much = view.spread is not None and catalogue.shown.rows - view.count > ROWS_AT_ONCE
        grown = None if much and not at_once else grown_view(view, catalogue)
        if grown is not None:
            self.views[model] = grown
            self._index_later(model, grown)
        elif view.spread is not None:
            self._embed_later(model)
        else:
            self._swap(model, view, self._embedded(model, view.pointer, view.snapshot, catalogue, view), began)

    def _index_later(self, model: str, view: View) -> None:
        if self._needs_index(model, view):
            self._embed_later(model)

    def _needs_index(self, model: str, view: View) -> bool:
        """Whether an approximate index must be made: there is none, or too many rows came after it."""
        return self._approximate(model) and is_index_due(view)

    def _embed_later(self, model: str) -> None:
        if model not in self._embedding:
            self._embedding.add(model)
            self._embedder.submit(self._embed, model)

    def _embed(self, model: str) -> None:
        """Embed the gallery until its view is complete. Snapshots that come meanwhile get a bridge first."""
        try:
            while (view := self._view_to_embed(model)) is not None:
                catalogue = self._catalogues(model)
                made = embedded_view(view.pointer, view.snapshot, catalogue, view, self._patience_s)
                if self._needs_index(model, made):
                    made = with_cells(made)
                with self._loading:
                    self._swap_embedding(model, view, made)
        except Exception as error:
            # The next snapshot tries again.
            log.exception("embedding_failed", model=model, error=str(error))
            with self._loading:
                self._embedding.discard(model)

    def _view_to_embed(self, model: str) -> View | None:
        """The view to embed; None if there is nothing to do, and then this model's embedding ends."""
        with self._loading:
            view = self.views.get(model)
            complete = view is None or (
                view.origin is None and view.covers(self._catalogues(model)) and not self._needs_index(model, view)
            )
            if not complete and not self._closed:
                return view
            self._embedding.discard(model)
            return None

    def _swap_embedding(self, model: str, view: View, made: View) -> None:
        """Replace the embedding of the view that answers now by the finished one."""
        latest = self.views.get(model)
        if latest is None:
            return
        # Items may have come and gone since it was begun.
        made = grown_view(made, made.catalogue) or made
        if latest.snapshot is view.snapshot:
            self.views[model] = replace(made, pointer=latest.pointer)
            return
        bridged = bridged_view(made, latest.pointer, latest.snapshot, made.catalogue)
        if bridged:
            self.views[model] = bridged


def move_between(old: Pointer, new: Pointer) -> str:
    """What a move of a pointer is called in the log; all but ``new_version`` are an operator's."""
    if new.version < old.version:
        return "rolled_back"
    if new.pinned:
        return "pinned"
    return "unpinned" if old.pinned else "new_version"


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
