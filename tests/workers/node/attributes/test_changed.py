"""Attributes that come with changes of items, over those of a file."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from omdml.streams.catalogues.changes.change import Change
from omdml.workers.node.attributes.table import Attributes
from omdml.workers.node.searching.answers import single
from tests.support.changing import Twin, change, plain_catalogue, raw_item
from tests.support.deep import examples
from tests.support.shops import Shop, asking, refused
from tests.support.worlds import ITEMS

FILE = [{"id": f"i{n}", "price": n % 7, "brand": "ab"[n % 2], "kept": True} for n in range(0, ITEMS, 2)]
VECTORS = raw_item(np.random.default_rng(3))


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path, items=plain_catalogue)


def filed():
    return Attributes((msgspec.json.encode(line) for line in FILE), "file")


def matching(client, asked, **more):
    """Ids of all items that match a filter, but the query."""
    body = {"id": "i0", "k": 500, "filter": asked, **more}
    return {hit["id"] for hit in client.post("/search", json=body).json()["items"]}


def test_attributes_take_effect_with_the_answer_without_any_file(shop):
    with shop.serving() as node, asking(node) as client:
        body = {"id": "i0", "filter": {"price": {"lt": 5}}}
        assert "or put items with attributes" in refused(client.post("/search", json=body), 400, "no_attributes")
        client.put("/items/new", json={"features": VECTORS, "attributes": {"price": 4, "tags": ["red"]}})
        client.put("/items/i3", json={"attributes": {"price": 9.5}})
        assert matching(client, {"price": {"lt": 5}}) == {"new"}
        assert matching(client, {"price": {"exists": True}}) == {"new", "i3"}
        client.put("/items/i3", json={"attributes": {"price": 1}})
        assert matching(client, {"price": {"lt": 5}}) == {"new", "i3"}
        asked = {"id": "i3", "k": ITEMS, "fields": ["price", "tags"], "filter": {"tags": {"has": "red"}}}
        (hit,) = client.post("/search", json=asked).json()["items"]
        assert hit["attributes"] == {"price": 4, "tags": ["red"]}
        client.put("/items/new", json={"features": VECTORS})
        assert matching(client, {"price": {"lt": 5}}) == {"new", "i3"}
        client.put("/items/i3", json={"attributes": {}})
        assert matching(client, {"price": {"exists": True}}) == {"new"}


@pytest.mark.parametrize("seed", range(examples(10)))
def test_random_changes_filter_as_a_dict_would(shop, seed):
    draw, twin = np.random.default_rng(seed), Twin()
    attributes = {line["id"]: {name: line[name] for name in line if name != "id"} for line in FILE}
    told = filed()
    first = Change(id="i1", attributes={"size": "L"})
    change(shop.catalogue, first)
    twin.make(first)
    with shop.serving(attributes=lambda model: told) as node:
        for _ in range(25):
            one = f"i{draw.integers(2, ITEMS + 20)}"
            new = {"price": int(draw.integers(7)), "size": "SML"[draw.integers(3)]} if draw.random() < 0.7 else None
            kind = draw.random()
            made = Change(id=one, features=raw_item(draw), attributes=new)
            if kind < 0.2:
                made = Change(id=one, delete=True)
            elif kind < 0.5 and one in twin.vectors:
                made = Change(id=one, attributes=new or {})
            change(shop.catalogue, made)
            node._refresher.take_in()
            twin.make(made)
            asked = {"any": [{"price": {"gte": 4}}, {"size": "M"}], "not": {"brand": "a"}}
            known = {name: twin.attributes.get(name, attributes.get(name, {})) for name in twin.vectors}
            expected = {
                name
                for name, values in known.items()
                if (values.get("price", -1) >= 4 or values.get("size") == "M") and values.get("brand") != "a"
            }
            view = node.view()
            found = node.answers(view, [node.filtered(view, view.items(["i0"]), asked)], 500)
            hits = single(node.with_fields(view, found, ["price", "size", "brand"])).items
            assert {hit.id for hit in hits} == expected - {"i0"}
            for hit in hits:
                values = {name: known[hit.id][name] for name in ("price", "size", "brand") if name in known[hit.id]}
                assert hit.attributes == values
