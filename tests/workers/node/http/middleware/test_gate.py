"""What a node lets in: requests to its own names, and no more than it can hold."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, contextmanager

import httpx
import pytest
import structlog

from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.workers.configuration.loading import load
from omdml.workers.node.http import connection_limits
from omdml.workers.node.http.connection_limits import MAX_FIELDS, MAX_HEAD_BYTES, BoundedConnection, Counted
from omdml.workers.node.http.middleware import gate
from tests.support.shops import Shop, client_of, listening, refused
from tests.support.waiting import until
from tests.support.worlds import ITEMS, events, items

TOKEN = "0123456789abcdef-known"


@contextmanager
def served(tmp_path, token="", hosts=()):
    """A real server of a node of a shop."""
    with Shop(tmp_path).serving() as node, listening(node, token, hosts) as server:
        yield server


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    """A server that all tests of this file share, which has a name of its own."""
    with served(tmp_path_factory.mktemp("standing"), hosts=["shop.internal"]) as server:
        yield server


def exchange(server, words, timeout_s=20.0):
    """Send these bytes; returns everything that comes until the server ends the connection."""
    heard = b""
    with socket.create_connection((server.host, server.port), timeout=timeout_s) as connection:
        try:
            connection.sendall(words)
            while part := connection.recv(65536):
                heard += part
        except (ConnectionResetError, BrokenPipeError):
            pass
    return heard


def request(host, path="/models"):
    return f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode()


def status(heard):
    """The status of an answer; None if nothing was answered."""
    return int(heard.split(b" ", 2)[1]) if heard else None


@pytest.mark.parametrize("path", ["/search?id=i1", "/models", "/metrics", "/schema", "/healthz", "/nothing"])
def test_a_page_whose_host_name_leads_to_this_address_reads_nothing(standing, path):
    heard = exchange(standing, request("evil.example:8080", path))
    assert status(heard) == 421
    assert b'"foreign_host"' in heard
    assert b"node.hosts" in heard


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]",
        "[::1]:8080",
        "shop.internal",
        "shop.internal:80",
    ],
)
def test_a_node_without_a_token_answers_to_its_names(standing, host):
    assert status(exchange(standing, request(host))) == 200


@pytest.mark.parametrize(
    "host",
    [
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:127",
        "",
        "0.0.0.0",
        "user@localhost",
        "localhost/evil",
        "localhost?x",
        "localhost#x",
        "127.0.0.1:80:80",
        "[::1",
        "localhost:evil",
        "[localhost]",
    ],
)
def test_names_that_only_look_like_this_machine_are_foreign(standing, host):
    assert status(exchange(standing, request(host))) == 421


def test_a_node_with_a_token_answers_to_any_name_unless_some_are_given(tmp_path):
    with served(tmp_path / "a", TOKEN) as server:
        assert status(exchange(server, request("node.example"))) == 200
    with served(tmp_path / "b", TOKEN, ["node.example"]) as server:
        assert status(exchange(server, request("node.example"))) == 200
        assert status(exchange(server, request("evil.example"))) == 421


def test_names_can_be_configured():
    table = {"catalogues": {"items": {"path": "items"}}, "models": {"shop": {}}, "node": {"hosts": ["a.example"]}}
    assert load(None, {}, table).node.hosts == ("a.example",)


@pytest.mark.parametrize("size", [MAX_HEAD_BYTES + 1, 70_000, 200_000])
@pytest.mark.parametrize("part", ["one field", "the first line", "many fields"])
def test_a_head_longer_than_the_limit_is_refused(standing, part, size):
    many = "".join(f"x-{number}: {'y' * (size // 50)}\r\n" for number in range(50))
    words = {
        "one field": f"GET /models HTTP/1.1\r\nhost: localhost\r\nx: {'y' * size}\r\n\r\n",
        "the first line": f"GET /models?since={'1' * size} HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "many fields": f"GET /models HTTP/1.1\r\nhost: localhost\r\n{many}\r\n",
    }
    heard = exchange(standing, words[part].encode())
    assert b'"models"' not in heard
    # A client that still sends when the server ends the connection may lose the answer.
    assert status(heard) in (431, None)


def test_a_head_within_the_limit_is_answered(tmp_path):
    with served(tmp_path) as server:
        client = client_of(server, headers={"x": "y" * (MAX_HEAD_BYTES - 1000)})
        assert client.get("/models").status_code == 200
        assert client.get("/models").status_code == 200
        client.close()


def test_more_fields_than_the_limit_are_refused_in_a_sentence(tmp_path):
    with served(tmp_path) as server:
        response = httpx.get(
            f"{server.url}/models", verify=False, headers={f"x-{number}": "y" for number in range(MAX_FIELDS)}
        )
        assert "100 fields" in refused(response, 431, "oversize")


CHUNKED = b"POST /search HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("trailer", [b"a: b\r\n", b"y"], ids=["many fields", "one field"])
def test_trailers_without_end_are_not_taken_in(tmp_path, trailer):
    with served(tmp_path) as server, socket.create_connection((server.host, server.port), timeout=20) as connection:
        connection.sendall(CHUNKED + b"2\r\n{}\r\n0\r\nx: ")
        # The kernel may take several megabytes before it hears that the server has closed the connection.
        with pytest.raises(OSError, match=r"reset|pipe"):
            connection.sendall(trailer * (64 << 20))


def test_more_trailers_than_the_limit_are_refused_in_a_sentence(tmp_path):
    with served(tmp_path) as server:
        heard = exchange(server, CHUNKED + b'b\r\n{"id":"i1"}\r\n0\r\n' + b"x: y\r\n" * 150 + b"\r\n")
        assert (status(heard), heard.count(b"HTTP/1.1"), b"100 fields" in heard) == (431, 1, True)


def test_trailers_behind_a_request_that_waits_end_its_connection(tmp_path):
    with served(tmp_path) as server:
        first_request = b"GET /models HTTP/1.1\r\nhost: localhost\r\n\r\n"
        heard = exchange(server, first_request + CHUNKED + b'b\r\n{"id":"i1"}\r\n0\r\n' + b"x: y\r\n" * 150 + b"\r\n")
        assert heard.count(b"HTTP/1.1") <= 1
        assert status(heard) in (200, None)


@pytest.mark.parametrize("header", [b"content-encoding: gzip", b"transfer-encoding: gzip, chunked"])
def test_a_body_that_is_compressed_is_refused_in_a_sentence(tmp_path, header):
    body = b'b\r\n{"id":"i1"}\r\n0\r\n\r\n'
    chunked = b"" if header.startswith(b"transfer") else b"transfer-encoding: chunked\r\n"
    head = b"POST /search HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" + chunked + header + b"\r\n\r\n"
    with served(tmp_path) as server:
        heard = exchange(server, head + body)
        assert (status(heard), b'"encoded"' in heard, b"gzip" in heard) == (415, True, True)


@pytest.mark.parametrize("pieces", ["at once", "head first", "byte by byte"])
@pytest.mark.parametrize("framing", ["length", "chunked", "none"])
def test_a_client_that_offers_another_protocol_is_answered_in_this_one(standing, pieces, framing):
    # Java's HttpClient offers HTTP/2 with the first request of each connection.
    offer = b"host: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
    body = b'{"id":"i1"}' if framing != "none" else b""
    frame = {"length": b"content-length: %d\r\n" % len(body), "chunked": b"transfer-encoding: chunked\r\n"}
    head = (
        (b"POST /search" if body else b"GET /search?id=i1")
        + b" HTTP/1.1\r\n"
        + offer
        + frame.get(framing, b"")
        + b"\r\n"
    )
    content = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if framing == "chunked" else body
    last = request("localhost", "/search?id=i2")
    words = (head + content) * 2 + last
    parts = {"at once": [words], "head first": [head, content, head, content, last]}
    with socket.create_connection((standing.host, standing.port), timeout=20) as connection:
        for part in parts.get(pieces) or [words[index : index + 1] for index in range(len(words))]:
            connection.sendall(part)
        heard = b"".join(iter(lambda: connection.recv(65536), b""))
    assert heard.count(b"HTTP/1.1 200 OK") == heard.count(b"HTTP/1.1") == 3


def test_a_body_behind_an_offer_of_another_protocol_is_not_taken_for_a_request(standing):
    body = request("localhost")
    offer = b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket.create_connection((standing.host, standing.port), timeout=20) as connection:
        connection.sendall(b"POST /search HTTP/1.1\r\nhost: localhost\r\n" + offer)
        connection.sendall(body + request("localhost"))
        heard = b"".join(iter(lambda: connection.recv(65536), b""))
    assert (status(heard), heard.count(b"HTTP/1.1 400"), heard.count(b"HTTP/1.1 200")) == (400, 1, 1)


def test_connections_refused_without_end_are_a_line_a_minute():
    now = [0.0]
    counted = Counted("connection_refused", lambda: now[0])
    with structlog.testing.capture_logs() as lines:
        for now[0] in range(130):
            counted.tell(open=3)
    assert [line["count"] for line in lines] == [1, 60, 60]
    assert {line["event"] for line in lines} == {"connection_refused"}


def test_trailers_are_allowed(tmp_path):
    with served(tmp_path) as server:
        ended = CHUNKED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
        assert status(exchange(server, ended + b'b\r\n{"id":"i1"}\r\n0\r\nx: y\r\n\r\n')) == 200


def test_garbage_is_refused_in_a_sentence(tmp_path):
    with served(tmp_path) as server:
        heard = exchange(server, b"\x16\x03\x01\x02\x00\x01\x00 a TLS hello\r\n\r\n")
        assert status(heard) == 400
        assert b'"not_http"' in heard
        assert b"without TLS" in heard


def test_bodies_beyond_what_a_node_holds_are_refused_until_others_end(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "MAX_BODIES_BYTES", 10_000)
    with served(tmp_path) as server:
        with socket.create_connection((server.host, server.port), timeout=20) as half:
            half.sendall(b"POST /feedback HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20000\r\n\r\n" + b" " * 9_990)
            event = next(events(1))

            def posted():
                return httpx.post(f"{server.url}/feedback", verify=False, content=event)

            until(lambda: posted().status_code == 503)
            response = posted()
            assert "send this again a little later" in refused(response, 503, "busy")
            assert response.headers["retry-after"] == "1"
            assert httpx.get(f"{server.url}/search?id=i1", verify=False).status_code == 200
        until(lambda: posted().status_code == 202)
        for _ in range(100):
            assert posted().status_code == 202


def long_names(folder):
    """The items of a shop, whose ids are so long that answers are large."""
    features, _ = items()
    build_catalogue(folder, features, ids=[f"i{row}".ljust(500, "x") for row in range(ITEMS)])
    return MappedCatalogue(folder)


def test_unread_answers_are_given_up_before_they_take_too_much_memory(tmp_path, monkeypatch):
    # Given a node whose kernel takes next to nothing of an answer, and answers of more than a megabyte
    monkeypatch.setattr(connection_limits, "MAX_UNREAD_BYTES", 3 << 20)
    original = BoundedConnection.connection_made

    def connection_made(self, transport):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        original(self, transport)

    monkeypatch.setattr(BoundedConnection, "connection_made", connection_made)
    shop = Shop(tmp_path, items=long_names)
    query = {"queries": [{"id": "i1".ljust(500, "x")}] * 21, "k": ITEMS}
    body = json.dumps(query).encode()
    head = f"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with shop.serving() as node, listening(node) as server, ExitStack() as open_ones:
        # When clients ask for them one after the other, and do not read
        deaf = []
        for _ in range(4):
            connection = open_ones.enter_context(socket.create_connection((server.host, server.port), timeout=20))
            connection.sendall(head + body)
            deaf.append(connection)
            assert connection.recv(9) == b"HTTP/1.1 "
        # Then a client that reads has the whole answer,
        answer = httpx.post(f"{server.url}/search", verify=False, json=query, timeout=60)
        assert (answer.status_code, len(answer.json()["answers"])) == (200, 21)
        # and of the others only the newest still have theirs.
        ends = [read_to_the_end(connection) for connection in deaf]
    assert ends == sorted(ends)
    assert (ends[0], ends[-1]) == (False, True)


def read_to_the_end(connection):
    """Whether the rest of an answer still comes; its end is that of its JSON."""
    heard = bytearray()
    try:
        while not heard.endswith(b"]]}") and (part := connection.recv(1 << 20)):
            heard += part
    except ConnectionResetError:
        return False
    return heard.endswith(b"]]}")


@pytest.mark.parametrize("count", [1, 8])
def test_memory_of_small_bodies_is_given_back_if_there_were_many_at_once(tmp_path, monkeypatch, count):
    monkeypatch.setattr(gate, "LARGE_BYTES", 4_000)
    monkeypatch.setattr(gate, "TRIM_AFTER_S", 0.0)
    bodies, given_back = [], []
    init = gate.Bodies.__init__
    monkeypatch.setattr(gate.Bodies, "__init__", lambda self, app: bodies.append(self) or init(self, app))
    monkeypatch.setattr(gate.Bodies, "_trim", lambda _: given_back.append(1))
    begin = b"POST /feedback HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2000\r\n\r\n" + b" " * 1_000
    with served(tmp_path) as server, ExitStack() as open_ones:
        for _ in range(count):
            half = open_ones.enter_context(socket.create_connection((server.host, server.port), timeout=20))
            half.sendall(begin)
        until(lambda: bodies and bodies[-1]._held == 1_000 * count)
        open_ones.close()
        until(lambda: bodies[-1]._held == 0)
    # The server has ended, so nothing is still about to give memory back.
    assert bool(given_back) == (count > 1)


def test_answers_are_not_held_back_by_the_kernel(tmp_path, monkeypatch):
    options = []
    original = BoundedConnection.connection_made

    def connection_made(self, transport):
        accepted = transport.get_extra_info("socket")
        options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        original(self, transport)

    monkeypatch.setattr(BoundedConnection, "connection_made", connection_made)
    with served(tmp_path) as server:
        assert httpx.get(f"{server.url}/healthz", verify=False).status_code == 200
    assert options == [1]
