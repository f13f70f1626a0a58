"""What Prometheus sees of a router."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry

from omdml.streams.protocols.log import Partition
from omdml.workers.telemetry.registry import STORE, Families

FATES = ("keyed", "keyless", "letter")


class RouterMetrics:
    """Counters and gauges of one router process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        new = Families("omdml_route", registry)
        self._events = new.counter(
            "events_total", "Events copied, with a key or without one, or made dead letters", fate=FATES
        )
        self._transactions = new.counter(
            "transactions_total",
            "Transactions that were committed, or failed and are repeated",
            outcome=["committed", "repeated"],
        )
        self._seconds = new.seconds("transaction", "Seconds to write one transaction", STORE)
        self._lag = new.gauge(
            "lag_offsets", "Offsets between what was routed and the end of the source topic", partition=()
        )
        self._waiting = new.gauge("waiting", "1 if routing waits for Kafka")
        self._owned: set[str] = set()

    def watch(self, connected: Callable[[], bool]) -> None:
        """Have every scrape ask whether the router waits for Kafka."""
        self._waiting.set_function(lambda: float(not connected()))

    def routed(self, fates: Mapping[str, int], seconds: float) -> None:
        """Count a committed transaction: its records by fate, and the seconds it took."""
        for fate, count in fates.items():
            self._events.labels(fate).inc(count)
        self._transactions.labels("committed").inc()
        self._seconds.observe(seconds)

    def repeated(self) -> None:
        """Count a transaction that failed. Its records are read again."""
        self._transactions.labels("repeated").inc()

    def behind(self, progress: Mapping[Partition, tuple[int, int]]) -> None:
        """Set the lag of each owned partition from its next offset and its end, and drop the lags of all others."""
        numbers = {str(partition.number) for partition in progress}
        for number in self._owned - numbers:
            self._lag.remove(number)
        self._owned = numbers
        for partition, (position, end) in progress.items():
            self._lag.labels(str(partition.number)).set(max(0, end - position))
