"""Events of several models that keep coming, from several senders, each event with a number of its own.

Most senders place events as the log's partitioner does. One sends without keys, one hashes otherwise: what of theirs
comes by another partition than its model's home is a dead letter.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from omdml.errors import SourceError
from omdml.feedback import Triplet, encode
from omdml.streams.protocols.log import Sink
from tests.support.worlds import triplets

# Events a second of all models, unless a run says otherwise.
RATE = 400
TICK_S, REST_S, SETTLE_S, FLUSH_S = 0.02, 60.0, 1.0, 30.0
# A sink reports with these words events that it gave up because Kafka was away too long. It then writes no others
# until it is asked about them.
GIVEN_UP = "could not be written"
# One turn in eight is a careless sender's.
CARELESS_EVERY = 8
# After this many events of all models, the same are sent again. An event that is sent twice counts as two.
DIFFERENT = 20_000


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
    in_parts
        Models whose events have keys of all kinds, so that they come by any partition.

    Attributes
    ----------
    careless
        As above; more may be added.
    sent
        How many so far; they carry the numbers from 0 on in the header ``number``.
    given_up
        Numbers of events that may be in the log or not: Kafka was away for so long that their sender gave them up.
    ahead_s
        How far in the future events claim to have happened, seconds.
    tick_s
        Seconds between two bursts of events.
    """

    tick_s = TICK_S

    def __init__(
        self,
        senders: Sequence[Sender],
        careless: Sequence[Sender],
        models: Sequence[str],
        rate: int = RATE,
        in_parts: Collection[str] = (),
    ) -> None:
        super().__init__()
        self._in_parts = in_parts
        self._a_tick = int(rate * self.tick_s)
        self._senders, self.careless, self._models = senders, careless, models
        self._triplets = [named(seed, DIFFERENT // len(models)) for seed in range(len(models))]
        self._enough, self._going, self._resting = threading.Event(), threading.Event(), threading.Event()
        self.sent, self.ahead_s = 0, 0.0
        self.given_up: set[int] = set()
        # By sink, the numbers of events whose fate is not known yet.
        self._unsettled: dict[Sink, list[int]] = defaultdict(list)
        self._going.set()
        self.start()

    def run(self) -> None:
        settled_at = time.monotonic()
        while not self._enough.wait(self.tick_s):
            if time.monotonic() - settled_at > SETTLE_S:
                for sink in list(self._unsettled):
                    with contextlib.suppress(SourceError):
                        self._settle(sink, 0.0)
                settled_at = time.monotonic()
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
        """Send no more; answers how many were sent. All but those that were ``given_up`` are acknowledged."""
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
        key = None if not sender.keyed else f"{model}-{self.sent}" if model in self._in_parts else model
        until_taken(lambda: sender.sink.send(event, key=key, headers=[("number", number)]))
        self._unsettled[sender.sink].append(self.sent)
        self.sent += 1

    def _flush(self) -> None:
        for sink in list(self._unsettled):
            until_taken(lambda sink=sink: self._settle(sink, FLUSH_S))

    def _settle(self, sink: Sink, timeout_s: float) -> None:
        """Ask what became of the events of a sink; raises SourceError if that is not known yet."""
        try:
            sink.flush(timeout_s)
        except SourceError as error:
            if GIVEN_UP not in str(error):
                raise
            self.given_up.update(self._unsettled[sink])
        self._unsettled[sink].clear()


def until_taken(action: Callable[[], None]) -> None:
    """Repeat an action while the log refuses it, as a click service that must lose no click does."""
    while True:
        try:
            return action()
        except SourceError:
            # A client that is refused leaves the log a moment before it tries again.
            time.sleep(0.1)


def named(seed: int, different: int) -> Iterator[list[str]]:
    """Triplets of items, without end: the same ``different`` ones again and again."""
    return itertools.cycle([[f"i{item}" for item in row] for row in triplets(different, seed).tolist()])
