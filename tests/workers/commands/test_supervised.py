"""A worker and a node as a supervisor sees them: messages, probes, lines of the log, exit codes."""

from __future__ import annotations

import json
import socket

import httpx
import pytest

from deploy.local.ports import free_port
from tests.support.forks import ForkedProcess
from tests.support.waiting import until
from tests.support.worlds import catalogue, events

CONFIGURATION = """
[log]
kind = "file"
path = "feedback/"
letters = "letters/"
[store]
url = "dir:state"
[catalogues.items]
path = "items"
[models.shop]
learner = "lomdml"
rank = 2
[worker]
bind = "127.0.0.1:{worker}"
[node]
bind = "127.0.0.1:{node}"
[logging]
format = "json"
"""


class Place:
    """A folder with a configuration, and a socket such as systemd has."""

    def __init__(self, folder, listening):
        self.folder, self.listening, self.lines = folder, listening, []
        self.ports = {"worker": free_port(), "node": free_port()}
        catalogue(folder / "items")
        (folder / "omdml.toml").write_text(CONFIGURATION.format(**self.ports))

    def start(self, role):
        environment = {"NOTIFY_SOCKET": str(self.folder / "systemd"), "WATCHDOG_USEC": "200000"}
        return ForkedProcess(self.folder, role, name=role, environment=environment)

    def heard(self):
        """Lines that systemd has heard so far."""
        while True:
            try:
                self.lines += self.listening.recv(4096).decode().split("\n")
            except BlockingIOError:
                return self.lines

    def probe(self, role, path):
        try:
            return httpx.get(f"http://127.0.0.1:{self.ports[role]}{path}", verify=False).status_code
        except httpx.TransportError:
            return None


@pytest.fixture
def place(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "systemd"))
        listening.setblocking(False)
        yield Place(tmp_path, listening)


def test_systemd_and_probes_hear_whether_a_process_is_ready_and_alive(place):
    serving = f"serving http://127.0.0.1:{place.ports['node']}"
    # The worker ends before the node starts, so that each of them is heard alone.
    for role, status in (("worker", "learning, 1 partition"), ("node", serving)):
        place.heard().clear()
        process = place.start(role)
        until(lambda role=role: place.probe(role, "/readyz") == 200, 60)
        until(lambda: "READY=1" in place.heard() and place.heard().count("WATCHDOG=1") > 2, 60)
        assert place.probe(role, "/healthz") == 200
        until(lambda status=status: f"STATUS={status}" in place.heard(), 60)
        assert "STOPPING=1" not in place.heard()
        assert process.stop() == 0
        assert "STOPPING=1" in place.heard()
        lines = [json.loads(line) for line in process.said.splitlines() if line.startswith("{")]
        assert f"{role}_started" in [line["event"] for line in lines]


def test_a_worker_that_meets_a_gap_ends_with_3(place):
    log = place.folder / "feedback"
    log.mkdir()
    (log / "00000001.jsonl").write_bytes(b"".join(event + b"\n" for event in events(5)))
    worker = place.start("worker")
    until(lambda: list((place.folder / "state").glob("models/*/checkpoints/*/*.checkpoint")), 60)
    assert worker.stop() == 0
    (log / "00000001.jsonl").write_bytes(b"")
    assert place.start("worker").wait(60) == 3
