"""The memory of models that patterns cover: which ones a node drops when they hold too much."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from omdml.workers.node.following.live_pointers import Refresher


class PatternMemory:
    """Keeps the views of patterns' models within a budget of bytes. Models configured by name are never dropped."""

    def __init__(self, refresher: Refresher, named: Collection[str], budget_bytes: int) -> None:
        self._refresher, self._named = refresher, named
        self._budget_bytes = budget_bytes
        # Clock of the last search of each model.
        self._used_at: dict[str, float] = {}
        # Two threads that load models at once would count the same memory twice.
        self._counting = threading.Lock()

    def use(self, model: str) -> None:
        """Note that a model was searched now."""
        self._used_at[model] = time.monotonic()

    def make_room(self, newest: str) -> None:
        """Drop the models that were not searched for longest, until the others fit; never the newest one."""
        with self._counting:
            views = dict(self._refresher.live.views)
            # Models that the store no longer has are dropped without a word.
            for model in dict(self._used_at).keys() - views.keys():
                self._used_at.pop(model, None)
            sizes = {name: view.nbytes for name, view in views.items() if name not in self._named}
            for model in sorted(sizes, key=lambda name: self._used_at.get(name, 0.0)):
                if sum(sizes.values()) <= self._budget_bytes:
                    return
                if model != newest:
                    self._refresher.forget(model)
                    self._used_at.pop(model, None)
                    del sizes[model]
