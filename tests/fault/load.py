"""Events that keep coming while a test breaks things."""

from __future__ import annotations

import threading

from omdml.errors import SourceError
from tests.worlds import events

MOST = 200_000  # events a load can send


class Load(threading.Thread):
    """Sends some hundred events a second until :meth:`end`, which answers how many."""

    def __init__(self, sink):
        super().__init__()
        self.sink, self.sent, self.enough = sink, 0, threading.Event()
        self.start()

    def run(self):
        for event in events(MOST):
            self._send(event)
            self.sent += 1
            if self.sent % 20 == 0 and self.enough.wait(0.03):
                break
        self.sink.flush(60)

    def _send(self, event):
        """Again and again while the log refuses, as a click service that must not lose a click does."""
        while True:
            try:
                return self.sink.send(event, key="shop")
            except SourceError:
                self.enough.wait(0.1)

    def end(self):
        self.enough.set()
        self.join()
        return self.sent
