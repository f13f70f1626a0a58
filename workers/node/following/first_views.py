"""Views that answer before a model's first snapshot, with the metric that it begins with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import msgspec
import structlog

from omdml.errors import OmdmlError
from omdml.snapshot import Snapshot
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.store import Pointer
from omdml.workers.node.following.making_views import PATIENCE_S, embedded_view
from omdml.workers.node.galleries.candidates import NO_CANDIDATES, CandidateIndex
from omdml.workers.node.searching.options import SearchError
from omdml.workers.node.view import View

# The pointer of a view of which nothing was published. Any pointer of the store is newer.
NOTHING = Pointer(serial=0, version=0, digest="", epoch="", published_at=0.0)

log = structlog.get_logger(__name__)


class FirstViews:
    """Views of version 0, made when they are asked for. Any number of threads may ask.

    The models of a pattern begin alike, so they share one gallery. None of them is kept by its own name: anybody may
    ask for any name that a pattern covers.

    Parameters
    ----------
    first
        The snapshot that a worker would publish of a model before its first event.
    catalogues
        The catalogue of a model.
    label
        The name or pattern that covers a model.
    named
        Models that are configured by name.
    parent
        The view of a model's parent, if it has one that answers.
    candidates
        The indexes in vector databases that propose candidates, by model.

    Attributes
    ----------
    ready
        Named models that answer with these views, because the store has nothing of them.
    """

    def __init__(
        self,
        first: Callable[[str], Snapshot],
        catalogues: Callable[[str], Catalogue],
        label: Callable[[str], str],
        named: Iterable[str],
        parent: Callable[[str], View | None] = lambda model: None,
        candidates: Mapping[str, CandidateIndex] = NO_CANDIDATES,
    ) -> None:
        self._parent, self._candidates = parent, candidates
        self._first, self._catalogues, self._label = first, catalogues, label
        self._named = frozenset(named)
        self._making = threading.Lock()
        self._made: dict[str, View] = {}
        self.ready: set[str] = set()
        # Named models that cannot begin; the log has said so.
        self._prepared_in_vain: set[str] = set()

    def view(self, model: str) -> View:
        """The view of a model that has learned nothing. Raises OmdmlError if the model cannot begin on its catalogue.

        It is its parent's view if the parent has learned something about the same items.
        """
        parent, generation = self._parent(model), self._catalogues(model).generation
        if parent and parent.snapshot.version and parent.snapshot.generation == generation:
            # A bridge leads on to answers under the parent's own name.
            parent = parent.complete
            first = msgspec.structs.replace(parent.snapshot, model=model, version=0)
            return replace(parent, pointer=NOTHING, snapshot=first, parent=parent.snapshot)
        snapshot, catalogue, label = self._first(model), self._catalogues(model), self._label(model)
        with self._making:
            view = self._made.get(label)
            if view is None or not view.covers(catalogue):
                index = self._candidates.get(model)
                view = self._made[label] = embedded_view(NOTHING, snapshot, catalogue, view, PATIENCE_S, index)
        return replace(view, snapshot=snapshot)

    def answering(self, model: str) -> View:
        """The same for a search: raises SearchError ``not_ready`` if the model cannot begin."""
        try:
            return self.view(model)
        except OmdmlError as error:
            raise SearchError(
                f"model {model!r} has learned nothing yet and cannot begin: {error}", "not_ready"
            ) from error

    def prepare(self, model: str) -> None:
        """Make the view of a model that is not in the store, if the model is configured by name."""
        if model not in self._named or model in self.ready:
            return
        try:
            self.view(model)
        except OmdmlError as error:
            if model not in self._prepared_in_vain:
                self._prepared_in_vain.add(model)
                hint = "correct the model's section or its catalogue, then restart the node"
                log.error("model_cannot_begin", model=model, reason=str(error), hint=hint)
            return
        self.ready.add(model)

    def drop(self, model: str) -> None:
        """Note that the store has something of this model, which answers from now on."""
        self.ready.discard(model)
