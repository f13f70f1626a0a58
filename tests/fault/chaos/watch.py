"""Who looks at versions all the time: how long they stood still, and whether any went back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from omdml.errors import StoreError
from omdml.streams.protocols.store import Store
from tests.fault.asking import version_served

LOOK_EVERY_S = 0.01
Look = Callable[[str], int | None]


class Watch(threading.Thread):
    """Looks at every model in turn until :meth:`end`.

    Parameters
    ----------
    look
        Answers the version of a model, None if there is no answer.
    moving
        Whether only another version is a sign of life, not just any answer.

    Attributes
    ----------
    longest_s
        The longest time that a model gave no sign of life, seconds.
    back
        What went back, a sentence each.
    look_every_s
        Seconds between two looks at all models.
    """

    look_every_s = LOOK_EVERY_S

    def __init__(self, look: Look, models: Sequence[str], moving: bool) -> None:
        super().__init__()
        self._look, self._moving = look, moving
        self.longest_s, self.back = 0.0, list[str]()
        self.versions: dict[str, int | None] = dict.fromkeys(models)
        self._alive_at = dict.fromkeys(models, time.monotonic())
        self._enough = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._enough.wait(self.look_every_s):
            for model in self.versions:
                self._note(model, self._look(model))

    def end(self) -> None:
        self._enough.set()
        self.join()
        for model in self.versions:
            self._stood_still(model, time.monotonic())

    def _note(self, model: str, version: int | None) -> None:
        before, now = self.versions[model], time.monotonic()
        if version is None:
            return
        if before is not None and version < before:
            self.back.append(f"{model} went from version {before} back to {version}")
        if version != before or not self._moving:
            self._stood_still(model, now)
            self._alive_at[model] = now
        self.versions[model] = version

    def _stood_still(self, model: str, now: float) -> None:
        self.longest_s = max(self.longest_s, now - self._alive_at[model])


def learning(store: Store, models: Sequence[str]) -> Watch:
    """Watch the live version in the store: a time without a new version is a gap."""

    def live(model: str) -> int | None:
        try:
            pointer = store.current(model)
        except StoreError:
            return None
        return pointer.version if pointer else None

    return Watch(live, models, moving=True)


def serving(port: int, models: Sequence[str]) -> Watch:
    """Watch the answers of a node at this port of the loopback: a time without an answer is a gap."""
    return Watch(lambda model: version_served(port, model), models, moving=False)
