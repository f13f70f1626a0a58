"""What a model's history says beside the versions that go live: withheld versions, and drift. Listeners hear of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from omdml.streams.protocols.store import SnapshotStore
from omdml.workers.node.following.went_live import Remark, Steps

# Words of the history, and the words that listeners get instead.
WORDS = {"held": "withheld", "drift": "drift"}
# Seconds between two looks: a remark comes up to this much later. A look reads this many histories at most.
LOOK_S, AT_ONCE = 1.0, 20


class Remarks:
    """Looks into the history of models that the store hinted at, as long as somebody listens. One thread uses it."""

    def __init__(self, store: SnapshotStore, steps: Steps) -> None:
        self._store, self._steps = store, steps
        # In the order of their hints, so that each has its turn.
        self._hinted: dict[str, None] = {}
        # When the newest line of each model's history was written, by the store's clock.
        self._known: dict[str, float] = {}
        self._looked_at = -math.inf

    def look(self, hinted: Iterable[str]) -> None:
        """Look now and then at the models that were hinted at. Raises StoreError."""
        if not self._steps.has_listeners:
            self._hinted.clear()
            self._known.clear()
            return
        self._hinted.update(dict.fromkeys(hinted))
        if self._hinted and time.monotonic() - self._looked_at >= LOOK_S:
            self._looked_at = time.monotonic()
            for model in list(self._hinted)[:AT_ONCE]:
                self._tell_new(model)
                del self._hinted[model]

    def _tell_new(self, model: str) -> None:
        lines = self._store.history(model)
        if not lines:
            return
        newest = lines[-1]["at"]
        # Before the first look, one of the lines since the last turn was the reason for the hint.
        seen_until = self._known.get(model, newest - 2 * LOOK_S)
        self._known[model] = newest
        for line in lines:
            if line["at"] > seen_until and (what := WORDS.get(line["what"])):
                self._steps.remark(Remark(model, what, line["version"], line["at"], line["reason"]))
