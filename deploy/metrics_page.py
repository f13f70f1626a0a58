"""Writes deploy/METRICS.md: ``make pages`` runs it. Names, types, labels and meanings are the code's.

The column *What to do* is written by hand, in the page: it is taken over from there. A metric without it is printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from omdml.errors import CatalogueError
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.learning.measures import SINGLE
from omdml.workers.learning.metrics import WorkerMetrics
from omdml.workers.node.http.app import create_app
from omdml.workers.node.node import RetrievalNode
from omdml.workers.operate.sync.metrics import SyncMetrics
from omdml.workers.router.metrics import RouterMetrics
from omdml.workers.telemetry.registry import new_registry
from omdml.workers.telemetry.single_models import SingleModels
from omdml.workers.telemetry.store_times import timed
from omdml.workers.telemetry.webhook import Webhook

PAGE = Path(__file__).with_name("METRICS.md")
HEAD = """# Metrics

Each process serves its metrics at `GET /metrics`: workers at `worker.bind`, nodes at `node.bind`, routers and
`omdml sync` at `--bind`.

Series with known labels are there at 0 from the start, so `rate()` and `increase()` see the first event. If such a
series is missing, the process is down, or Prometheus does not scrape it.

The label `model` is a name or pattern of the configuration. The first `metrics.models` of them (100) have series of
their own; the others share the label `other`. Gauges about one model are there for models that are configured by name.
`GET /metrics/models` of workers and nodes shows single models under a pattern too: the first 1,000 by name that are in
memory, or those of `?model=NAME` (`*` stands for any letters). Scrape this path seldom, or ask it by hand: each model
has some ten series. [Concepts](../docs/concepts.md#glossary) explains words such as *bridge* and *reference*.

Times are in seconds, and timestamps in seconds since 1970. So `time() - omdml_worker_last_turn_timestamp_seconds` is
how long ago the last turn began. On Linux, every process has the client library's own `process_*`, `python_*` and
`python_gc_*` too.

In the last column, names that begin with `Omdml`, and titles in quotation marks, are sections of
[RUNBOOK.md](RUNBOOK.md).

If you change omdml: `make pages` writes this page from the code, except the last column, which is written by hand. A
test compares page and code.
"""
SECTIONS = {
    "worker": "Workers",
    "node": "Nodes",
    "worker_model": "Single models of a worker, at /metrics/models",
    "node_model": "Single models of a node, at /metrics/models",
    "http": "HTTP of nodes",
    "store": "The store, as workers and nodes see it",
    "route": "Routers",
    "sync": "omdml sync",
    "": "Every process",
}
# The most values of a label that the page names.
VALUES = 9


class Described(NamedTuple):
    """A metric, as a row of the page."""

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def section(self) -> str:
        """The section of the page, which is the kind of process; empty for all kinds."""
        first, second = self.name.split("_")[1:3]
        if f"{first}_{second}" in SECTIONS:
            return f"{first}_{second}"
        return first if first in SECTIONS else ""


def described() -> dict[str, Described]:
    """Every metric of ours, by name."""
    metrics: dict[str, Described] = {}
    for registry in registries():
        for collector in registry._collector_to_names:
            for metric in of_collector(collector):
                if metric.name.startswith("omdml_"):
                    metrics[metric.name] = metric
    return metrics


def registries() -> Iterator[CollectorRegistry]:
    """One of each kind of process."""
    worker = new_registry()
    timed(MemoryStore(), worker)
    WorkerMetrics(worker)
    Webhook("", 1.0, worker)
    yield worker
    yield SingleModels("worker", SINGLE).page()
    # If the log is in files, the lag has another unit.
    WorkerMetrics(bytes_registry := CollectorRegistry(), lag_unit="bytes")
    yield bytes_registry
    RouterMetrics(routers := CollectorRegistry())
    yield routers
    SyncMetrics(syncs := CollectorRegistry())
    yield syncs
    node = RetrievalNode(MemoryStore(), no_catalogue, [])
    create_app(node)
    yield node.metrics.registry
    yield node.metrics.single.page()


def no_catalogue(model: str) -> Catalogue:
    """A stand-in for the catalogue of a model; raises CatalogueError."""
    raise CatalogueError(f"model {model!r}: there is no catalogue")


def of_collector(collector: object) -> Iterator[Described]:
    """The metrics of a collector, described."""
    is_client_metric = isinstance(collector, MetricWrapperBase)
    for family in collector.collect():  # type: ignore[attr-defined] # a collector has no type of its own there
        metric = f"{family.name}_total" if family.type == "counter" else family.name
        names = getattr(collector if is_client_metric else family, "_labelnames", ())
        values = {label: sorted({sample.labels[label] for sample in family.samples if label in sample.labels})
                  for label in names}  # fmt: skip
        listed = {label for label, some in values.items() if 0 < len(some) <= VALUES} - set(OPEN)
        labels = tuple(f"`{name}`" + (f" ({', '.join(values[name])})" if name in listed else "") for name in names)
        yield Described(metric, family.type, labels, family.documentation)


# Labels whose values depend on the configuration, or on versions.
OPEN = ("model", "topic", "partition", "version", "python", "numpy", "numba", "kafka_python", "redis")


def advice(page: str) -> dict[str, str]:
    """The last column of a page, by name."""
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `omdml_")]
    return {cells[0].strip().strip("`"): cells[-1].strip() for cells in rows}


def page(metrics: dict[str, Described], what_to_do: dict[str, str]) -> str:
    """The text of the page, given the last column by name."""
    lines = [HEAD]
    for section, title in SECTIONS.items():
        lines += [f"## {title}\n", "| name | type | labels | meaning | what to do |", "|---|---|---|---|---|"]
        for metric in sorted(metric for metric in metrics.values() if metric.section == section):
            labels = ", ".join(metric.labels) or "none"
            todo = what_to_do.get(metric.name, "")
            lines.append(f"| `{metric.name}` | {metric.type} | {labels} | {metric.meaning} | {todo} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Write the page, and say what it lacks."""
    metrics, advice_by_name = described(), advice(PAGE.read_text()) if PAGE.exists() else {}
    PAGE.write_text(page(metrics, advice_by_name))
    for name in sorted(metrics):
        if not advice_by_name.get(name):
            print(f"{PAGE.name}: say what to do about {name}")


if __name__ == "__main__":
    main()
