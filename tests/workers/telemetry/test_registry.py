"""What the metrics of every process hold, and how long its store takes."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from omdml.errors import StoreError
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.telemetry.registry import new_registry
from omdml.workers.telemetry.store_times import timed


def test_a_process_tells_of_itself_its_python_and_its_versions():
    page = generate_latest(new_registry()).decode()
    for name in ("process_resident_memory_bytes", "process_open_fds", "python_gc_collections_total", "python_info"):
        assert f"# TYPE {name} " in page
    (build,) = [line for line in page.splitlines() if line.startswith("omdml_build_info{")]
    assert 'numba="' in build
    assert build.endswith("} 1.0")


def test_no_metric_says_when_a_counter_was_created():
    registry = new_registry()
    Counter("omdml_some", "Some", registry=registry).inc()
    assert "_created" not in generate_latest(registry).decode()


def test_requests_to_the_store_are_timed_and_failures_counted():
    class Failing(MemoryStore):
        def marks(self, partitions):
            raise StoreError("away")

    registry = CollectorRegistry()
    value = registry.get_sample_value
    store = timed(Failing(), registry)
    assert value("omdml_store_request_seconds_count", {"op": "claim"}) == 0
    assert value("omdml_store_errors_total", {"op": "mark", "error": "store"}) == 0
    store.claim("shop")
    store.claim_all(["shop"])
    with pytest.raises(StoreError):
        store.marks([])
    assert value("omdml_store_request_seconds_count", {"op": "claim"}) == 2
    assert value("omdml_store_errors_total", {"op": "mark", "error": "store"}) == 1
    assert str(store) == str(Failing())
    assert store.models() == ["shop"]
