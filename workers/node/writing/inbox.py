"""Feedback that is posted to a node: checked at the door, then durable before it is acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import structlog

from omdml.errors import FeedbackError, OmdmlError, SourceError
from omdml.feedback import MESSAGEPACK, AnyFeedback, decode
from omdml.streams.protocols.log import Sink
from omdml.workers.events.unread_fields import UnreadFields
from omdml.workers.node.metrics import NodeMetrics
from omdml.workers.node.writing.request_queue import RequestQueue
from omdml.workers.telemetry import traces

log = structlog.get_logger(__name__)


class Event(NamedTuple):
    """A checked event with its original bytes, which go to the log: encoded again, they could be too many."""

    payload: bytes
    key: str | None
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
    """Takes events from any number of threads. One thread writes all waiting events and flushes them once.

    Parameters
    ----------
    check
        Raises FeedbackError if no worker would learn an event.
    in_parts
        Models that learn events on every partition: theirs are spread over all.
    """

    def __init__(
        self,
        sink: Sink,
        check: Callable[[AnyFeedback], None],
        metrics: NodeMetrics,
        in_parts: Collection[str] = (),
    ) -> None:
        self._sink, self._check, self._metrics, self._in_parts = sink, check, metrics, in_parts
        self._queue = RequestQueue("omdml-inbox", self._deliver, SourceError)
        self.start = self._queue.start
        metrics.queue.set_function(self._queue.waiting)

    def close(self) -> None:
        """Write the waiting events, then close the sink."""
        self._queue.close()
        self._sink.close()

    @property
    def alive(self) -> bool:
        """Whether events are being written, and no write hangs."""
        return self._queue.alive

    def check(self, payload: bytes, content_type: str, unread: UnreadFields) -> Event:
        """The event in these bytes, whose fields that nothing reads are added to ``unread``.

        Raises FeedbackError, whose reasons are those of dead letters.
        """
        try:
            event = decode(payload, content_type)
            self._check(event)
        except FeedbackError as error:
            self._metrics.refused_event(error.reason)
            raise
        unread.add(payload, event, content_type)
        # Only the part that learned an event recognises its id, so an event that is repeated goes to the same one.
        key = event.id if event.model in self._in_parts else event.model
        if content_type == MESSAGEPACK:
            return Event(payload, key, (("content-type", MESSAGEPACK.encode()),))
        return Event(payload.strip(), key)

    def put(self, events: Sequence[Event]) -> Future[int]:
        """Queue events; the future gives their number once all are durable, and raises SourceError if they may not be.

        Raises SourceError if too many wait already.
        """
        done: Future[int] = Future()
        try:
            self._queue.put(Delivery(events, done))
        except SourceError:
            self._metrics.feedback.labels("failed").inc(len(events))
            raise
        return done

    def _deliver(self, batch: Sequence[Delivery]) -> None:
        """Send everything, make it durable once, then acknowledge each."""
        try:
            with self._metrics.flush.time():
                # In one call, so that a log whose disk is full takes none of the events that are then refused.
                self._sink.send_many([event for delivery in batch for event in delivery.events])
                self._sink.flush()
        except Exception as error:
            refusal = error if isinstance(error, OmdmlError) else SourceError(f"the feedback log failed: {error!r}")
            action = "their senders get an error, and send again"
            log.error("feedback_not_accepted", error=str(error), requests=len(batch), action=action)
            for delivery in batch:
                self._metrics.feedback.labels("failed").inc(len(delivery.events))
                delivery.done.set_exception(refusal)
            return
        for delivery in batch:
            self._metrics.feedback.labels("accepted").inc(len(delivery.events))
            delivery.done.set_result(len(delivery.events))
