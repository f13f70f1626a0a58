"""The metrics registry of every process, the buckets of durations, and bounded sets of labels."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from itertools import product
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from omdml.workers.telemetry.log_events import LogEvents

# Upper bounds of buckets, in seconds: of what happens inside a process, ...
FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
# ... of what goes to a store and back, or over all of a gallery, ...
STORE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# ... and from a click to an answer that knows it, whose goal is 0.1.
FRESH = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
OTHER = "other"
MODELS = 100

Family = TypeVar("Family", Counter, Gauge, Histogram)


class ModelLabels:
    """The values that the label ``model`` may have: names and patterns, ``limit`` of them, and ``other`` for the rest.

    Parameters
    ----------
    configured
        These come first, in their order.
    """

    def __init__(self, configured: Iterable[str] = (), limit: int = MODELS) -> None:
        self._limit = limit
        self._known: dict[str, None] = {}
        for label in configured:
            self.of(label)

    def of(self, label: str) -> str:
        """The value that stands for a name or pattern."""
        if label not in self._known:
            if len(self._known) >= self._limit:
                return OTHER
            self._known[label] = None
        return label

    def all(self) -> list[str]:
        """All values that are known so far."""
        return [*self._known, OTHER]


class Families:
    """Makes the metrics of one kind of process: their names begin with ``prefix``.

    A label is given with the values for which there is a series from the start, at zero: ``rate`` then sees the first
    event too. A label without such values is given as ``()``. The name of ``seconds`` gets its unit at the end.
    """

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        self._prefix, self._registry = prefix, registry

    def counter(self, name: str, text: str, /, **labels: Iterable[str]) -> Counter:
        return self._begun(Counter(f"{self._prefix}_{name}", text, labels, registry=self._registry), labels)

    def gauge(self, name: str, text: str, /, **labels: Iterable[str]) -> Gauge:
        return self._begun(Gauge(f"{self._prefix}_{name}", text, labels, registry=self._registry), labels)

    def seconds(self, name: str, text: str, buckets: tuple[float, ...], /, **labels: Iterable[str]) -> Histogram:
        name = f"{self._prefix}_{name}_seconds"
        return self._begun(Histogram(name, text, labels, buckets=buckets, registry=self._registry), labels)

    @staticmethod
    def _begun(family: Family, labels: Mapping[str, Iterable[str]]) -> Family:
        return at_zero(family, *labels.values()) if labels else family


def at_zero(family: Family, *values: Iterable[str]) -> Family:
    """The same metric, with a series at zero for all of these label values."""
    for labels in product(*values):
        family.labels(*labels)
    return family


def new_registry() -> CollectorRegistry:
    """A registry with metrics of the process, its Python, its software, and the lines of its log."""
    # Otherwise each metric of the process would have one more sample: when it was made, which nobody reads.
    disable_created_metrics()  # type: ignore[no-untyped-call] # as the library has it
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    registry.register(LogEvents())
    versions = {"version": version("omdml"), "python": platform.python_version()}
    versions |= {name: version(name) for name in ("numpy", "numba", "kafka-python", "redis")}
    labels = [name.replace("-", "_") for name in versions]
    build = Gauge("omdml_build_info", "Versions of the software that runs, always 1", labels, registry=registry)
    build.labels(*versions.values()).set(1)
    return registry
