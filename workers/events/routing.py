"""Which model an event is for, without decoding all of it; and what Prometheus, probes and systemd see of a router."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from omdml.errors import FeedbackError
from omdml.feedback import MAX_EVENT_BYTES, MESSAGEPACK
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.configuration.model_names import MAX_NAME, check_name
from omdml.workers.events.decoding import JSON, content_type
from omdml.workers.telemetry.condition import STARTING, Condition
from omdml.workers.telemetry.registry import STORE, at_zero

# Without a turn of the loop: longer than the steps of a transaction take together before they are given up.
STUCK_AFTER_S = 60.0
FATES = ("keyed", "keyless", "letter")


class Named(msgspec.Struct, gc=False):
    """What a router reads of an event; a worker judges the rest."""

    model: str


_json = msgspec.json.Decoder(Named)
_messagepack = msgspec.msgpack.Decoder(Named)


def key_of(record: Record) -> bytes | None:
    """The name of a record's model, None if no worker could learn the event whatever model it is for."""
    if len(record.value) > MAX_EVENT_BYTES:
        return None
    kind = content_type(record.headers) if record.headers else JSON
    try:
        model = (_messagepack if kind == MESSAGEPACK else _json).decode(record.value).model
        name = model.encode()
        # Percent-encoding makes three bytes of one at most, and takes as long as all the rest here.
        if 3 * len(name) > MAX_NAME:
            check_name(model)
        return name or None
    except (msgspec.DecodeError, UnicodeError, RecursionError, FeedbackError):
        return None


class Routing(Protocol):
    """A router, as those see it who ask how it is."""

    turned_at: float | None

    @property
    def connected(self) -> bool:
        """Whether it routes what comes."""

    @property
    def stopping(self) -> bool:
        """Whether it was told to end."""


def condition(router: Routing, topic: str) -> Condition:
    """How a router into a topic is; asked from any thread."""
    if router.turned_at is None:
        return STARTING
    idle = time.monotonic() - router.turned_at
    alive = idle < STUCK_AFTER_S
    if not alive:
        status = f"stuck: the loop has not turned for {idle:.0f} s, restart this router"
    elif router.stopping:
        status = "draining: what was gathered is routed"
    elif not router.connected:
        status = "waiting for Kafka: nothing is routed, nothing is lost"
    else:
        status = f"routing into {topic}"
    ready = alive and router.connected and not router.stopping
    return Condition(started=True, alive=alive, ready=ready, stopping=router.stopping, status=status)


class RouterMetrics:
    """Counters and gauges of one router process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        events = Counter("omdml_route_events_total", "Events routed", ["fate"], registry=registry)
        self._events = at_zero(events, FATES)
        transactions = Counter("omdml_route_transactions_total", "Transactions", ["outcome"], registry=registry)
        self._transactions = at_zero(transactions, ["committed", "repeated"])
        self._seconds = Histogram(
            "omdml_route_transaction_seconds", "Writing one transaction", buckets=STORE, registry=registry
        )
        self._lag = Gauge(
            "omdml_route_lag_offsets", "Offsets to the end of the topic that is read", ["partition"], registry=registry
        )
        self._owned: set[str] = set()

    def routed(self, fates: Mapping[str, int], seconds: float) -> None:
        """One transaction is committed: so many records of each fate, written in so long."""
        for fate, count in fates.items():
            self._events.labels(fate).inc(count)
        self._transactions.labels("committed").inc()
        self._seconds.observe(seconds)

    def repeated(self) -> None:
        """One transaction failed; its records are read again."""
        self._transactions.labels("repeated").inc()

    def behind(self, progress: Mapping[Partition, tuple[int, int]]) -> None:
        """Note the next offset of each owned partition, and the end; how far others' are behind is theirs to say."""
        numbers = {str(partition.number) for partition in progress}
        for number in self._owned - numbers:
            self._lag.remove(number)
        self._owned = numbers
        for partition, (position, end) in progress.items():
            self._lag.labels(str(partition.number)).set(max(0, end - position))
