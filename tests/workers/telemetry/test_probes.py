"""What a worker answers to those who ask whether it is well."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from omdml.errors import StoreError
from omdml.workers.configuration.process import serve_metrics
from omdml.workers.telemetry import probes
from omdml.workers.telemetry.condition import START_LIMIT_S, STARTING, Condition, ConditionSource
from omdml.workers.telemetry.probes import serve_probes
from omdml.workers.telemetry.registry import new_registry
from tests.support.forks import ForkedProcess
from tests.support.processes import free_port, wait_for
from tests.support.worlds import World, catalogue, events, run_until_idle


@pytest.fixture
def facts():
    return ConditionSource()


@pytest.fixture
def client(facts):
    with httpx.Client(base_url=f"http://127.0.0.1:{serve_probes('127.0.0.1', 0, new_registry(), facts)}") as client:
        yield client


def asked(client):
    return client.get("/healthz").status_code, client.get("/readyz").status_code


def test_a_process_that_starts_is_alive_and_not_ready(client):
    assert asked(client) == (200, 503)
    assert client.get("/readyz").json() == {"error": "not_ready", "message": "starting"}
    assert "omdml_build_info{" in client.get("/metrics").text
    assert client.get("/").status_code == 404


def test_a_process_that_hangs_before_its_loop_begins_is_not_alive_for_ever(facts, client, monkeypatch):
    monkeypatch.setattr("omdml.workers.telemetry.condition.START_LIMIT_S", 0.0)
    assert asked(client) == (503, 503)
    assert client.get("/healthz").json() == {
        "error": "stuck",
        "message": "stuck: it has been starting for 0 s, restart it",
    }
    # A worker or router that has not started counts as stuck, too. Once it has, its own condition counts.
    facts.ask = lambda: STARTING
    assert asked(client) == (503, 503)
    facts.ask = lambda: STARTING._replace(started=True)
    assert asked(client) == (200, 503)


def test_a_start_that_hangs_is_seen_by_the_alert_for_stalled_loops(tmp_path):
    catalogue(tmp_path / "items")
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (tmp_path / "omdml.toml").write_text(
            f'[log]\nkind = "kafka"\nservers = "127.0.0.1:{silent.getsockname()[1]}"\ntopic = "t"\n'
            f'start_timeout_s = 600\n[store]\nurl = "dir:{tmp_path}/state"\n[catalogues.items]\npath = "items"\n'
            f'[models.shop]\nlearner = "lomdml"\nrank = 2\n[worker]\nbind = "127.0.0.1:{port}"\n'
        )
        worker = ForkedProcess(tmp_path, "worker", "--config", str(tmp_path / "omdml.toml"))

        def metrics():
            try:
                return httpx.get(f"http://127.0.0.1:{port}/metrics").text
            except httpx.ConnectError:
                return ""

        wait_for(lambda: "omdml_worker_last_turn_timestamp_seconds 0.0" in metrics(), "the metric", 60, worker)
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").json() == {"status": "ok", "message": "starting"}
        worker.kill()


def test_a_start_has_as_long_as_systemd_gives_it():
    unit = (Path(__file__).parents[3] / "deploy/systemd/omdml-worker@.service").read_text()
    assert f"TimeoutStartSec={START_LIMIT_S / 60:.0f}min" in unit.splitlines()


def test_probes_say_what_the_process_is(facts, client):
    facts.ask = lambda: Condition(True, True, True, False, "learning, 4 partitions")
    assert asked(client) == (200, 200)
    facts.ask = lambda: Condition(True, False, False, False, "stuck")
    assert asked(client) == (503, 503)
    assert client.get("/healthz").json() == {"error": "stuck", "message": "stuck"}


def test_without_a_condition_there_are_metrics_and_no_probes():
    port = free_port()
    serve_metrics(f"127.0.0.1:{port}", CollectorRegistry(), "--bind")
    assert httpx.get(f"http://127.0.0.1:{port}/metrics").status_code == 200
    assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 404


def test_a_client_that_says_nothing_keeps_nobody_waiting(client):
    host, port = client.base_url.host, client.base_url.port
    with closing(socket.create_connection((host, port))):
        assert client.get("/healthz").status_code == 200


def test_a_worker_is_ready_only_while_it_learns_not_if_it_waits_drains_or_hangs(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    assert worker.condition()[:4] == (False, True, False, False)
    run_until_idle(worker)
    assert worker.condition() == (True, True, True, False, "learning, 1 partition")
    monkeypatch.setattr("omdml.workers.learning.worker.RETRY_S", 0.0)

    def away(*_):
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "positions", away)
        world.send(*events(3))
        worker.step()
    assert worker.condition()[:3] == (True, True, False)
    assert "waiting for store" in worker.condition().status
    run_until_idle(worker)
    assert worker.condition().ready
    with monkeypatch.context() as patch:
        patch.setattr("omdml.workers.learning.measures.STUCK_AFTER_S", 0.0)
        assert worker.condition()[:3] == (True, False, False)
        assert "stuck" in worker.condition().status
    worker.stop()
    assert worker.condition()[1:4] == (True, False, True)
    assert "draining" in worker.condition().status


def test_connections_that_say_nothing_are_bounded_and_leave_no_traceback(monkeypatch, capfd):
    monkeypatch.setattr(probes, "MAX_CONNECTIONS", 20)
    monkeypatch.setattr(probes.SilentHandler, "timeout", 0.3)
    # A connection that finds no place in the kernel's queue tries again after one second, then after three.
    monkeypatch.setattr(probes.ThreadingWSGIServer, "request_queue_size", 60)
    port, before = serve_probes("127.0.0.1", 0, new_registry(), ConditionSource()), threading.active_count()
    with ExitStack() as held:
        for _ in range(60):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
        wait_for(lambda: threading.active_count() > before, "threads")
        counts = []

        def time_ran_out():
            counts.append(threading.active_count())
            return counts[-1] <= before

        wait_for(time_ran_out, "the end of these threads")
        assert max(counts) <= before + 20
    assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
    assert capfd.readouterr().err == ""


def test_a_client_that_sends_a_byte_now_and_then_is_ended(monkeypatch):
    monkeypatch.setattr(probes.SilentHandler, "timeout", 0.3)
    port = serve_probes("127.0.0.1", 0, new_registry(), ConditionSource())
    with closing(socket.create_connection(("127.0.0.1", port))) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        slow.settimeout(0.01)

        def ended():
            try:
                slow.sendall(b"y")
                return slow.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_for(ended, "the connection to end")


def test_a_head_without_end_is_not_kept():
    port = serve_probes("127.0.0.1", 0, new_registry(), ConditionSource())
    field = b"x: " + b"y" * 60_000 + b"\r\n"
    with closing(socket.create_connection(("127.0.0.1", port))) as bomb:
        bomb.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        bomb.settimeout(20)
        bomb.sendall(b"GET /healthz HTTP/1.1\r\n")
        with suppress(ConnectionError):
            for _ in range(90):
                bomb.sendall(field)
            bomb.sendall(b"\r\n")
            assert bomb.recv(1) == b"", "a head of 5 MB was answered"
    assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
