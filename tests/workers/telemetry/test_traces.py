"""Trace contexts go from requests into records and metrics. OpenTelemetry is imported only if spans are asked for."""

from __future__ import annotations

import subprocess
import sys
import time

import httpx
import pytest
from prometheus_client.openmetrics.exposition import generate_latest

from omdml.snapshot import Trail
from omdml.workers.telemetry import traces
from tests.support.processes import ROOT
from tests.support.shops import Shop, asking
from tests.support.worlds import World, events, run_until_idle

TRACE, OTHER = "4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"
CONTEXT, OTHERS = f"00-{TRACE}-00f067aa0ba902b7-01", f"00-{OTHER}-00f067aa0ba902b7-00"


@pytest.mark.parametrize(
    ("header", "context"),
    [
        (CONTEXT, CONTEXT),
        (f"cc-{TRACE}-00f067aa0ba902b7-01-what-comes-later", CONTEXT),
        (f"00-{TRACE}-00f067aa0ba902b7-fd", CONTEXT),
        (f"{CONTEXT}-more", ""),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", ""),
        (CONTEXT.upper(), ""),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (f"cc-{TRACE}-00f067aa0ba902b7-01-{'x' * 1000}", ""),
        ("", ""),
    ],
)
def test_a_header_is_a_trace_context_or_is_passed_over(header, context):
    assert traces.context_of(header) == context


def test_records_of_others_may_hold_any_bytes_as_a_trace_context():
    assert traces.context_in([("traceparent", b"\xff\xfe")]) == ""
    assert traces.context_in([("number", b"1"), ("traceparent", CONTEXT.encode())]) == CONTEXT


@pytest.mark.parametrize(("brought", "kept"), [(CONTEXT, [("traceparent", CONTEXT.encode())]), ("nonsense", [])])
def test_the_trace_of_a_request_lies_in_the_records_of_its_events(tmp_path, brought, kept):
    shop = Shop(tmp_path)
    with shop.serving() as node, asking(node) as client:
        body = next(events(1))
        answer = client.post("/feedback", content=body, headers={"traceparent": brought})
        assert answer.status_code == httpx.codes.ACCEPTED, answer.text
    (record,) = shop.log.read(shop.log.partitions[0], 0, 10)
    assert list(record.headers) == kept


def test_a_publication_carries_the_trace_of_its_first_traced_event(tmp_path):
    world = World(tmp_path)
    payloads = list(events(4))
    world.log.send(payloads[0], "shop")
    world.log.send(payloads[1], "shop", [("traceparent", CONTEXT.encode())])
    world.log.send(payloads[2], "shop", [("traceparent", OTHERS.encode())])
    worker = world.worker()
    run_until_idle(worker)
    _, snapshot = world.store.load("shop")
    assert [trail.trace for trail in snapshot.trails] == [CONTEXT]
    text = generate_latest(worker.services.metrics.registry).decode()
    assert f'# {{trace_id="{TRACE}"}}' in text
    # An event without a trace does not inherit one.
    world.log.send(payloads[3], "shop")
    run_until_idle(worker)
    _, snapshot = world.store.load("shop")
    assert [trail.trace for trail in snapshot.trails][-1] == ""


def test_freshness_names_the_trace_in_the_openmetrics_format_alone(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving() as node, asking(node) as client:
        shop.learn()
        now = time.time()
        shop.publish(trails=(Trail(20, 3, now - 2, now - 1, now - 1, CONTEXT),))
        node._refresher.refresh("shop")
        text = client.get("/metrics", headers={"accept": "application/openmetrics-text"}).text
        named = {line.split("_bucket", 1)[0] for line in text.splitlines() if TRACE in line}
        assert named == {"omdml_node_freshness_seconds", "omdml_node_event_stage_seconds"}
        assert TRACE not in client.get("/metrics").text


def test_later_publications_keep_the_first_trace():
    first, second = Trail(1, 1, 1.0, 1.0, 1.0), Trail(2, 1, 2.0, 2.0, 2.0, CONTEXT)
    assert first.with_later(second).trace == CONTEXT
    assert second.with_later(Trail(3, 1, 3.0, 3.0, 3.0, OTHERS)).trace == CONTEXT


# The client of Redis looks for OpenTelemetry's meters by itself, if they are installed.
def test_opentelemetry_is_not_imported_unless_spans_are_asked_for():
    code = (
        "import sys; from omdml.workers import cli; from omdml.workers.wiring import node, worker;"
        "from omdml.workers.telemetry import traces;"
        "traces.start('omdml-node');"
        "assert traces.record_stage('x', '00-1', 0.0, 1.0) == '00-1';"
        "parts = 'opentelemetry.sdk.trace', 'opentelemetry.exporter';"
        "print([name for name in sys.modules if name.startswith(parts)])"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_spans_without_the_extra_are_reported_and_the_process_goes_on():
    code = (
        "import sys; sys.modules['opentelemetry'] = None; from omdml.workers.configuration import process;"
        "process.configure_log(); from omdml.workers.telemetry import traces; traces.start('omdml-node')"
    )
    environment = {
        "PYTHONPATH": str(ROOT),
        "PATH": "/usr/bin:/bin",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "event=spans_not_sent" in done.stderr
    assert "pip install 'omdml[otel]'" in done.stderr


def test_a_batch_without_traces_has_no_exemplar(tmp_path):
    world = World(tmp_path)
    world.send(*events(3))
    worker = world.worker()
    run_until_idle(worker)
    assert "trace_id" not in generate_latest(worker.services.metrics.registry).decode()
