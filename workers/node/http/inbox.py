"""Feedback that is posted to a node: checked at the door, then durable before it is acknowledged."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import structlog

from omdml.errors import FeedbackError, OmdmlError, SourceError
from omdml.feedback import MESSAGEPACK, AnyFeedback, decode
from omdml.streams.protocols import Sink
from omdml.workers.node.metrics import NodeMetrics
from omdml.workers.telemetry import traces

# Of one write: twice what a log may take to acknowledge.
STUCK_AFTER_S = 60.0
# Requests whose events are not durable yet. More are turned away.
WAITING = 10_000

_log = structlog.get_logger(__name__)


class Event(NamedTuple):
    """A checked event as it goes to the log, which is as it came: written anew it could be too large."""

    payload: bytes
    model: str
    headers: tuple[tuple[str, bytes], ...] = ()


def traced(events: Sequence[Event], context: str) -> Sequence[Event]:
    """The events with the trace context that workers and nodes go on with; as they are if there is none."""
    if not context:
        return events
    header = (traces.HEADER, context.encode())
    return [event._replace(headers=(*event.headers, header)) for event in events]


class Delivery(NamedTuple):
    """The events of one request; ``done`` is set when they are durable, or failed."""

    events: Sequence[Event]
    done: Future[int]


class Inbox:
    """Takes events from any number of threads; one thread of its own writes them and makes them durable together.

    Parameters
    ----------
    check
        Raises FeedbackError where no worker would learn an event.
    """

    def __init__(self, sink: Sink, check: Callable[[AnyFeedback], None], metrics: NodeMetrics) -> None:
        self._sink, self._check, self._metrics = sink, check, metrics
        self._waiting: queue.Queue[Delivery | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name="omdml-inbox", daemon=True)
        self._closed = False
        self._delivering_since: float | None = None  # monotonic
        metrics.queue.set_function(self._waiting.qsize)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what waits, and let go of the sink."""
        self._closed = True
        if self._thread.ident is not None:
            self._waiting.put(None)
            self._thread.join()
        # A thread that had not seen that this closes may have put some.
        while not self._waiting.empty():
            late = self._waiting.get()
            if late:
                late.done.set_exception(stopping())
        self._sink.close()

    @property
    def alive(self) -> bool:
        """Whether events are being written, and no write hangs."""
        begun = self._delivering_since
        return self._thread.is_alive() and (begun is None or time.monotonic() - begun < STUCK_AFTER_S)

    def check(self, payload: bytes, content_type: str = "application/json") -> Event:
        """The event in these bytes; raises FeedbackError, whose reasons are those of dead letters."""
        try:
            event = decode(payload, content_type)
            self._check(event)
        except FeedbackError as error:
            self._metrics.refused_event(error.reason)
            raise
        if content_type == MESSAGEPACK:
            return Event(payload, event.model, (("content-type", MESSAGEPACK.encode()),))
        return Event(payload.strip(), event.model)

    def put(self, events: Sequence[Event]) -> Future[int]:
        """Their number, as soon as all of them are durable; the future raises SourceError where they may not be.

        Raises SourceError where too many wait already.
        """
        done: Future[int] = Future()
        if self._closed:
            raise stopping()
        try:
            self._waiting.put_nowait(Delivery(events, done))
        except queue.Full:
            raise SourceError(f"{WAITING} requests wait for the feedback log: send the events again later") from None
        return done

    def _run(self) -> None:
        last = False
        while not last:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            last = None in batch
            if deliveries := [delivery for delivery in batch if delivery]:
                self._delivering_since = time.monotonic()
                with self._metrics.flush.time():
                    self._deliver(deliveries)
                self._delivering_since = None

    def _deliver(self, batch: Sequence[Delivery]) -> None:
        """Send everything, make it durable once, then acknowledge each."""
        try:
            for delivery in batch:
                for event in delivery.events:
                    self._sink.send(event.payload, event.model, event.headers)
            self._sink.flush()
        except Exception as error:
            known = error if isinstance(error, OmdmlError) else SourceError(f"the feedback log failed: {error!r}")
            _log.error("feedback_not_accepted", error=str(error), requests=len(batch))
            for delivery in batch:
                self._metrics.feedback.labels("failed").inc(len(delivery.events))
                delivery.done.set_exception(known)
            return
        for delivery in batch:
            self._metrics.feedback.labels("accepted").inc(len(delivery.events))
            delivery.done.set_result(len(delivery.events))


def stopping() -> SourceError:
    """The error for events that come too late."""
    return SourceError("this node is stopping: send the events to another one")
