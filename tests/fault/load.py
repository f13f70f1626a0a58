"""Events that keep coming while a test breaks things."""

from __future__ import annotations

import threading

from omdml.errors import SourceError
from tests.support.worlds import events

MOST = 200_000  # events a load can send


class Load(threading.Thread):
    """Sends some hundred events a second until :meth:`end`, which answers how many; by default of 1970."""

    def __init__(self, sink, made=None):
        super().__init__()
        self.sink, self.sent, self.enough = sink, 0, threading.Event()
        self.events = made or events(MOST)
        self.start()

    def run(self):
        while True:
            self.send_one()
            # A pause now and then keeps the load at what workers can follow.
            if self.sent % 20 == 0 and self.enough.wait(0.03):
                break
        self.sink.flush(240)

    def send_one(self):
        """Again and again while the log refuses, as a click service that must not lose a click does."""
        event = next(self.events)
        while True:
            try:
                self.sink.send(event, key="shop")
                break
            except SourceError:
                self.enough.wait(0.1)
        self.sent += 1
        return self.sent

    def end(self):
        self.enough.set()
        self.join()
        return self.sent
