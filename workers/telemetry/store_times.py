"""How long a store takes to answer, and how often it fails."""

from __future__ import annotations

import functools
import time
from typing import Any, cast

from prometheus_client import CollectorRegistry

from omdml.errors import OmdmlError
from omdml.streams.protocols.store import Store
from omdml.workers.telemetry.registry import STORE, Families

# The operation that a method of a store is counted as. Other methods are called seldom, or only if a person asks.
OPERATIONS = {
    "claim": "claim",
    "claim_all": "claim",
    "positions": "look",
    "peek": "look",
    "current": "look",
    "current_all": "look",
    "history": "look",
    "placement": "look",
    "group": "look",
    "save": "save",
    "save_all": "save",
    "replace": "save",
    "publish": "publish",
    "publish_all": "publish",
    "note": "publish",
    "load": "load",
    "marks": "mark",
    "move_mark": "mark",
}
ERRORS = ("store", "store_lost", "corrupt", "format", "fenced", "other")


class StoreTimes:
    """A store whose requests are timed. Otherwise it does what the store inside does."""

    def __init__(self, store: Store, registry: CollectorRegistry) -> None:
        new, operations = Families("omdml_store", registry), sorted({*OPERATIONS.values()})
        self._seconds = new.seconds("request", "Seconds of one request to the store", STORE, op=operations)
        self._errors = new.counter("errors_total", "Requests to the store that failed", op=operations, error=ERRORS)
        self._store = store

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._store, name)
        if name not in OPERATIONS:
            return member
        timed = functools.partial(self._call, OPERATIONS[name], member)
        setattr(self, name, timed)
        return timed

    def __str__(self) -> str:
        return str(self._store)

    def _call(self, operation: str, method: Any, *values: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        try:
            return method(*values, **options)
        except Exception as error:
            reason = error.reason if isinstance(error, OmdmlError) else "other"
            self._errors.labels(operation, reason if reason in ERRORS else "other").inc()
            raise
        finally:
            self._seconds.labels(operation).observe(time.perf_counter() - begin)


def timed(store: Store, registry: CollectorRegistry) -> Store:
    """Wrap a store, so that its calls are timed."""
    return cast(Store, StoreTimes(store, registry))
