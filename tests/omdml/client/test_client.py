"""A program that asks a real node through the client."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest

from omdml.client import (
    BadRequest,
    Client,
    ClientError,
    Denied,
    Item,
    NotFound,
    ParameterError,
    Quadruplet,
    Triplet,
    Unreachable,
)
from omdml.feedback import decode
from omdml.workers.node.attributes.table import Attributes
from tests.support.processes import ROOT, free_port
from tests.support.shops import listening, sent
from tests.support.worlds import items

ATTRIBUTES = [b'{"id":"i%d","even":%s}' % (row, b"true" if row % 2 == 0 else b"false") for row in range(120)]


def ids(answer):
    return [item.id for item in answer.items]


def test_a_search_by_id_answers_what_the_metric_says(shop, client):
    answer = client.search("i5", 3)
    expected, distances = shop.expected(0, "i5", 3)
    assert ids(answer) == expected
    assert [item.distance for item in answer.items] == pytest.approx(distances.tolist(), rel=1e-4)
    assert (answer.model, answer.version, answer.serial) == ("shop", 0, 1)


def test_searches_go_by_several_items_and_by_vectors_too(client):
    features, _ = items()
    vectors = {name: matrix[5].astype(np.float32) for name, matrix in features.items()}
    assert ids(client.search(features=vectors, k=1)) == ["i5"]
    assert not {"i5", "i6"} & set(ids(client.search(["i5", "i6"], 50)))


def test_pages_follow_each_other_and_leave_out_what_is_excluded(client):
    first, second = client.search("i5", 5), client.search("i5", 5, offset=5)
    assert ids(first) + ids(second) == ids(client.search("i5", 10))
    assert ids(client.search("i5", 4, exclude=ids(first)[:1])) == ids(first)[1:]


def test_filters_choose_items_and_fields_come_with_them(shop):
    table = Attributes(ATTRIBUTES, "test")
    with shop.serving(attributes=lambda model: table) as node, listening(node) as server, Client(server.url) as client:
        answer = client.search("i5", 20, filter={"even": True}, fields=["even"])
    assert [item.attributes for item in answer.items] == [{"even": True}] * 20
    assert {int(item.id[1:]) % 2 for item in answer.items} == {0}


def test_a_search_can_name_a_version_and_wait_for_one(shop, client):
    before = client.search("i5")
    shop.learn()
    version = shop.publish()
    after = client.search("i5", min_version=version)
    assert after.version == version > 0
    assert ids(client.search("i5", version=0)) == ids(before)


def test_each_kind_of_feedback_arrives_as_it_was_meant(shop, client):
    assert client.triplet("i1", "i2", "i3") == 1
    assert client.ranking("i1", ["i2", "i4"], ["i3"]) == 1
    assert client.page("i1", ["i2", "i3", "i4"], ["i3"], positions=[3, 1, 2]) == 1
    # These pages say nothing, so they are not sent.
    assert client.page("i1", ["i2", "i3"], []) == client.page("i1", ["i1", "i2", "i3"], ["i2", "i3", "i1"]) == 0
    # This model learns no pairs, and the node says so before anything is written.
    with pytest.raises(BadRequest, match="pair") as refusal:
        client.pair("i1", "i2", similar=True)
    assert refusal.value.reason == "not_accepted"
    events = [decode(line) for line in sent(shop)]
    assert [type(event).__name__ for event in events] == ["Triplet", "Ranking", "Page"]
    triplet, ranking, page = events
    assert (triplet.query, triplet.relevant, triplet.irrelevant) == ("i1", "i2", "i3")
    assert (ranking.query, ranking.relevant, ranking.irrelevant) == ("i1", ("i2", "i4"), ("i3",))
    assert (page.query, page.shown, page.clicked) == ("i1", ("i2", "i3", "i4"), ("i3",))
    assert page.positions == (3, 1, 2)
    assert {event.model for event in events} == {"shop"}


def test_every_event_has_an_id_and_keeps_the_one_it_was_given(shop, client):
    mine = Triplet(model="shop", query="i1", relevant="i2", irrelevant="i3", id="order-77")
    other = Triplet(model="shop", query="i4", relevant="i5", irrelevant="i6")
    assert client.feedback(mine, other, other) == 3
    first, *others = [decode(line).id for line in sent(shop)]
    assert first == "order-77"
    assert len(set(others)) == 2
    assert all(others)


def test_of_a_batch_with_one_bad_event_none_is_taken(shop, client):
    good = Triplet(model="shop", query="i1", relevant="i2", irrelevant="i3")
    bad = Quadruplet(model="elsewhere", near=("i1", "i2"), far=("i3", "i4"))
    with pytest.raises(BadRequest) as refusal:
        client.feedback(good, bad)
    assert [error["number"] for error in refusal.value.answer["errors"]] == [2]
    assert sent(shop) == []


def test_no_events_are_no_request():
    assert Client(f"http://127.0.0.1:{free_port()}").feedback() == 0


def test_models_and_history_say_what_is_live(client):
    (live,) = client.models()
    assert (live.model, live.ready, live.version, live.items, live.pinned) == ("shop", True, 0, 120, False)
    (line,) = client.history()
    assert (line.what, line.version, line.serial) == ("published", 0, 1)


def test_versions_are_rolled_back_pinned_and_unpinned(shop, client):
    shop.learn()
    newest = shop.publish()
    client.search("i5", min_version=newest)
    assert client.rollback(0).version == 0
    assert client.pin(newest).pinned
    assert client.rollback().version == 0
    back = client.unpin()
    assert (back.version, back.pinned) == (newest, False)
    whats = [line.what for line in client.history(last=4)]
    assert whats == ["rolled back", "pinned", "rolled back", "unpinned"]


@pytest.mark.parametrize(
    ("ask", "kind", "reason"),
    [
        (lambda client: client.search("i999"), NotFound, "unknown_item"),
        (lambda client: client.search("i1", model="shoe"), NotFound, "unknown_model"),
        (lambda client: client.search("i1", 0), BadRequest, "bad_k"),
        (lambda client: client.search(), BadRequest, "invalid"),
        (lambda client: client.search("i1", filter={"price": 1}), BadRequest, None),
        (lambda client: client.rollback(77), NotFound, "not_kept"),
    ],
)
def test_a_refusal_has_its_own_type_code_sentence_and_request_id(client, ask, kind, reason):
    with pytest.raises(kind) as refusal:
        ask(client)
    error = refusal.value
    assert reason in (None, error.reason)
    assert error.sentence in str(error)
    assert error.request_id in str(error)
    assert len(error.request_id) == 32
    assert 400 <= error.status < 500


def test_who_comes_without_the_token_may_search_and_no_more(server):
    with Client(server.url, model="shop") as client:
        assert client.search("i5").items
        with pytest.raises(Denied, match="a token is needed"):
            client.triplet("i1", "i2", "i3")


def test_a_call_needs_a_model_if_the_client_has_none(server):
    with Client(server.url) as client, pytest.raises(ParameterError, match="which model"):
        client.history()


def test_what_is_no_node_is_reported_as_it_answers(tmp_path):
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as other:  # fmt: skip
        try:
            with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(ClientError, match="is this a node"):
                client.models()
        finally:
            other.kill()


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "http://host:port", "http://", "", "http://h/?a=1"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(ParameterError, match="expected a URL such as"):
        Client(url)


@pytest.mark.parametrize("limits", [{"timeout_s": 0}, {"retry_s": -1}, {"timeout_s": float("nan")}])
def test_limits_that_are_none_are_refused(limits):
    with pytest.raises(ParameterError, match="timeout_s is"):
        Client("http://localhost", **limits)


def test_a_token_with_a_line_break_is_refused_and_not_shown():
    with pytest.raises(ParameterError, match="the token has a line break") as refusal:
        Client("http://localhost:8080", "secret-token\n")
    assert "secret" not in str(refusal.value)


def test_many_threads_share_one_client(shop, client):
    expected = {row: shop.expected(0, f"i{row}", 5)[0] for row in range(40)}

    def ask(number):
        row = number % 40
        return ids(client.search(f"i{row}", 5)) == expected[row]

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(ask, range(400)))


def test_a_client_outlives_a_node_that_was_restarted(shop):
    with shop.serving() as node, listening(node) as server:
        client = Client(server.url)
        assert client.models()[0].ready
    with shop.node() as again, listening(again, port=server.port):
        assert len(client.search("i0", 5, min_version=0).items) == 5
    client.close()
    with pytest.raises(Unreachable, match=r"did not answer POST /search.*is it up"):
        Client(server.url, retry_s=0).search("i0")


def test_answers_of_a_newer_node_are_read():
    assert msgspec.json.decode(b'{"id":"a","distance":1,"explained":{}}', type=Item) == Item("a", 1.0)


def test_importing_the_client_brings_nothing_heavy():
    heavy = ["numpy", "numba", "scipy", "river", "structlog", "starlette", "kafka", "redis", "rich", "click"]
    script = f"import sys, omdml.client; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_no_id_no_vector_and_no_event_is_refused_before_it_is_sent(client):
    with pytest.raises(ParameterError, match="query is 17, expected the id of an item as text, or a list of ids"):
        client.search(17)
    with pytest.raises(ParameterError, match=r"features\['price'\] is 3, expected the vector of a modality"):
        client.put_item("n1", {"price": 3})
    with pytest.raises(ParameterError, match=r"an event is a list: .*feedback\(\*events\)"):
        client.feedback([Triplet(model="shop", query="i0", relevant="i1", irrelevant="i2")])
    with pytest.raises(ParameterError, match=r"an event is \{'type': 'triplet'\}, expected an object of omdml.client"):
        client.feedback({"type": "triplet"})
