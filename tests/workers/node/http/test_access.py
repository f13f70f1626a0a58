"""Who may write to a node, what a token is, and clients that are slow, many, or say too much."""

from __future__ import annotations

import json
import socket
import time

import httpx
import pytest

from omdml.errors import ConfigurationError
from omdml.workers.configuration.access import Access, NamedToken, check_reach, check_tokens, is_loopback
from omdml.workers.configuration.loading import load
from omdml.workers.node.http import connection_limits
from omdml.workers.node.http.connection_limits import MAX_AHEAD
from omdml.workers.node.http.openapi import openapi
from omdml.workers.node.http.server import HttpServer
from omdml.workers.wiring.node import serve_node
from tests.support.shops import Shop, client_of, listening, refused, sent
from tests.support.waiting import until
from tests.support.worlds import events

TOKEN = "0123456789abcdef-known"
VERBS = ("rollback", "pin", "unpin")


@pytest.fixture
def open_client(shop):
    """A client of a node that has no token."""
    with shop.serving() as node, listening(node) as server, client_of(server) as client:
        yield client


@pytest.fixture
def client(shop):
    """A client of a node that has a token; it sends that."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    with (
        shop.serving() as node,
        listening(node, TOKEN) as server,
        client_of(server, headers=headers) as client,
    ):
        yield client


@pytest.mark.parametrize(
    "sent_token", ["", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN]
)
def test_nobody_writes_without_the_token_and_who_searches_needs_none(shop, client, sent_token):
    client.headers["authorization"] = sent_token
    for path in ("/feedback", *(f"/models/shop/{verb}" for verb in VERBS)):
        response = client.post(path, content=next(events(1)))
        assert "node.token" in refused(response, 401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in response.text
    assert sent(shop) == []
    for path in ("/search?id=i1", "/models", "/healthz", "/readyz", "/metrics", "/schema"):
        assert client.get(path).status_code == 200


def test_who_knows_the_token_may_teach(shop, client):
    (event,) = events(1)
    assert client.post("/feedback", content=event).status_code == 202
    client.headers["authorization"] = f"bearer  {TOKEN}"
    assert client.post("/feedback", content=event).status_code == 202
    assert sent(shop) == [event, event]


def test_without_a_token_this_machine_may_teach_and_nobody_may_move_versions(open_client):
    assert open_client.post("/feedback", content=next(events(1))).status_code == 202
    for verb in VERBS:
        problem = refused(open_client.post(f"/models/shop/{verb}"), 403, "forbidden")
        assert "node.token" in problem
        assert problem.endswith(f"set node.token_file, or move the version with the command omdml {verb}")


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 202),
        ("http://127.0.0.1:80", 202),
        ("http://[::1]", 202),
        ("https://shop.example", 403),
        ("null", 403),
        ("http://127.0.0.1.example", 403),
    ],
)
def test_a_strangers_page_in_a_browser_of_this_machine_may_not_teach(open_client, origin, status):
    assert open_client.post("/feedback", content=next(events(1)), headers={"origin": origin}).status_code == status


def test_versions_are_rolled_back_pinned_and_unpinned(shop, client):
    for _ in range(2):
        shop.learn()
        shop.publish()

    def moved(verb, **body):
        answer = client.post(f"/models/shop/{verb}", json=body).raise_for_status().json()
        until(lambda: client.get("/search?id=i1").json()["serial"] == answer["serial"])
        return answer["version"], answer["pinned"]

    assert moved("rollback") == (20, True)
    assert moved("rollback") == (0, True)
    assert "this is the oldest" in refused(client.post("/models/shop/rollback"), 404, "not_kept")
    shop.learn()
    assert shop.publish() == 60
    assert client.get("/search?id=i1").json()["version"] == 0
    assert moved("unpin") == (60, False)
    history = shop.store.history("shop")
    assert moved("unpin") == (60, False)
    assert shop.store.history("shop") == history
    assert moved("pin") == (60, True)
    assert moved("pin", version=40) == (40, True)
    assert [entry["what"] for entry in shop.store.history("shop")][-1] == "rolled back"


def test_a_move_that_was_overtaken_by_somebody_elses_changes_nothing(shop, client):
    shop.learn()
    shop.publish()
    seen = shop.store.current("shop").serial
    # A version that is learned meanwhile is not such a move.
    shop.learn()
    shop.publish()
    client.post("/models/shop/pin", json={"seen": seen, "reason": "a sale"}).raise_for_status()
    before = shop.store.current("shop")
    for verb in ("rollback", "pin", "unpin"):
        problem = refused(client.post(f"/models/shop/{verb}", json={"seen": seen}), 409, "moved")
        assert "pinned, version 40 by" in problem
        assert "(a sale)" in problem
    assert shop.store.current("shop") == before
    assert client.post("/models/shop/unpin", json={"seen": before.serial}).json()["pinned"] is False


@pytest.mark.parametrize("verb", ["rollback", "pin"])
def test_nobody_moves_to_a_version_whose_bytes_are_damaged(shop, client, verb):
    shop.learn()
    damaged = shop.snapshot()
    shop.publish()
    shop.learn()
    shop.publish()
    shop.damage(damaged)
    before = shop.store.current("shop")
    response = client.post(f"/models/shop/{verb}", json={"version": damaged.version})
    assert "go back to another version" in refused(response, 500, "corrupt")
    assert shop.store.current("shop") == before


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("shop/rollback", '{"version": 7}', 404, "not_kept"),
        ("shop/pin", '{"version": -1}', 400, "invalid"),
        ("shop/pin", '{"version": "1"}', 400, "invalid"),
        ("shop/pin", '{"verison": 1}', 400, "unknown_parameter"),
        ("shop/pin", "[]", 400, "not_json"),
        ("shop/pin", " " * 5000, 413, "oversize"),
        ("shop/unpin", '{"version": 0}', 400, "invalid"),
        ("shpo/pin", "", 404, "unknown_model"),
        ("..%2Fshop/pin", "", 404, "unknown_model"),
    ],
)
def test_a_move_that_makes_no_sense_is_refused(client, path, body, status, error):
    refused(client.post(f"/models/{path}", content=body), status, error)


def test_the_schema_says_what_needs_the_token():
    document = openapi()
    secured = {path for path, methods in document["paths"].items() if "security" in json.dumps(methods)}
    moves = {f"/models/{{model}}/{verb}" for verb in VERBS}
    operators = {"/status", "/letters", "/letters/explain", "/letters/resend", "/letters/dismiss"}
    assert secured == {"/feedback", "/clicks", "/items", "/items/{id}", "/session"} | moves | operators
    assert document["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_a_node_that_others_reach_does_not_start_without_a_token(tmp_path, host):
    Shop(tmp_path)
    table = {
        "catalogues": {"items": {"path": str(tmp_path / "items")}},
        "models": {"shop": {"learner": "lomdml", "rank": 3}},
    }
    configuration = load(None, {}, {**table, "store": {"url": "memory:"}, "node": {"bind": f"{host}:8080"}})
    with pytest.raises(ConfigurationError, match=r"no node\.token.*openssl rand -hex 32 > token.*bind to 127\.0\.0\.1"):
        serve_node(configuration)
    check_reach(host, Access(TOKEN))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_loopback_is_known_by_address_and_by_name(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "token", ["short", "fifteen-letters", "with a space in it", "newline\n0123456789abcdef", "ümläut-0123456789"]
)
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused_and_not_shown(token):
    with pytest.raises(ConfigurationError, match=r"node\.token: \d+ characters") as caught:
        check_tokens(token, {})
    assert token not in str(caught.value)


NAMED = {
    "page": NamedToken(token="page-0123456789abcdef", role="feedback"),
    "feed": NamedToken(token="feed-0123456789abcdef", role="items"),
    "alice": NamedToken(token="alice-0123456789abcdef", role="operator"),
}


def bearer(name):
    return {"authorization": f"Bearer {NAMED[name].token}"}


def test_a_token_does_what_its_role_allows_and_no_more(shop):
    with shop.serving() as node, listening(node, tokens=NAMED) as server, client_of(server) as client:
        assert client.post("/feedback", content=next(events(1)), headers=bearer("page")).status_code == 202
        for verb in VERBS:
            response = client.post(f"/models/shop/{verb}", headers=bearer("page"))
            assert "'page' has the role feedback" in refused(response, 403, "forbidden")
            assert "needs the role operator" in refused(
                client.post(f"/models/shop/{verb}", headers=bearer("feed")), 403, "forbidden"
            )
        assert "needs the role items" in refused(client.delete("/items/i1", headers=bearer("page")), 403, "forbidden")
        assert client.delete("/items/none", headers=bearer("feed")).json()["unknown"] == ["none"]
        assert "node.tokens" in refused(client.post("/feedback", content=next(events(1))), 401, "unauthorized")


def test_the_history_says_whose_token_moved_a_version_and_why(shop):
    for _ in range(2):
        shop.learn()
        shop.publish()
    with shop.serving() as node, listening(node, TOKEN, tokens=NAMED) as server, client_of(server) as client:
        client.post(
            "/models/shop/rollback", json={"reason": "red came first"}, headers=bearer("alice")
        ).raise_for_status()
        client.post("/models/shop/unpin", headers={"authorization": f"Bearer {TOKEN}"}).raise_for_status()
        rollback, unpin = client.get("/models/shop/history").json()["lines"][-2:]
        assert (rollback["what"], rollback["actor"], rollback["reason"]) == ("rolled back", "alice", "red came first")
        assert (unpin["what"], unpin["actor"], unpin["reason"]) == ("unpinned", "token", "")
        response = client.post("/models/shop/pin", json={"reason": "x" * 201}, headers=bearer("alice"))
        assert "reason" in refused(response, 400, "invalid")


def test_without_an_operators_token_nobody_moves_versions(shop):
    only = {"page": NAMED["page"]}
    with shop.serving() as node, listening(node, tokens=only) as server, client_of(server) as client:
        response = client.post("/models/shop/unpin", headers=bearer("page"))
        assert "role operator" in refused(response, 403, "forbidden")


def test_tokens_are_read_from_files_and_never_shown(tmp_path):
    (tmp_path / "alice").write_text("alice-0123456789abcdef\n")
    file = tmp_path / "omdml.toml"
    alice = f'token_file = "{tmp_path / "alice"}"\nrole = "operator"\n'
    file.write_text(f'[catalogues.c]\npath = "items"\n[models.shop]\n[node.tokens.alice]\n{alice}')
    node = load(file, {}).node
    assert node.tokens["alice"].token == "alice-0123456789abcdef"
    assert "alice-0123456789abcdef" not in repr(node)
    assert node.access.check(bearer("alice"), "operator") == "alice"


@pytest.mark.parametrize(
    ("token", "named", "expected"),
    [
        ("", {"page": NamedToken(token="short", role="feedback")}, r"node\.tokens\.page\.token: 5 characters"),
        (
            TOKEN,
            {"page": NamedToken(token=TOKEN, role="feedback")},
            r"node\.tokens\.page\.token is the same token as node",
        ),
        (TOKEN, {"token": NAMED["page"]}, r"node\.tokens\.token: the history calls node\.token by this name"),
    ],
)
def test_named_tokens_that_are_short_or_alike_are_refused(token, named, expected):
    with pytest.raises(ConfigurationError, match=expected) as caught:
        check_tokens(token, named)
    assert TOKEN not in str(caught.value)


GET_SCHEMA = b"GET /schema HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Slow:
    """A client with a socket of its own, so that it can be slow."""

    def __init__(self, server: HttpServer) -> None:
        self.socket = socket.socket()
        # Little fits into the buffer between client and server.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(20.0)
        self.socket.connect((server.host, server.port))

    def say(self, words: bytes) -> None:
        self.socket.sendall(words)

    def flood(self, words: bytes, every_s: float = 0.0) -> None:
        """Say it for ever, and read nothing."""
        while True:
            self.say(words)
            # A client that is slower than the limit on what is sent ahead is to be ended by the limit on time.
            time.sleep(every_s)

    def hear(self) -> bytes:
        """Everything until the server ends the connection."""
        heard = b""
        try:
            while part := self.socket.recv(65536):
                heard += part
        except ConnectionResetError:
            pass
        self.socket.close()
        return heard


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"GET /sear",
        b"GET /models HTTP/1.1\r\nhost: localhost\r\nx: ",
        b"POST /feedback HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nonly a part",
    ],
    ids=["nothing", "half a line", "half a head", "half a body"],
)
def test_a_request_that_does_not_come_whole_in_time_is_given_up(shop, monkeypatch, words):
    monkeypatch.setattr(connection_limits, "REQUEST_S", 0.3)
    with shop.serving() as node, listening(node) as server:
        slow = Slow(server)
        slow.say(words)
        assert slow.hear() == b""
        assert httpx.get(f"{server.url}/healthz", verify=False).status_code == 200


def test_a_client_that_does_not_read_its_answers_is_given_up(shop, monkeypatch):
    monkeypatch.setattr(connection_limits, "REQUEST_S", 0.3)
    with shop.serving() as node, listening(node) as server:
        slow = Slow(server)
        slow.say(GET_SCHEMA * (MAX_AHEAD // 2))
        with pytest.raises(OSError, match=r"reset|pipe"):
            slow.flood(GET_SCHEMA[:1], every_s=0.01)
        slow.socket.close()


def test_a_client_that_sends_requests_ahead_without_end_is_given_up(shop):
    with shop.serving() as node, listening(node) as server:
        hasty = Slow(server)
        with pytest.raises(OSError, match=r"reset|pipe"):
            hasty.flood(GET_SCHEMA * 100)
        hasty.socket.close()
        assert httpx.get(f"{server.url}/healthz", verify=False).status_code == 200


def test_a_head_without_end_is_refused(shop):
    with shop.serving() as node, listening(node) as server:
        slow = Slow(server)
        slow.say(b"GET /models HTTP/1.1\r\nx: " + b"y" * 200_000)
        assert b"200" not in slow.hear()


def test_more_connections_than_allowed_are_refused_until_others_end(shop, monkeypatch):
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", 3)
    with shop.serving() as node, listening(node) as server:
        held = [Slow(server) for _ in range(3)]
        until(lambda: Slow(server).hear() == b"")
        for connection in held:
            connection.socket.close()
        until(lambda: answers(server))
        assert answers(server)


def answers(server):
    try:
        return httpx.get(f"{server.url}/healthz", verify=False).status_code == 200
    except httpx.HTTPError:
        return False


def test_a_connection_that_is_kept_serves_many_requests_one_after_the_other(shop):
    with shop.serving() as node, listening(node) as server, client_of(server) as client:
        for _ in range(50):
            assert client.get("/search?id=i1").status_code == 200
            assert client.post("/feedback", content=next(events(1))).status_code == 202
