"""Events of several models that keep coming, from two senders at a time, each event with a number of its own."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from omdml.errors import SourceError
from omdml.feedback import Triplet, encode
from streams.protocols import Sink
from tests.worlds import triplets

RATE = 400  # events a second, of all models
TICK_S = 0.02
DIFFERENT = 5_000  # events of a model, then the same again: one sent twice is two events


class Load(threading.Thread):
    """Sends until :meth:`end`, the senders taking turns: whose events the log puts first is up to them.

    Attributes
    ----------
    sent
        How many so far; they carry the numbers from 0 on in the header ``number``.
    ahead_s
        How far in the future events claim to have happened, seconds.
    """

    def __init__(self, sinks: Sequence[Sink], models: Sequence[str]) -> None:
        super().__init__()
        self._sinks, self._models = sinks, models
        self._triplets = [named(seed) for seed in range(len(models))]
        self._enough = threading.Event()
        self.sent, self.ahead_s = 0, 0.0
        self.start()

    def run(self) -> None:
        while not self._enough.wait(TICK_S):
            for _ in range(int(RATE * TICK_S)):
                self._send_one()
        for sink in self._sinks:
            until_taken(sink.flush)

    def end(self) -> int:
        """Send no more; answers how many were sent, and acknowledged."""
        self._enough.set()
        self.join()
        return self.sent

    def _send_one(self) -> None:
        turn, which = divmod(self.sent, len(self._models))
        sink, model, number = self._sinks[turn % len(self._sinks)], self._models[which], str(self.sent).encode()
        query, relevant, irrelevant = next(self._triplets[which])
        at = time.time() + self.ahead_s
        event = encode(Triplet(model=model, query=query, relevant=relevant, irrelevant=irrelevant, at=at))
        until_taken(lambda: sink.send(event, key=model, headers=[("number", number)]))
        self.sent += 1


def until_taken(action: Callable[[], None]) -> None:
    """Do it again and again while the log refuses, as a click service that must not lose a click does."""
    while True:
        try:
            return action()
        except SourceError:
            time.sleep(0.1)


def named(seed: int) -> Iterator[list[str]]:
    """Triplets of items, without end."""
    return itertools.cycle([[f"i{item}" for item in row] for row in triplets(DIFFERENT, seed).tolist()])
