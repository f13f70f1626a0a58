"""What Prometheus sees of a node."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from omdml.errors import SourceError
from omdml.snapshot import Trail
from omdml.streams.memory_log import MemoryLog, MemorySink
from omdml.workers.node.metrics import REMEMBERED, NodeMetrics, RecentSwaps
from omdml.workers.node.writing import request_queue
from omdml.workers.node.writing.inbox import Event, Inbox
from omdml.workers.telemetry.registry import ModelLabels
from tests.support.shops import Shop, asking


def trail(version, events, age_s, now=None):
    now = now or time.time()
    return Trail(version, events, now - age_s, now - age_s / 2, now - age_s / 4)


def value(node, name, **labels):
    return node.metrics.registry.get_sample_value(f"omdml_node_{name}", labels)


def publish_and_load(shop, node, *trails):
    shop.learn()
    shop.publish(trails=trails)
    node._refresher.refresh("shop")


def test_freshness_counts_the_events_of_publications_that_a_node_passed_over(tmp_path, monkeypatch):
    # However long the node takes here, for its metrics no time passes.
    now = time.time()
    monkeypatch.setattr("omdml.workers.node.metrics.time", SimpleNamespace(time=lambda: now))
    shop = Shop(tmp_path)
    shop.publish()
    node = shop.node()
    node.view("shop")
    # Versions 20 and 40 were published while the node was away; it knew none of them.
    publish_and_load(shop, node, trail(10, 3, 40.0, now), trail(20, 2, 0.5, now))
    assert value(node, "freshness_seconds_count", model="shop") == 5
    assert value(node, "freshness_seconds_bucket", model="shop", le="1.0") == 2
    assert value(node, "freshness_seconds_bucket", model="shop", le="60.0") == 5
    assert node.metrics.freshness("shop")["p99_s"] == pytest.approx(40.0)
    # Publications that it has counted are not counted again.
    publish_and_load(shop, node, trail(10, 3, 40.0, now), trail(20, 2, 0.5, now), trail(40, 1, 0.1, now))
    assert value(node, "freshness_seconds_count", model="shop") == 6
    for stage in ("log", "learn", "publish", "fetch", "swap"):
        assert value(node, "event_stage_seconds_count", stage=stage) == 3
    node.close()


def test_freshness_covers_a_new_model_from_its_first_click_on():
    metrics, before = NodeMetrics(CollectorRegistry(), ModelLabels(["shop"], 10)), None
    # In half a minute a worker publishes up to 1,875 versions. The first thirty were slow.
    for version in range(1875):
        trails = (trail(version, 1, 5.0 if version < 30 else 0.02),)
        snapshot = SimpleNamespace(version=version, trails=trails, oldest_event_time=None)
        view = SimpleNamespace(snapshot=snapshot, pointer=SimpleNamespace(published_at=time.time()), made_at=1.0)
        metrics.swapped("shop", before, view, 0.0)
        before = view
    assert metrics.freshness("shop")["count"] == 1874
    assert metrics.freshness("shop")["p99_s"] > 4


def test_freshness_is_that_of_the_last_swaps_alone():
    swaps = RecentSwaps()
    for number in range(REMEMBERED + 5):
        swaps.add(float(number), 1.0 if number < 5 else 0.1)
    assert swaps.after(-1.0).tolist() == [0.1] * REMEMBERED
    assert swaps.after(REMEMBERED + 2.0).tolist() == [0.1, 0.1]
    assert swaps.after(1e9).tolist() == []


def test_events_from_the_future_are_counted_and_not_hidden(tmp_path):
    shop = Shop(tmp_path)
    shop.publish()
    node = shop.node()
    node.view("shop")
    publish_and_load(shop, node, trail(20, 4, -30.0))
    assert value(node, "events_from_future_total", model="shop") == 4
    node.close()


def test_series_are_there_before_anything_happened(tmp_path):
    node = Shop(tmp_path).node(models=("shop", "user-*"))
    assert value(node, "searches_total", model="user-*", exact="false", via="bridge") == 0
    assert value(node, "snapshots_refused_total", reason="corrupt") == 0
    assert value(node, "feedback_events_total", outcome="failed") == 0
    assert value(node, "freshness_seconds_count", model="shop") == 0
    assert value(node, "loaded_models", model="user-*") == 0


def test_named_models_have_gauges_and_patterns_have_sums(tmp_path):
    shop = Shop(tmp_path, model="user-1")
    shop.publish()
    node = shop.node(models=("user-*",))
    node.view("user-1")
    assert value(node, "loaded_models", model="user-*") == 1
    assert value(node, "gallery_items", model="user-*") == 120
    assert value(node, "snapshot_version", model="user-*") is None
    named = Shop(tmp_path / "named")
    named.publish()
    other = named.node()
    other.view("shop")
    assert value(other, "snapshot_version", model="shop") == value(other, "pinned", model="shop") == 0
    assert value(other, "gallery_complete", model="shop") == 1
    assert value(other, "snapshot_timestamp_seconds", model="shop") == pytest.approx(time.time(), abs=60)
    node.close()
    other.close()


def test_a_follower_that_hangs_is_stale_and_its_last_poll_is_old(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    monkeypatch.setattr("omdml.workers.node.following.follow.OVERDUE_S", 0.05)
    with shop.serving() as node:
        go_on, hangs = threading.Event(), threading.Event()

        def hang(model):
            hangs.set()
            go_on.wait(10)

        with monkeypatch.context() as patch:
            patch.setattr(node._refresher, "refresh", hang)
            assert hangs.wait(10)
            polled = value(node, "last_poll_timestamp_seconds")
            time.sleep(0.2)
            assert value(node, "stale_seconds") >= 0.15
            assert value(node, "last_poll_timestamp_seconds") == polled > 0
        go_on.set()


def test_an_inbox_whose_write_hangs_is_not_alive(monkeypatch):
    class Hanging(MemorySink):
        def flush(self, timeout_s=30.0):
            begun.set()
            go_on.wait(10)

    begun, go_on = threading.Event(), threading.Event()
    metrics = NodeMetrics(CollectorRegistry(), ModelLabels(["shop"]))
    inbox = Inbox(Hanging(MemoryLog()), lambda event: None, metrics)
    inbox.start()
    inbox.put([Event(b"{}", "shop")])
    assert begun.wait(10)
    assert inbox.alive
    monkeypatch.setattr(request_queue, "STUCK_AFTER_S", 0.0)
    assert not inbox.alive
    value = metrics.registry.get_sample_value
    assert value("omdml_node_feedback_queue_requests") == 1
    go_on.set()
    inbox.close()
    assert value("omdml_node_feedback_queue_requests") == 0
    # Events that do not even get into the queue count as failed, too.
    with pytest.raises(SourceError):
        inbox.put([Event(b"{}", "shop")] * 3)
    assert value("omdml_node_feedback_events_total", {"outcome": "failed"}) == 3
    assert metrics.registry.get_sample_value("omdml_node_feedback_events_total", {"outcome": "accepted"}) == 1
    assert metrics.registry.get_sample_value("omdml_node_feedback_flush_seconds_count") == 1


def test_requests_are_counted_by_route_and_code_whatever_path_they_name(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving() as node, asking(node) as client:
        client.get("/search", params={"id": "i1"})
        client.get("/search", params={"id": "nobody"})
        client.get("/no/such/path")
        client.post("/models/shop/pin")
        client.delete("/search")
        client.delete("/items/i1")
        client.put("/items/nobody", json={"attributes": {"price": 1}})
        client.request("BREW", "/search")

        def count(**labels):
            return node.metrics.registry.get_sample_value("omdml_http_requests_total", labels)

        assert count(route="/search", method="GET", code="200") == 1
        assert count(route="/search", method="GET", code="404") == 1
        assert count(route="other", method="GET", code="404") == 1
        assert count(route="/models/{model}/pin", method="POST", code="403") == 1
        assert sum(count(route=route, method="DELETE", code="405") or 0 for route in ("other", "/search")) == 1
        assert count(route="/items/{id}", method="DELETE", code="400") == 1
        assert count(route="/items/{id}", method="PUT", code="404") == 1
        assert count(route="other", method="other", code="400") == 1
        page = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
        assert page.headers["content-type"].startswith("application/openmetrics-text")
        assert page.text.endswith("# EOF\n")
