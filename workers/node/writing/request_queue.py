"""A queue of requests for one thread, which handles all requests that wait in one batch."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from omdml.errors import OmdmlError

# Requests that are not done yet. More are turned away.
WAITING = 10_000
# A batch that takes longer than this many seconds counts as stuck. A log may take half of that to acknowledge.
STUCK_AFTER_S = 60.0


class Request(Protocol):
    """A request in the queue. Whoever handles it sets ``done``."""

    @property
    def done(self) -> Future[Any]:
        """The future that holds the outcome."""


R = TypeVar("R", bound=Request)


class RequestQueue(Generic[R]):
    """Takes requests from any number of threads. One thread handles all that are in the queue as one batch.

    Parameters
    ----------
    name
        The name of the thread.
    handle
        Handles a batch of requests, and sets ``done`` of each. It must not raise.
    refused
        Makes the error for a request that cannot be taken, from the message for the client.
    size, most
        ``size`` of one request, and the most that a batch has in all. Later requests wait for the next batch.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[list[R]], None],
        refused: Callable[[str], OmdmlError],
        size: Callable[[R], int] = lambda request: 1,
        most: int = WAITING,
    ) -> None:
        self._handle, self._refused, self._size, self._most = handle, refused, size, most
        self._waiting: queue.Queue[R | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._closed = False
        # Monotonic time.
        self._busy_since: float | None = None
        self._in_hand = 0

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Finish the requests in the queue, then stop the thread. Later requests are refused."""
        self._closed = True
        if self._thread.ident is not None:
            self._waiting.put(None)
            self._thread.join()
        # A thread that had not yet seen the flag may have put a request into the queue.
        while not self._waiting.empty():
            late = self._waiting.get()
            if late:
                late.done.set_exception(self._stopping())

    @property
    def alive(self) -> bool:
        """Whether the thread runs and no batch hangs."""
        busy_since = self._busy_since
        return self._thread.is_alive() and (busy_since is None or time.monotonic() - busy_since < STUCK_AFTER_S)

    def waiting(self) -> int:
        """How many requests are not done yet: those in the queue, and those of the batch in hand."""
        return self._waiting.qsize() + self._in_hand

    def put(self, request: R) -> None:
        """Put a request into the queue; raises the error of ``refused`` if the queue is full."""
        if self._closed:
            raise self._stopping()
        # From now on the future cannot be cancelled. Otherwise the thread would fail when it sets ``done``, and end.
        request.done.set_running_or_notify_cancel()
        try:
            self._waiting.put_nowait(request)
        except queue.Full:
            raise self._refused(f"{WAITING} requests wait already: send this again later") from None

    def _stopping(self) -> OmdmlError:
        return self._refused("this node is stopping: send this to another one")

    def _run(self) -> None:
        last = False
        while not last:
            batch = [self._waiting.get()]
            while not self._waiting.empty() and sum(self._size(request) for request in batch if request) < self._most:
                batch.append(self._waiting.get())
            last = None in batch
            if requests := [request for request in batch if request]:
                self._busy_since, self._in_hand = time.monotonic(), len(requests)
                self._handle(requests)
                self._busy_since, self._in_hand = None, 0
