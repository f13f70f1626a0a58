"""Who may read from a private node, how often a token may ask, pages of other origins, and how answers are packed."""

from __future__ import annotations

import pytest

from omdml.errors import ConfigurationError
from omdml.workers.configuration.access import Access, AccessError, NamedToken, check_pages
from tests.support.nodes import serves
from tests.support.shops import Shop, client_of, listening, refused
from tests.support.waiting import until
from tests.support.worlds import events, triplets

READER = NamedToken(token="reader-0123456789abcdef", role="read")
TOKEN = "0123456789abcdef-known"
PAGE = "https://shop.example"


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def bearer(token):
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def private(shop):
    """A client of a private node, without any token."""
    with (
        shop.serving() as node,
        listening(node, TOKEN, tokens={"reader": READER}, private=True) as server,
        client_of(server) as client,
    ):
        yield client


READING = ("/search?id=i1", "/models", "/items", "/metrics", "/metrics/models", "/models/shop/history")
OPEN = ("/healthz", "/readyz", "/schema", "/click.js", "/console/", "/console/main.js")


def test_a_private_node_tells_nothing_of_its_models_to_who_has_no_token(private):
    for path in READING:
        assert "a token is needed" in refused(private.get(path), 401, "unauthorized")
        assert "not a token" in refused(private.get(path, headers=bearer(TOKEN[:-1])), 401, "unauthorized")
    assert private.post("/search", json={"id": "i1"}).status_code == 401
    for path in OPEN:
        assert private.get(path).status_code == 200, path


def test_a_reader_reads_and_does_nothing_else(private):
    private.headers.update(bearer(READER.token))
    for path in READING:
        assert private.get(path).status_code == 200, path
    assert private.post("/search", json={"id": "i1"}).status_code == 200
    assert "role read" in refused(private.post("/feedback", content=next(events(1))), 403, "forbidden")
    assert "role read" in refused(private.delete("/items/i1"), 403, "forbidden")
    assert "role read" in refused(private.post("/models/shop/pin"), 403, "forbidden")


def test_a_browser_reads_by_a_cookie_that_cannot_write_nor_give_the_token(private):
    refused(private.post("/session"), 401, "unauthorized")
    session = private.post("/session", headers=bearer(TOKEN))
    assert session.status_code == 204
    set_cookie = session.headers["set-cookie"]
    assert "HttpOnly" in set_cookie
    assert "SameSite=strict" in set_cookie
    assert TOKEN not in set_cookie
    assert private.get("/models").status_code == 200
    assert private.get("/search?id=i1").status_code == 200
    refused(private.post("/feedback", content=next(events(1))), 401, "unauthorized")
    refused(private.post("/models/shop/pin"), 401, "unauthorized")
    (name, value) = set_cookie.partition(";")[0].split("=", 1)
    private.cookies.clear()
    for cookie in (f"{name}={value[:-1]}", f"{name}=", f"other={value}", "a;;;=b", f"{name}={TOKEN}"):
        refused(private.get("/models", headers={"cookie": cookie}), 401, "unauthorized")


def test_cookies_of_other_programs_on_the_host_do_not_hide_the_one_of_a_node(private):
    session = private.post("/session", headers=bearer(TOKEN))
    own = session.headers["set-cookie"].partition(";")[0]
    private.cookies.clear()
    for other in (
        'prefs={"theme":1}',
        "list[0]=1",
        "me@host=1",
        "flag",
        "=1",
        'a="',
        "name=Zo\u00eb Smith".encode("latin-1"),
    ):
        other_cookie = other if isinstance(other, bytes) else other.encode()
        for cookies in (other_cookie + b"; " + own.encode(), own.encode() + b";" + other_cookie):
            assert private.get("/models", headers={"cookie": cookies}).status_code == 200, cookies


def test_a_node_without_tokens_needs_no_session(shop):
    with shop.serving() as node, listening(node) as server, client_of(server) as client:
        answer = client.post("/session")
    assert (answer.status_code, answer.headers.get("set-cookie")) == (204, None)


