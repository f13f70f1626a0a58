"""The node of this machine, as the doctor asks it."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest

from deploy.local.ports import free_port
from omdml.workers.configuration.config import NodeConfig
from omdml.workers.doctor.checks import node
from omdml.workers.doctor.checks.node import node_here
from omdml.workers.doctor.findings import Level


@pytest.fixture
def answers():
    """Starts a server that gives one answer to everything; returns where it listens."""
    servers = []

    def start(status, body):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else msgspec.json.encode(body))

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever).start()
        servers.append(server)
        return NodeConfig(bind=f"127.0.0.1:{server.server_port}")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_node_that_is_ready_is_well(answers):
    text = node_here(answers(200, {"status": "ready"}))
    assert "is ready (node.bind: 127.0.0.1:" in text


def test_a_node_that_answers_with_an_older_version_is_named_with_both(answers):
    refused = {"shop": {"live": 1200, "serving": 1150, "reason": "its bytes are damaged"}}
    ((level, text),) = node_here(answers(200, {"status": "ready", "refused": refused}))
    assert level is Level.WARNING
    assert "model shop: it answers with version 1,150 in the place of the live one, 1,200" in text
    assert "its bytes are damaged" in text


def test_a_node_that_serves_an_earlier_snapshot_of_the_version_is_reported(answers):
    refused = {"shop": {"live": 1200, "serving": 1200, "reason": "learned on another generation"}}
    ((level, text),) = node_here(answers(200, {"status": "ready", "refused": refused}))
    assert level is Level.WARNING
    assert "model shop: it answers with an earlier snapshot of the live version, 1,200 (learned on" in text


def test_a_node_that_is_not_ready_says_what_it_waits_for(answers):
    body = {"error": "not_ready", "message": "no snapshot that can be served yet: shop"}
    ((level, text),) = node_here(answers(503, body))
    assert level is Level.ERROR
    assert "is not ready: no snapshot that can be served yet: shop" in text


@pytest.mark.parametrize("answer", [(200, b"<html>"), (404, {"message": "?"}), (200, {"status": "up"})])
def test_another_program_on_the_nodes_port_is_reported(answers, answer):
    ((level, text),) = node_here(answers(*answer))
    assert level is Level.WARNING
    assert "another program than a node answers" in text


def test_a_node_that_hangs_is_an_error(monkeypatch):
    monkeypatch.setattr(node, "PATIENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ((level, text),) = node_here(NodeConfig(bind=f"127.0.0.1:{silent.getsockname()[1]}"))
    assert level is Level.ERROR
    assert "accepts connections and answered nothing for 0.1 s: the node hangs" in text


def test_without_a_node_on_this_machine_all_is_well():
    assert "none runs at 127.0.0.1:" in node_here(NodeConfig(bind=f"127.0.0.1:{free_port()}"))
