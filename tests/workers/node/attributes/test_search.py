"""Searches with filters and fields, over HTTP and under every kind of gallery."""

from __future__ import annotations

import json

import numpy as np
import pytest

from omdml.workers.node.attributes.table import Attributes
from omdml.workers.node.galleries import gallery as galleries
from omdml.workers.node.galleries.bridge import Bridge, Spread
from omdml.workers.node.galleries.gallery import Gallery, Query, ScoredGallery
from tests.support.catalogues.galleries import Bilinear, features, metric
from tests.support.shops import Shop, asking, refused
from tests.support.worlds import ITEMS

LINES = [
    json.dumps({"id": f"i{number}", "number": number, "even": number % 2 == 0}).encode() for number in range(ITEMS)
]


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


@pytest.fixture
def client(shop):
    table = Attributes(LINES, "file")
    with shop.serving(attributes=lambda model: table) as node, asking(node) as client:
        yield client


def search(client, **body):
    """Search with this body; returns the ids in the answer."""
    return [item["id"] for item in client.post("/search", json={"id": "i5", **body}).raise_for_status().json()["items"]]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({"even": True}, lambda number: number % 2 == 0),
        ({"number": {"gte": 100}}, lambda number: number >= 100),
        ({"number": {"in": [3, 5, 7]}}, lambda number: number in (3, 7)),
        ({"number": {"lt": 0}}, lambda number: False),
        ({}, lambda number: number != 5),
    ],
)
def test_answers_are_the_nearest_of_what_matches_however_few_do(shop, client, condition, holds):
    ranking, _ = shop.expected(0, "i5", ITEMS)
    matching = [item for item in ranking if holds(int(item[1:]))]
    assert search(client, k=7, filter=condition) == matching[:7]
    assert search(client, k=7, offset=4, filter=condition) == matching[4:11]
    assert search(client, k=7, filter=condition, exclude=matching[:2]) == matching[2:9]


def test_fields_come_with_each_answer_and_only_then(client):
    plain = client.post("/search", json={"id": "i5", "k": 2}).json()["items"]
    assert all(set(items) == {"id", "distance"} for items in plain)
    items = client.post("/search", json={"id": "i5", "k": 2, "fields": ["number", "even"]}).json()["items"]
    assert [entry["attributes"]["number"] for entry in items] == [int(item["id"][1:]) for item in plain]
    message = refused(client.post("/search", json={"id": "i5", "fields": ["numbr"]}), 400, "unknown_field")
    assert message == "fields: no attribute 'numbr': did you mean 'number'?"
    message = refused(client.post("/search", json={"id": "i5", "fields": ["zzz"]}), 400, "unknown_field")
    assert message.startswith("fields: no attribute 'zzz'; expected one of ")


def test_a_filter_that_makes_no_sense_and_a_node_without_attributes_say_so(client, shop):
    message = refused(client.post("/search", json={"id": "i5", "filter": {"number": "x"}}), 400, "bad_filter")
    assert message == "filter.number: got 'x', expected a number"
    with shop.node() as node, asking(node) as other:
        message = refused(other.post("/search", json={"id": "i5", "filter": {"number": 3}}), 400, "no_attributes")
    assert "set catalogues.NAME.attributes" in message


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("kind", [Gallery, ScoredGallery])
def test_a_gallery_answers_as_if_it_held_only_what_matches(kind, share, monkeypatch):
    table, draw = features(400), np.random.default_rng(3)
    learned = metric() if kind is Gallery else Bilinear()
    among = draw.random(400) < share
    index, query = kind(learned, table), Query(np.array([7]))
    everything = index.nearest(query, 400)
    wanted = [row for row in everything.rows if among[row]]
    hits = index.nearest(query._replace(among=among), 20)
    assert hits.rows.tolist() == wanted[:20]
    # I expect the same answers if the gallery uses its other way of searching.
    monkeypatch.setattr(galleries, "FEW", 0.0 if share < 0.2 else 1.0)
    again = index.nearest(query._replace(among=among), 20)
    assert again.rows.tolist() == wanted[:20]
    np.testing.assert_allclose(again.distances, hits.distances, rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
def test_over_a_bridge_only_what_matches_is_answered(share):
    table, old = features(300), metric()
    new, among = metric(1, old, 1e-3), np.random.default_rng(5).random(300) < share
    query = Query(np.array([7]), among=among)
    hits = Bridge(Gallery(old, table), old, new, table, Spread(table)).nearest(query, 10)
    assert hits.rows.tolist() == Gallery(new, table).nearest(query, 10).rows.tolist()
