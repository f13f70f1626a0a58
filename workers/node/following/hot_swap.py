"""The hot swap: a new version of a model goes live by replacing one reference, and its gallery is embedded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog

from omdml.errors import CorruptError
from omdml.snapshot import Snapshot
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.store import Pointer
from omdml.workers.node.following.making_views import (
    PATIENCE_S,
    bridged_view,
    embedded_view,
    grown_view,
    prepare_trials,
    reranked_view,
)
from omdml.workers.node.following.went_live import Steps
from omdml.workers.node.galleries.candidates import NO_CANDIDATES, CandidateIndex
from omdml.workers.node.galleries.indexing import is_index_due, with_cells
from omdml.workers.node.metrics import NodeMetrics
from omdml.workers.node.view import View

# If more rows than this came to a large gallery, they are embedded in the background.
ROWS_AT_ONCE = 10_000

log = structlog.get_logger(__name__)


class LiveViews:
    """What answers for each model: ``views``. Any number of threads may use it.

    A view is replaced as a whole, by one assignment. A search that took the view before finishes with it. Code that
    replaces a view holds ``changing``, which is never held while a gallery is embedded for a new version. ``steps`` is
    what went live, and when.

    Parameters
    ----------
    catalogues
        Returns the catalogue of a model. It is called at every refresh, so that it can take in changes. It returns the
        same object as long as the catalogue is of the same generation.
    label
        The name of a model in metrics.
    patience_s
        If embedding a gallery takes longer than this, the old one helps to answer under the new metric in the meantime.
    approximate
        Whether a model is answered from an approximate index, which is made in the background.
    candidates
        The indexes in vector databases that propose candidates, by model.
    """

    def __init__(
        self,
        catalogues: Callable[[str], Catalogue],
        metrics: NodeMetrics,
        label: Callable[[str], str],
        patience_s: float = PATIENCE_S,
        approximate: Callable[[str], bool] = lambda model: False,
        candidates: Mapping[str, CandidateIndex] = NO_CANDIDATES,
    ) -> None:
        self.views: dict[str, View] = {}
        self.steps = Steps(label)
        self.changing = threading.RLock()
        self.catalogues = catalogues
        self._metrics, self._label, self._patience_s = metrics, label, patience_s
        self._approximate, self._candidates = approximate, candidates
        self._embedder = ThreadPoolExecutor(1, thread_name_prefix="omdml-embed")
        self._embedding: set[str] = set()
        # Version and digest of a snapshot of each model that answered early, until its metric could not embed an item.
        self._taken_back: dict[str, tuple[int, str]] = {}
        self._closed = False

    def close(self) -> None:
        """Stop embedding. Views stay as they are."""
        self._closed = True
        self._embedder.shutdown(cancel_futures=True)

    def view_of(self, model: str, pointer: Pointer, snapshot: Snapshot, catalogue: Catalogue) -> View:
        """A view of a new snapshot, from the gallery of an older one if that is possible."""
        before = self.views.get(model)
        if before and self._taken_back.get(model) != pointer.snapshot:
            early = early_view(before.complete, pointer, snapshot, catalogue)
            if early:
                return early
        return self._embedded(model, pointer, snapshot, catalogue)

    def _embedded(self, model: str, pointer: Pointer, snapshot: Snapshot, catalogue: Catalogue) -> View:
        """A view of a snapshot, over the model's index if it has one, otherwise over its embedded gallery."""
        own = self._candidates.get(model)
        return embedded_view(pointer, snapshot, catalogue, self.views.get(model), self._patience_s, own)

    def swap(self, model: str, view: View, began: float) -> None:
        """Answer with this view from now on. It was begun when ``time.perf_counter()`` was ``began``.

        Raises CorruptError if its metric cannot embed items that came since then.
        """
        with self.changing:
            # Items may have come or gone while the view was made without the lock.
            if not view.covers(view.catalogue):
                grown = grown_view(view, view.catalogue)
                view = grown or self._embedded(model, view.pointer, view.snapshot, view.catalogue)
            self._answer_with(model, view, began)

    def point(self, model: str, pointer: Pointer, began: float) -> None:
        """Answer under another pointer to the same snapshot."""
        with self.changing:
            self._answer_with(model, replace(self.views[model], pointer=pointer), began)

    def _answer_with(self, model: str, view: View, began: float) -> None:
        before = self.views.get(model)
        self.views[model] = view
        if view.origin is not None or self._needs_index(model, view):
            self._embed_later(model)
        took_s = time.perf_counter() - began
        self._metrics.swapped(self._label(model), before, view, took_s)
        if before is None or before.pointer != view.pointer:
            self.steps.add(model, before, view, took_s)

    def take_in_all(self) -> None:
        """Let every view answer with its catalogue as it is now. All answers after the return know the changes.

        Raises CorruptError if a metric cannot embed what came.
        """
        with self.changing:
            for model, view in tuple(self.views.items()):
                self.take_in(model, view.catalogue, time.perf_counter(), at_once=True)

    def take_in(self, model: str, catalogue: Catalogue, began: float, at_once: bool = False) -> None:
        """Search in the catalogue as it is now: items may have come or gone, or it may have been opened again.

        If very many items came, they are embedded in the background, unless they are to be searched in ``at_once``.
        """
        view = self.views[model]
        if view.covers(catalogue):
            return
        much = view.spread is not None and catalogue.shown.rows - view.count > ROWS_AT_ONCE
        grown = None if much and not at_once else grown_view(view, catalogue)
        # At best only the new rows are embedded, and the view goes on with them. Otherwise the whole gallery is
        # embedded again: in the background for views with a spread, whose embedding took long, and now for others.
        if grown is not None:
            self.views[model] = grown
            if self._needs_index(model, grown):
                self._embed_later(model)
        elif view.spread is not None:
            self._embed_later(model)
        else:
            self.swap(model, self._embedded(model, view.pointer, view.snapshot, catalogue), began)

    def _needs_index(self, model: str, view: View) -> bool:
        """Whether an approximate index must be made: there is none, or too many rows came after it."""
        return self._approximate(model) and is_index_due(view)

    def _embed_later(self, model: str) -> None:
        if model not in self._embedding:
            self._embedding.add(model)
            self._embedder.submit(self._embed, model)

    def _embed(self, model: str) -> None:
        """Embed the gallery until its view is complete. Snapshots that come meanwhile are answered early."""
        try:
            while (view := self._view_to_embed(model)) is not None:
                catalogue = self.catalogues(model)
                try:
                    made = embedded_view(view.pointer, view.snapshot, catalogue, view, self._patience_s)
                except CorruptError:
                    if view.origin is None:
                        raise
                    self._take_back(model, view)
                    continue
                if self._needs_index(model, made):
                    made = with_cells(made)
                prepare_trials(made)
                with self.changing:
                    self._swap_embedding(model, view, made)
        except Exception as error:
            # The next snapshot tries again.
            log.exception("embedding_failed", model=model, error=str(error))
            with self.changing:
                self._embedding.discard(model)

    def _view_to_embed(self, model: str) -> View | None:
        """The view to embed; None if there is nothing to do, and then this model's embedding ends."""
        with self.changing:
            view = self.views.get(model)
            complete = view is None or (
                view.origin is None and view.covers(self.catalogues(model)) and not self._needs_index(model, view)
            )
            if not complete and not self._closed:
                return view
            self._embedding.discard(model)
            return None

    def forget(self, model: str) -> None:
        """Drop all that is known of a model."""
        with self.changing:
            self.views.pop(model, None)
            self.steps.forget(model)
            self._taken_back.pop(model, None)

    def _take_back(self, model: str, view: View) -> None:
        """Answer with the version before this one, whose metric can embed the items that were tried, but not all.

        The next refresh of the model embeds all items first, and then refuses this version.
        """
        with self.changing:
            self._taken_back[model] = view.pointer.snapshot
            latest = self.views.get(model)
            if latest is not None and latest.snapshot is view.snapshot:
                self.swap(model, latest.complete, time.perf_counter())

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
        if latest.origin is None and not self._needs_index(model, latest):
            # A newer version was embedded as a whole in the meantime, because neither a proof nor candidates led to it.
            # So it already has everything that was made here.
            return
        early = early_view(made, latest.pointer, latest.snapshot, made.catalogue)
        # Exact answers are not given up for candidates.
        if early and (latest.reranked or not early.reranked):
            self.views[model] = early


def early_view(origin: View, pointer: Pointer, snapshot: Snapshot, catalogue: Catalogue) -> View | None:
    """A view of a new snapshot before its gallery is embedded; None if neither proof nor candidates lead there."""
    arguments = origin, pointer, snapshot, catalogue
    return bridged_view(*arguments) or reranked_view(*arguments)
