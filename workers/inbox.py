"""Feedback that is posted to a node: checked at the door, then durable before it is acknowledged."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import structlog

from omdml.errors import FeedbackError, OmdmlError, SourceError
from omdml.feedback import AnyFeedback, Pair, Quadruplet, Ranking, SetJudgement, Triplet, decode, encode
from streams.catalogues.inline import scaled_item
from streams.protocols import Catalogue, Sink
from workers.intake import unknown_model
from workers.node_metrics import NodeMetrics

WAITING = 10_000  # requests whose events are not durable yet; more are turned away

_log = structlog.get_logger(__name__)


class Event(NamedTuple):
    """A checked event as it goes to the log."""

    payload: bytes
    model: str


class Delivery(NamedTuple):
    """The events of one request; ``done`` is set when they are durable, or failed."""

    events: Sequence[Event]
    done: Future[int]


class Inbox:
    """Takes events from any number of threads; one thread of its own writes them and makes them durable together.

    Parameters
    ----------
    catalogue
        The catalogue of a model, None where no such model is configured.
    """

    def __init__(self, sink: Sink, catalogue: Callable[[str], Catalogue | None], metrics: NodeMetrics) -> None:
        self._sink, self._catalogue, self._metrics = sink, catalogue, metrics
        self._waiting: queue.Queue[Delivery | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name="omdml-inbox", daemon=True)
        self._closed = False

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what waits, and let go of the sink."""
        self._closed = True
        if self._thread.ident is not None:
            self._waiting.put(None)
            self._thread.join()
        while not self._waiting.empty():  # put by a thread that had not seen that this closes
            late = self._waiting.get()
            if late:
                late.done.set_exception(stopping())
        self._sink.close()

    @property
    def alive(self) -> bool:
        """Whether events are being written."""
        return self._thread.is_alive()

    def check(self, payload: bytes, content_type: str = "application/json") -> Event:
        """The event in these bytes; raises FeedbackError, whose reasons are those of dead letters."""
        try:
            event = decode(payload, content_type)
            catalogue = self._catalogue(event.model)
            if catalogue is None:
                raise unknown_model(event.model)
            check_items(event, catalogue)
        except FeedbackError as error:
            self._metrics.refused.labels(error.reason).inc()
            raise
        return Event(encode(event), event.model)

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
            self._deliver([delivery for delivery in batch if delivery])

    def _deliver(self, batch: Sequence[Delivery]) -> None:
        """Send everything, make it durable once, then acknowledge each."""
        if not batch:
            return
        try:
            for delivery in batch:
                for event in delivery.events:
                    self._sink.send(event.payload, event.model)
            self._sink.flush()
        except Exception as error:
            known = error if isinstance(error, OmdmlError) else SourceError(f"the feedback log failed: {error!r}")
            _log.error("feedback_not_accepted", error=str(error), requests=len(batch))
            for delivery in batch:
                delivery.done.set_exception(known)
            return
        for delivery in batch:
            self._metrics.accepted.inc(len(delivery.events))
            delivery.done.set_result(len(delivery.events))


def stopping() -> SourceError:
    """The error for events that come too late."""
    return SourceError("this node is stopping: send the events to another one")


def items_of(event: AnyFeedback) -> list[str]:
    """Every item that an event names."""
    match event:
        case Triplet():
            return [event.query, event.relevant, event.irrelevant]
        case Ranking():
            return [event.query, *event.relevant, *event.irrelevant]
        case Pair():
            return [event.left, event.right]
        case Quadruplet():
            return [*event.near, *event.far]
        case SetJudgement():
            return [*event.query, *event.relevant, *event.irrelevant]


def check_items(event: AnyFeedback, catalogue: Catalogue) -> None:
    """Raise FeedbackError where an item is neither in the catalogue nor brought whole by the event."""
    brought = event.features or {}
    ids = [item for item in items_of(event) if item not in brought]
    rows = catalogue.rows(ids)
    if rows.size and rows.min() < 0:
        unknown = ids[int((rows < 0).argmax())]
        raise FeedbackError(
            f"item {unknown!r} is not in the catalogue of model {event.model!r}, and the event brings no vectors of it",
            reason="unknown_item",
        )
    for item, vectors in brought.items():
        scaled_item(catalogue, item, vectors)
