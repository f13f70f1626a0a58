"""Events that keep coming while a test breaks things."""

from __future__ import annotations

import threading

from omdml.errors import SourceError
from tests.support.worlds import events

# The most events that a load can send.
MOST = 200_000
# Each burst is one publication and one swap: more of them keep the processors busy and show nothing more.
BURST = 20


class Load(threading.Thread):
    """Sends twenty events, pauses, and so on until :meth:`end`, which returns how many; by default events of 1970."""

    def __init__(self, sink, payloads=None, pause_s=0.1):
        super().__init__()
        self.pause_s = pause_s
        self.sink, self.sent, self.enough = sink, 0, threading.Event()
        self.events = payloads or events(MOST)
        self.start()

    def run(self):
        while True:
            self.send_one()
            if self.sent % BURST == 0 and self.enough.wait(self.pause_s):
                break
        self.sink.flush(240)

    def send_one(self):
        """Send an event; try again while the log refuses it, as a click service that must lose no click does."""
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
