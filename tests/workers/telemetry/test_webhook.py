"""A real server is told what needs an operator; a slow, dead or failing one delays nobody and is counted."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import structlog
from prometheus_client import CollectorRegistry

from deploy.local.ports import free_port
from omdml.errors import ConfigurationError
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.process import configure_log
from omdml.workers.telemetry import webhook
from omdml.workers.telemetry.webhook import Webhook
from tests.support.processes import wait_for
from tests.support.worlds import events, run_until_idle, unreadable

log = structlog.get_logger(__name__)


class Receiver(ThreadingHTTPServer):
    """Keeps what is posted in ``received``; answers with ``code``, once ``answers`` is set."""

    daemon_threads = True

    def __init__(self):
        self.code, self.received, self.answers = 200, [], threading.Event()
        self.answers.set()
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/hook"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.server.answers.wait(30)
        self.send_response(self.server.code)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def receiver():
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.answers.set()
        server.shutdown()


@contextmanager
def hooked(url, timeout_s=5.0):
    """Gives a function that says how many requests came to an outcome."""
    configure_log()
    registry = CollectorRegistry()
    with Webhook(url, timeout_s, registry):
        yield lambda outcome: registry.get_sample_value("omdml_worker_webhook_requests_total", {"outcome": outcome})


def test_a_redirect_is_a_failure_because_nothing_was_posted_to_where_it_leads(receiver, capsys):
    with hooked(receiver.url) as count:
        for receiver.code in (301, 302, 307):
            log.warning("drift", model="shop", reason="more mistakes")
            wait_for(lambda: len(receiver.received) == count("failed") > 0, "the answer")
    assert (count("sent"), count("failed")) == (0, 3)
    assert "HTTP Error 301" in capsys.readouterr().err


def test_each_kind_is_reported_and_nothing_else(receiver):
    with hooked(receiver.url) as count:
        log.warning("snapshot_withheld", model="shop", version=7, reason="worse")
        log.warning("drift", model="shop", reason="more mistakes")
        log.info("model_live", model="shop")
        log.warning("snapshot_taken_back", model="shop", version=6, reason="worse")
        log.error("model_waits", model="shop", reason="damaged", action="restore it")
    assert [body["kind"] for _, _, body in receiver.received] == ["withheld", "drift", "rollback", "waiting"]
    path, kind, body = receiver.received[0]
    assert (path, kind) == ("/hook", "application/json")
    assert abs(body.pop("time") - time.time()) < 60
    assert body == {
        "kind": "withheld",
        "event": "snapshot_withheld",
        "level": "warning",
        "model": "shop",
        "version": 7,
        "reason": "worse",
    }
    assert (count("sent"), count("failed"), count("dropped")) == (4, 0, 0)


def test_a_worker_tells_of_a_model_that_waits(receiver, tmp_path):
    with hooked(receiver.url):
        world, _ = unreadable(tmp_path, "shop")
        world.send(*events(3, seed=1))
        run_until_idle(world.worker())
        wait_for(lambda: receiver.received, "the request")
    assert {body["kind"] for _, _, body in receiver.received} == {"waiting"}
    assert receiver.received[0][2]["model"] == "shop"


def test_a_server_that_fails_is_counted_and_logged_once_a_minute(receiver, capsys, monkeypatch):
    # The webhook looks at this clock once for each failure.
    times = [0.0, 59.9, 60.0, 119.9, 120.0, 179.9]
    monkeypatch.setattr(webhook, "time", SimpleNamespace(time=time.time, monotonic=iter(times).__next__))
    receiver.code = 500
    with hooked(receiver.url) as count:
        for _ in times:
            log.warning("drift", model="shop")
    assert (count("failed"), count("sent")) == (6, 0)
    assert capsys.readouterr().err.count("event=webhook_failed") == 3


def test_a_dead_server_is_a_failure():
    with hooked(f"http://127.0.0.1:{free_port()}/") as count:
        log.warning("drift", model="shop")
        wait_for(lambda: count("failed") == 1, "the failure")


def test_a_slow_server_delays_neither_who_logs_nor_the_end(receiver, monkeypatch):
    monkeypatch.setattr(webhook, "MOST", 5)
    receiver.answers.clear()
    with hooked(receiver.url, timeout_s=0.5) as count:
        for _ in range(50):
            log.warning("drift", model="shop")
        # One is at hand and five wait. If logging waited for the server, none would be dropped.
        assert count("dropped") >= 25
        wait_for(lambda: count("failed") >= 1, "the time-out")
        assert count("failed") + count("dropped") < 50
    # The end waited for one time-out at most: not for all that wait, which would be 3 s.
    assert count("failed") + count("dropped") < 50


def test_nothing_is_sent_without_an_address():
    with hooked("") as count:
        log.warning("drift", model="shop")
    assert (count("sent"), count("failed")) == (0, 0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"webhook": {"url": "ftp://host/secret"}}, "webhook.url is not an address"),
        ({"webhook": {"timeout_s": 0.0}}, "webhook.timeout_s"),
        ({"webhook": {"url": "http://host/secret"}, "logging": {"level": "error"}}, "logging.level is error"),
    ],
)
def test_a_webhook_that_cannot_work_is_refused(options, expected):
    with pytest.raises(ConfigurationError, match=expected) as refused:
        load(None, {}, {"catalogues": {"items": {"path": "x"}}, "models": {"shop": {}}, **options})
    assert "secret" not in str(refused.value)
