"""What a client does if connections break, nodes are busy, and answers do not come: over a real node, through a proxy
that breaks what passes."""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
import time
from contextlib import closing, contextmanager, suppress

import pytest

from omdml.client import Behind, Client, Refused, Unavailable, Unreachable, requests
from omdml.feedback import decode
from tests.omdml.client.conftest import TOKEN
from tests.support.processes import free_port
from tests.support.servers.certificates import Authority
from tests.support.shops import sent

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: %d\r\nContent-Length: %d\r\n\r\n%b"
WORDS = b'{"error":"busy","message":"later"}'


class Faults:
    """A proxy of one node. Each of ``plan`` is what happens to one request, in turn; after them all pass.

    ``cut before``: the connection breaks before the node sees the request; ``cut after``: the node answers, and the
    answer is lost; ``silent``: the node answers, and nothing comes; bytes: this is the answer.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.plan: list[str | bytes] = []
        self.connections, self.asked, self.times = 0, [], []
        self._port, self._server, self._tls = port, socket.create_server(("127.0.0.1", 0)), tls
        self._end = threading.Event()
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._end.set()
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                if self._tls:
                    try:
                        connection = self._tls.wrap_socket(connection, server_side=True)
                    except ssl.SSLError:
                        continue
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), closing(connection), socket.create_connection(("127.0.0.1", self._port)) as node:
            while request := whole_message(connection):
                self.asked.append(request)
                self.times.append(time.monotonic())
                fault = self.plan.pop(0) if self.plan else ""
                if fault == "cut before":
                    return
                if isinstance(fault, bytes):
                    connection.sendall(fault)
                    continue
                node.sendall(request)
                answer = whole_message(node)
                if fault == "cut after":
                    return
                if fault == "silent":
                    self._end.wait(30)
                    return
                connection.sendall(answer)


def whole_message(connection: socket.socket) -> bytes:
    """A request or an answer with its body; empty if the other side has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (part := connection.recv(65536)):
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < sum(lengths):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def faults(server):
    with closing(Faults(int(server.url.rpartition(":")[2]))) as proxy:
        yield proxy


@contextmanager
def client_of(faults, **limits):
    with Client(faults.url, TOKEN, model="shop", **limits) as client:
        yield client


def test_one_connection_serves_request_after_request(faults):
    with client_of(faults) as client:
        for _ in range(5):
            client.search("i5")
        client.triplet("i1", "i2", "i3")
        client.pin()
    assert (faults.connections, len(faults.asked)) == (1, 7)


@pytest.mark.parametrize("fault", ["cut before", "cut after", BUSY % (0, len(WORDS), WORDS)])
def test_a_search_goes_on_after_a_fault(faults, fault):
    with client_of(faults) as client:
        faults.plan = [fault] * 3
        assert len(client.search("i5", 4).items) == 4
    assert len(faults.asked) == 4


def test_feedback_whose_answer_was_lost_is_sent_again_under_its_id(shop, faults):
    with client_of(faults) as client:
        faults.plan = ["cut after", "cut after"]
        assert client.triplet("i1", "i2", "i3") == 1
    # The log has it three times, and a model learns it once.
    lines = sent(shop)
    assert len(lines) == 3
    assert len({decode(line).id for line in lines}) == 1


def test_all_attempts_bear_one_request_id(faults):
    with client_of(faults) as client:
        faults.plan = ["cut after", "cut before"]
        client.search("i5")
    lines = [line for request in faults.asked for line in request.lower().split(b"\r\n")]
    ids = [line for line in lines if line.startswith(b"x-request-id")]
    assert (len(ids), len(set(ids))) == (3, 1)


def test_going_back_by_one_version_is_never_repeated(shop, faults):
    shop.learn()
    shop.publish()
    with client_of(faults) as client:
        faults.plan = ["cut after"]
        with pytest.raises(Unreachable, match="tried once"):
            client.rollback()
    assert len(faults.asked) == 1
    # It was carried out, although the answer did not arrive.
    assert shop.store.current("shop").version == 0