def test_a_token_that_asks_too_often_waits_and_others_do_not(shop):
    page = NamedToken(token="page-0123456789abcdef", role="read", max_per_s=5)
    with (
        shop.serving() as node,
        listening(node, TOKEN, tokens={"page": page}) as server,
        client_of(server) as client,
    ):
        codes = [client.get("/models", headers=bearer(page.token)).status_code for _ in range(20)]
        assert codes[:5] == [200] * 5
        response = client.get("/models", headers=bearer(page.token))
        while response.status_code == 200:
            response = client.get("/models", headers=bearer(page.token))
        assert "'page' may make 5 requests a second" in refused(response, 429, "too_many")
        assert response.headers["retry-after"] == "1"
        assert client.get("/models").status_code == 200
        assert client.get("/models", headers=bearer(TOKEN)).status_code == 200


def test_a_rate_counts_by_the_clock():
    now = 100.0
    access = Access("", {"page": NamedToken(token="t" * 16, role="read", max_per_s=2)}, clock=lambda: now)

    def is_admitted():
        try:
            access.admit(bearer("t" * 16), is_open=True)
        except AccessError:
            return False
        return True

    assert [is_admitted() for _ in range(3)] == [True, True, False]
    now += 0.5
    assert [is_admitted() for _ in range(2)] == [True, False]
    now += 1000.0
    assert [is_admitted() for _ in range(3)] == [True, True, False]


def preflight(client, origin, path="/search"):
    headers = {"origin": origin, "access-control-request-method": "POST",
               "access-control-request-headers": "authorization,content-type"}  # fmt: skip
    return client.options(path, headers=headers)


def test_only_pages_that_are_named_may_ask_from_a_browser(shop):
    with shop.serving() as node, listening(node, TOKEN, origins=(PAGE,)) as server, client_of(server) as client:
        assert preflight(client, PAGE).headers["access-control-allow-origin"] == PAGE
        assert preflight(client, "https://other.example").status_code == 400
        answer = client.get("/search?id=i1", headers={"origin": PAGE})
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers
        answer = client.get("/search?id=nobody", headers={"origin": PAGE})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (404, PAGE)
        answer = client.get("/search?id=i1", headers={"origin": "https://other.example"})
        assert "access-control-allow-origin" not in answer.headers


def test_a_named_page_may_teach_a_node_of_this_machine_and_any_page_may_not(shop):
    (event,) = events(1)
    with shop.serving() as node, listening(node, origins=(PAGE, "*")) as server, client_of(server) as client:
        assert client.post("/feedback", content=event, headers={"origin": PAGE}).status_code == 202
        refusal = refused(
            client.post("/feedback", content=event, headers={"origin": "https://x.example"}), 403, "forbidden"
        )
        assert "node.origins" in refusal
        assert client.get("/models", headers={"origin": "https://x.example"}).status_code == 200


@pytest.mark.parametrize(
    ("private", "origins", "rate", "expected"),
    [
        (True, (), 0, r"node\.private asks for a token.*openssl"),
        (False, ("shop.example",), 0, r"node\.origins holds 'shop\.example', expected an origin such as"),
        (False, ("https://shop.example/",), 0, "without a path"),
        (False, ("https://*.example",), 0.5, r"node\.tokens\.page\.max_per_s is 0\.5, expected 1 to"),
        (False, (), float("nan"), r"max_per_s is nan"),
        (False, (), -1, r"max_per_s is -1"),
    ],
)
def test_settings_that_nobody_can_mean_are_refused(private, origins, rate, expected):
    named = {"page": NamedToken(token="t" * 16, role="read", max_per_s=rate)} if not private else {}
    with pytest.raises(ConfigurationError, match=expected):
        check_pages(private, origins, named, Access("", named))


