"""Views of stored versions that are not live, to compare versions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from omdml.errors import CorruptError
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.store import SnapshotStore
from omdml.workers.node.following.making_views import embedded_view
from omdml.workers.node.galleries.candidates import NO_CANDIDATES, CandidateIndex
from omdml.workers.node.searching.options import SearchError
from omdml.workers.node.view import View

# Views that are kept: one to look at, and one to compare it with.
KEPT = 2


class PastViews:
    """Views of kept versions, made when they are asked for, one at a time. Any number of threads may ask.

    Parameters
    ----------
    start
        Makes the view of a model before its first event; None if it cannot be made again. It answers for version 0
        if the store no longer keeps that.
    candidates
        The indexes in vector databases that propose candidates, by model.
    """

    def __init__(
        self,
        store: SnapshotStore,
        catalogues: Callable[[str], Catalogue],
        patience_s: float,
        start: Callable[[str], View | None] = lambda model: None,
        candidates: Mapping[str, CandidateIndex] = NO_CANDIDATES,
    ) -> None:
        self._candidates = candidates
        self._store, self._catalogues, self._patience_s, self._start = store, catalogues, patience_s, start
        self._making = threading.Lock()
        self._made: dict[tuple[str, int, str], View] = {}

    def view(self, model: str, version: int) -> View:
        """The view of a kept version, or of version 0.

        Raises SearchError: ``not_kept``, or ``unservable`` if its bytes are damaged or are of other items. Raises
        StoreError if the store is out of reach.
        """
        with self._making:
            loaded = self._store.load(model, version)
            if loaded is None and version == 0 and (start := self._start(model)) is not None:
                return start
            if loaded is None:
                message = f"model {model!r}: version {version} is not kept; GET /models/{model}/history says which are"
                raise SearchError(message, "not_kept")
            pointer, snapshot = loaded
            catalogue = self._catalogues(model)
            key = (model, version, pointer.digest)
            view = self._made.pop(key, None)
            if view is None or not view.covers(catalogue):
                try:
                    index = self._candidates.get(model)
                    view = embedded_view(pointer, snapshot, catalogue, view, self._patience_s, index)
                except CorruptError as error:
                    message = f"model {model!r}: version {version} cannot be served: {error}"
                    raise SearchError(message, "unservable") from error
            self._made[key] = view
            while len(self._made) > KEPT:
                del self._made[next(iter(self._made))]
            return view
