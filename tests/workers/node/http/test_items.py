"""Items that are put, changed and deleted over HTTP."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest

from omdml.streams.catalogues.changes.journal import locked
from omdml.streams.catalogues.folder import MappedCatalogue
from tests.support.catalogues.changing import Twin, plain_catalogue, random_change, raw_item
from tests.support.shops import Shop, asking, client_of, listening, refused
from tests.support.waiting import until
from tests.support.worlds import ITEMS

VECTORS = raw_item(np.random.default_rng(3))


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path, items=plain_catalogue)


@pytest.fixture
def client(shop):
    with shop.serving() as node, asking(node) as client:
        yield client


def ids_found_by(client, query="i0", k=200):
    """Ids of all that a search finds."""
    return [hit["id"] for hit in client.post("/search", json={"id": query, "k": k}).json()["items"]]


def test_an_item_is_put_found_changed_and_deleted(client):
    answer = client.put("/items/red%20shirt%2F1", json={"features": VECTORS}).json()
    assert answer == {
        "model": "shop", "position": 1, "put": 1, "attributes": 0, "deleted": 0, "unknown": [],
    }  # fmt: skip
    assert ids_found_by(client, k=ITEMS + 5).count("red shirt/1") == 1
    before = client.get("/search", params={"id": "red shirt/1", "k": 1}).json()["items"]
    client.put("/items/red%20shirt%2F1", json={"features": raw_item(np.random.default_rng(4))})
    assert ids_found_by(client, k=ITEMS + 5).count("red shirt/1") == 1
    assert client.get("/search", params={"id": "red shirt/1", "k": 1}).json()["items"] != before

    gone = client.delete("/items/red%20shirt%2F1").json()
    assert (gone["deleted"], gone["unknown"], gone["position"]) == (1, [], 3)
    assert "red shirt/1" not in ids_found_by(client)
    refused(client.get("/search", params={"id": "red shirt/1"}), 404, "unknown_item")
    again = client.delete("/items/red%20shirt%2F1").json()
    assert (again["deleted"], again["unknown"], again["position"]) == (0, ["red shirt/1"], 3)


def test_an_item_is_listed_with_its_attributes_and_a_list_with_its_fields(client):
    for item, attributes in (("i3", {"price": 3, "brand": "acme"}), ("i4", {"price": 4})):
        client.put(f"/items/{item}", json={"attributes": attributes})
    assert client.get("/items", params={"id": "i3"}).json()["values"] == [{"price": 3, "brand": "acme"}]
    assert client.get("/items", params={"id": "i3", "fields": "brand"}).json()["values"] == [{"brand": "acme"}]
    assert client.get("/items", params={"id": "i5"}).json()["values"] == [{}]
    assert client.get("/items", params={"id": "none"}).json()["values"] == []
    several = client.get("/items", params={"offset": 3, "limit": 2, "fields": "price,brand"}).json()
    assert several["values"] == [{"price": 3, "brand": "acme"}, {"price": 4}]
    assert "values" not in client.get("/items").json()
    refused(client.get("/items", params={"fields": "prise"}), 400, "unknown_field")


def test_without_attributes_an_item_has_none_and_fields_are_refused(client):
    assert client.get("/items", params={"id": "i3"}).json()["values"] == [{}]
    refused(client.get("/items", params={"fields": "price"}), 400, "no_attributes")


def test_a_batch_is_made_whole_and_listed(client):
    lines = [{"id": "new", "features": VECTORS}, {"id": "i3", "delete": True}, {"id": "i4", "attributes": {"price": 3}}]
    answer = client.post("/items", content=b"\n".join(map(msgspec.json.encode, lines))).json()
    assert (answer["put"], answer["deleted"], answer["attributes"], answer["position"]) == (1, 1, 1, 3)
    listed = client.get("/items", params={"limit": 1000}).json()
    assert (listed["total"], listed["position"], "new" in listed["items"]) == (ITEMS, 3, True)
    assert "i3" not in listed["items"]
    assert client.get("/models").json()["models"][0]["items"] == ITEMS


def test_a_batch_with_a_bad_line_changes_nothing_and_says_which(client):
    lines = [{"id": "i3", "delete": True}, {"id": "new", "features": {"shape": [1]}}]
    assert "'new', modality 'shape' has 1 numbers" in refused(
        client.post("/items", content=b"\n".join(map(msgspec.json.encode, lines))), 400, "dimension"
    )
    assert "change 2: field 'id': expected text, got a whole number 4" in refused(
        client.post("/items", content=b'{"id":"i3","delete":true}\n{"id":4}'), 400, "invalid"
    )
    assert "i3" in ids_found_by(client)


@pytest.mark.parametrize(
    ("content", "status", "error", "message"),
    [
        (b"", 400, "not_json", "expected {"),
        (b"[]", 400, "invalid", "item 'i1': expected an object, got a list"),
        (b'{"feature": {}}', 400, "invalid", "item 'i1': no field 'feature': did you mean 'features'?"),
        (b'{"texts": {}}', 400, "invalid", '{"text": {"title": "..."}, "picture": "BASE64"} may stand for features'),
        (b"{}", 400, "invalid", "no features, no attributes"),
        (b'{"features":{"shape":[NaN]}}', 400, "not_json", "got 'NaN]}}': JSON has no NaN and no Infinity"),
        (b'{"features":{"shape":[1],"noise":[1]}}', 400, "dimension", "the catalogue's have 5"),
        (b'{"features":{"shape":' + str([1e200] * 9).encode() + b',"noise":[1,2,3,4,5]}}', 400, "not_finite", "shape"),
        (b'{"attributes":{"a":"' + b"x" * (1 << 20) + b'"}}', 413, "oversize", "bytes of attributes"),
        (b" " * (13 << 20), 413, "oversize", "split it"),
    ],
)
def test_a_bad_item_is_refused_with_what_to_do(client, content, status, error, message):
    assert message in refused(client.put("/items/i1", content=content), status, error)
    assert client.get("/items").json()["position"] == 0


def test_getting_an_item_by_its_path_names_the_request_that_does(client):
    for path, query in (("i1", "id=i1"), ("a%20b?model=shop", "id=a%20b&model=shop")):
        assert f"GET /items?{query} answers this item with its attributes" in refused(
            client.get(f"/items/{path}"), 405, "method_not_allowed"
        )
    assert client.get("/items?id=i1").json()["items"] == ["i1"]


def test_a_change_of_items_that_makes_no_sense_is_refused(client):
    refused(client.put("/items/nobody", json={"attributes": {"price": 1}}), 404, "unknown_item")
    refused(client.delete("/items/i1", params={"model": "other"}), 404, "unknown_model")
    refused(client.delete("/items/i1", params={"modell": "shop"}), 400, "unknown_parameter")
    refused(client.post("/items", content=b"\n"), 400, "invalid")
    refused(client.post("/items", content=b'{"id":"x","delete":true}\n' * 10_001), 413, "oversize")
    refused(client.delete("/items/"), 400, "invalid")


def test_whoever_changes_items_must_send_the_token(shop):
    with shop.serving() as node, listening(node, token="secret") as server, client_of(server) as client:
        for verb, path in (("PUT", "/items/i1"), ("DELETE", "/items/i1"), ("POST", "/items")):
            refused(client.request(verb, path), 401, "unauthorized")
        with_token = {"authorization": "Bearer secret"}
        assert client.delete("/items/i1", headers=with_token).json()["deleted"] == 1
        refused(client.delete("/items/i1", headers={"authorization": "Bearer other"}), 401, "unauthorized")


def test_another_node_follows_and_says_its_position(shop, tmp_path):
    shop.publish()
    current = MappedCatalogue(tmp_path / "items")

    def refreshed(model):
        current.refresh()
        return current

    with shop.serving() as node, asking(node) as client, shop.node(catalogues=refreshed) as other, asking(other) as far:
        until(lambda: far.get("/items").status_code == 200)
        answer = client.delete("/items/i3").json()
        until(lambda: far.get("/items").json()["position"] == answer["position"])
        assert "i3" not in ids_found_by(far)


def test_changes_are_refused_while_another_process_adds_items(client, shop, monkeypatch):
    monkeypatch.setattr("omdml.streams.catalogues.folder.LOCK_S", 0.05)
    with locked(shop.catalogue.path):
        assert "try again" in refused(client.delete("/items/i3"), 503, "catalogue")
    assert client.delete("/items/i3").json()["deleted"] == 1


def change_and_search(client, number):
    """Change items that no other client changes, and search after each change.

    Returns the items that there are at the end, and each answer that did not find just the items that there were.
    """
    draw, twin, wrong = np.random.default_rng(number), Twin(), []
    own = {f"own-{number}-{n}" for n in range(5)}
    twin.vectors = {}
    for _ in range(40):
        replaced = msgspec.structs.replace(random_change(draw, twin), id=str(draw.choice(sorted(own))))
        if replaced.features is None and replaced.id not in twin.vectors:
            continue
        answer = client.post("/items", content=msgspec.json.encode(replaced))
        assert answer.status_code == 200, answer.text
        twin.make(replaced)
        ids = [item for item in ids_found_by(client, k=ITEMS + 100) if item in own]
        if sorted(ids) != sorted(twin.vectors):
            wrong.append((number, ids, sorted(twin.vectors)))
    return twin, wrong


def test_confirmed_changes_are_seen_by_every_search_after_them(shop):
    """No deleted item is found, and no item is missing or found twice."""

    def live(number):
        with client_of(server) as client:
            return change_and_search(client, number)

    stop = threading.Event()

    def learn():
        while not stop.is_set():
            shop.learn(1)
            shop.publish()
            stop.wait(0.02)

    with shop.serving(patience_s=0.0) as node, listening(node) as server, ThreadPoolExecutor(5) as pool:
        learning = pool.submit(learn)
        try:
            twins, wrong = zip(*pool.map(live, range(4)), strict=True)
        finally:
            stop.set()
        learning.result()
        assert wrong == ([],) * 4
        assert len(node.view().listed) == ITEMS + sum(len(twin.vectors) for twin in twins)
    whole = Twin()
    for twin in twins:
        whole.vectors |= twin.vectors
        whole.attributes |= twin.attributes
    whole.check(MappedCatalogue(shop.catalogue.path))


def test_changes_are_counted(client):
    client.put("/items/i1", json={"features": VECTORS})
    client.delete("/items/i1")
    client.delete("/items/i1")
    client.put("/items/nobody", json={"attributes": {}})
    text = client.get("/metrics").text
    for outcome in ("put", "deleted", "unknown", "refused"):
        assert f'omdml_node_item_changes_total{{outcome="{outcome}"}} 1.0' in text
    assert "omdml_node_item_change_seconds_count 3.0" in text


def test_the_schema_describes_the_changes(client):
    paths = client.get("/schema").json()["paths"]
    assert paths["/items"]["post"]["requestBody"]["content"]["application/x-ndjson"]["schema"]["$ref"].endswith(
        "Change"
    )
    assert paths["/items/{id}"]["put"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert [parameter["name"] for parameter in paths["/items/{id}"]["delete"]["parameters"]] == ["id", "model"]
