"""Events of several models that keep coming, from several senders, each event with a number of its own.

Most senders place events as the log's partitioner does. One sends without keys, one hashes otherwise: what of theirs
comes by another partition than its model's home is a dead letter.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from omdml.errors import SourceError
from omdml.feedback import Triplet, encode
from omdml.streams.protocols.log import Sink
from tests.support.worlds import triplets

RATE = 400  # events a second, of all models, unless a run says otherwise
TICK_S, REST_S = 0.02, 60.0
CARELESS_EVERY = 8  # turns
DIFFERENT = 20_000  # events of all models, then the same again: one sent twice is two events


class Sender(NamedTuple):
    """Where events go, and whether they have a key."""

    sink: Sink
    keyed: bool = True


class Load(threading.Thread):
    """Sends until :meth:`end`, the senders taking turns: whose events the log puts first is up to them.

    Parameters
    ----------
    senders
        Most events come by these.
    careless
        Every :data:`CARELESS_EVERY` turns one of these sends instead.
    rate
        Events a second, of all models.

    Attributes
    ----------
    careless
        As above; more may be added.
    sent
        How many so far; they carry the numbers from 0 on in the header ``number``.
    ahead_s
        How far in the future events claim to have happened, seconds.
    """

    def __init__(
        self, senders: Sequence[Sender], careless: Sequence[Sender], models: Sequence[str], rate: int = RATE
    ) -> None:
        super().__init__()
        self._a_tick = int(rate * TICK_S)
        self._senders, self.careless, self._models = senders, careless, models
        self._triplets = [named(seed, DIFFERENT // len(models)) for seed in range(len(models))]
        self._enough, self._going, self._resting = threading.Event(), threading.Event(), threading.Event()
        self.sent, self.ahead_s = 0, 0.0
        self._going.set()
        self.start()

    def run(self) -> None:
        while not self._enough.wait(TICK_S):
            if not self._going.is_set():
                self._flush()
                self._resting.set()
                self._going.wait()
            for _ in range(self._a_tick):
                self._send_one()
        self._flush()

    def rest(self) -> None:
        """Send nothing more for now; returns when everything is acknowledged."""
        self._resting.clear()
        self._going.clear()
        assert self._resting.wait(REST_S), f"senders were not done within {REST_S} s"

    def go_on(self) -> None:
        """Go on sending after a pause."""
        self._going.set()

    def end(self) -> int:
        """Send no more; answers how many were sent, and acknowledged."""
        self._enough.set()
        self._going.set()
        self.join()
        return self.sent

    def _send_one(self) -> None:
        turn, which = divmod(self.sent, len(self._models))
        turns, careless = divmod(turn, CARELESS_EVERY)
        senders, turn = (self._senders, turn) if careless else (self.careless, turns)
        sender, model, number = senders[turn % len(senders)], self._models[which], str(self.sent).encode()
        query, relevant, irrelevant = next(self._triplets[which])
        moment = time.time() + self.ahead_s
        event = encode(Triplet(model=model, query=query, relevant=relevant, irrelevant=irrelevant, at=moment))
        key = model if sender.keyed else None
        until_taken(lambda: sender.sink.send(event, key=key, headers=[("number", number)]))
        self.sent += 1

    def _flush(self) -> None:
        for sender in (*self._senders, *self.careless):
            until_taken(sender.sink.flush)


def until_taken(action: Callable[[], None]) -> None:
    """Do it again and again while the log refuses, as a click service that must not lose a click does."""
    while True:
        try:
            return action()
        except SourceError:
            # A client that is refused leaves the log a moment before it tries again.
            time.sleep(0.1)


def named(seed: int, different: int) -> Iterator[list[str]]:
    """Triplets of items, without end."""
    return itertools.cycle([[f"i{item}" for item in row] for row in triplets(different, seed).tolist()])