def test_a_client_waits_as_long_as_retry_after_says(faults):
    with client_of(faults) as client:
        faults.plan = [BUSY % (1, len(WORDS), WORDS)]
        client.search("i5")
    first, second = faults.times
    assert second - first >= 1.0


def test_a_client_does_not_wait_in_vain_for_a_moment_that_is_too_late(faults):
    with client_of(faults, retry_s=5.0) as client:
        faults.plan = [BUSY % (60, len(WORDS), WORDS)]
        with pytest.raises(Unavailable, match="later") as refusal:
            client.search("i5")
    assert (refusal.value.reason, refusal.value.status) == ("busy", 503)
    assert len(faults.asked) == 1


def test_a_page_of_a_proxy_counts_as_the_status_that_it_has(faults):
    page = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>"
    with client_of(faults, retry_s=0.0) as client:
        faults.plan = [page]
        with pytest.raises(Unavailable, match="status 502"):
            client.search("i5")


class Clock:
    """A clock on which only pauses take time."""

    def __init__(self) -> None:
        self.now, self.pauses = 0.0, []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now += pause_s


def test_pauses_grow_and_end_in_time(faults, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(requests, "time", clock)
    with client_of(faults, retry_s=1.0) as client:
        faults.plan = ["cut before"] * 100
        with pytest.raises(Unreachable):
            client.search("i5")
    # 0.1 s, 0.2 s, 0.4 s, ... at most, and half of that at least: nothing begins after a second.
    assert len(faults.asked) == 1 + len(clock.pauses)
    assert 3 <= len(clock.pauses) <= 4
    assert all(0.05 * 2**number <= pause <= 0.1 * 2**number for number, pause in enumerate(clock.pauses))
    assert clock.now <= 1.0


def test_an_answer_that_never_comes_is_given_up(faults):
    with client_of(faults, timeout_s=0.3, retry_s=0.0) as client:
        faults.plan = ["silent"]
        with pytest.raises(Unreachable, match="tried once"):
            client.search("i5")


def test_an_answer_that_stops_halfway_is_given_up(faults):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    with client_of(faults, timeout_s=0.3, retry_s=0.0) as client:
        faults.plan = [head + b"{"]
        with pytest.raises(Unreachable):
            client.search("i5")


def test_a_forked_process_leaves_the_connections_of_its_parent_alone(faults):
    with client_of(faults) as client:
        client.search("i5")
        child = os.fork()
        if child == 0:
            os._exit(0 if len(client.search("i6", 4).items) == 4 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(client.search("i5", 4).items) == 4
    assert faults.connections == 2


def test_a_node_behind_tls_is_asked_over_kept_connections_if_it_is_trusted(server, tmp_path):
    authority = Authority(tmp_path)
    issued = authority.issue("node", "DNS:localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(issued.certificate, issued.key)
    with closing(Faults(int(server.url.rpartition(":")[2]), tls)) as proxy:
        url = f"https://localhost:{proxy.url.rpartition(':')[2]}"
        with Client(url, tls=ssl.create_default_context(cafile=str(authority.certificate))) as client:
            for _ in range(5):
                assert len(client.search("i5", 4).items) == 4
        assert len(proxy.asked) == 5
        assert proxy.connections == 1
        with Client(url, retry_s=0.0) as client, pytest.raises(Unreachable, match="certificate verify failed"):
            client.search("i5")


def test_a_port_without_a_listener_is_tried_again_and_reported():
    with Client(f"http://127.0.0.1:{free_port()}", retry_s=0.5) as client, pytest.raises(Unreachable) as error:
        client.models()
    assert re.search(r"tried ([2-9]|\d\d+) times.*is it up\?", str(error.value))
    assert error.value.reason == "unreachable"


def test_a_version_that_does_not_come_is_reported_with_the_one_there_is(client, server):
    with Client(server.url, model="shop", retry_s=0.0) as hasty, pytest.raises(Behind) as behind:
        hasty.search("i5", min_version=1_000)
    assert behind.value.version == 0


def test_a_bad_request_is_not_repeated(faults):
    with client_of(faults) as client, pytest.raises(Refused):
        client.search("i999")
    assert len(faults.asked) == 1