def test_an_answer_that_a_client_has_is_not_sent_again_until_something_moves(shop):
    with shop.serving() as node, listening(node) as server, client_of(server) as client:
        first = client.get("/search?id=i1")
        tag = {"if-none-match": first.headers["etag"]}
        assert first.headers["cache-control"] == "no-cache"
        again = client.get("/search?id=i1", headers=tag)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        assert client.get("/search?id=i1&expand=3", headers=tag).status_code == 200
        own = first.headers["etag"]
        # Lists with and without a space, a tag that a proxy turned into a strong one, and a star for any tag.
        for tags in (f'"x", {own}', f'"x",{own},"y"', own.removeprefix("W/"), "*"):
            assert client.get("/search?id=i1", headers={"if-none-match": tags}).status_code == 304
        for other in (f'"{own}"', own[:-2] + '"', own.strip('W/"'), '"*"', ""):
            assert client.get("/search?id=i1", headers={"if-none-match": other}).status_code == 200
        assert client.get("/search?id=nobody", headers={"if-none-match": "*"}).status_code == 404
        described = client.get("/schema").json()["paths"]["/search"]["get"]
        assert "ETag" in described["responses"]["200"]["headers"]
        assert "304" in described["responses"]
        assert "If-None-Match" in [parameter["name"] for parameter in described["parameters"]]
        shop.learn()
        shop.publish()
        node._refresher.refresh("shop")
        moved = client.get("/search?id=i1", headers=tag)
        assert moved.status_code == 200
        assert moved.headers["etag"] != first.headers["etag"]


def test_an_answer_from_before_a_model_was_deleted_is_not_taken_for_a_later_one(shop):
    with shop.serving(patience_s=60.0) as node, listening(node) as server, client_of(server) as client:
        answers = []
        for seed in (1, 2):
            shop.learner.learn_many(triplets(20, seed=seed), shop.catalogue.features)
            shop.publish()
            until(serves(node, 20))
            answers.append(client.get("/search?id=i1"))
            shop.store.delete("shop")
            until(lambda: node.loaded("shop") is None)
            shop.begin_again()
            shop.publish()
        first, second = (answer.json() for answer in answers)
        assert (first["version"], first["serial"]) == (second["version"], second["serial"])
        assert first["items"] != second["items"]
        assert answers[0].headers["etag"] != answers[1].headers["etag"]


def test_long_answers_are_packed_for_who_can_unpack_them(shop):
    with shop.serving() as node, listening(node) as server, client_of(server) as client:
        packed = client.get("/schema", headers={"accept-encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) < len(packed.content) / 3
        plain = client.get("/schema", headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.json() == packed.json()
        for refusal in ("gzip;q=0", "gzip; q=0.0, identity", "br, GZIP ;Q=0.000"):
            unpacked = client.get("/schema", headers={"accept-encoding": refusal})
            assert ("content-encoding" in unpacked.headers, unpacked.headers["vary"]) == (False, plain.headers["vary"])
        for accepted in ("gzip;q=0.5", "br;q=0, gzip", "deflate, gzip;q=1.0"):
            assert client.get("/schema", headers={"accept-encoding": accepted}).headers["content-encoding"] == "gzip"
        short = client.get("/search?id=i1&k=3", headers={"accept-encoding": "gzip"})
        assert "content-encoding" not in short.headers


def test_refusals_are_problems_as_the_standard_describes_them(shop):
    with shop.serving() as node, listening(node) as server, client_of(server) as client:
        response = client.get("/search?id=nobody")
        assert response.headers["content-type"] == "application/problem+json"
        answer = response.json()
        assert (answer["title"], answer["status"], answer["error"]) == ("Not Found", 404, "unknown_item")
        assert answer["detail"] == answer["message"]
        meanings = client.get("/schema").json()["components"]["schemas"]["Error"]["properties"]
        assert "clients of RFC 9457" in meanings["detail"]["description"]
        assert client.get("/nowhere").json()["status"] == 404
