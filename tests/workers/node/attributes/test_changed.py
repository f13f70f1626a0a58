"""Attributes that come with changes of items, over those of a file."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.streams.catalogues.changes.change import Change, ShownRows
from omdml.workers.node.attributes.layers import ChangedAttributes
from omdml.workers.node.attributes.table import Attributes
from omdml.workers.node.searching.answers import single
from tests.support.catalogues.changing import Twin, change, plain_catalogue, raw_item
from tests.support.deep import examples
from tests.support.shops import Shop, asking, refused
from tests.support.worlds import ITEMS

FILE = [{"id": f"i{n}", "price": n % 7, "brand": "ab"[n % 2], "kept": True} for n in range(0, ITEMS, 2)]
VECTORS = raw_item(np.random.default_rng(3))


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path, items=plain_catalogue)


def attributes_of_file():
    return Attributes((msgspec.json.encode(line) for line in FILE), "file")


def matching(client, condition, **more):
    """Ids of all items that match a filter, but the query."""
    body = {"id": "i0", "k": 500, "filter": condition, **more}
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
        query = {"id": "i3", "k": ITEMS, "fields": ["price", "tags"], "filter": {"tags": {"has": "red"}}}
        (hit,) = client.post("/search", json=query).json()["items"]
        assert hit["attributes"] == {"price": 4, "tags": ["red"]}
        client.put("/items/new", json={"features": VECTORS})
        assert matching(client, {"price": {"lt": 5}}) == {"new", "i3"}
        client.put("/items/i3", json={"attributes": {}})
        assert matching(client, {"price": {"exists": True}}) == {"new"}


# The most changes that these items remember. They are so few that a look may come too late for some.
REMEMBERED = 10


class Items:
    """What layers ask of a catalogue: ids of rows, and the attributes that changes brought."""

    def __init__(self, ids):
        self.ids, self.attributes, self.shown, self.changed = ids, {}, ShownRows(), []

    def rows(self, ids):
        return np.array([self.ids.index(item) if item in self.ids else -1 for item in ids], np.int64)

    def change(self, item, attributes):
        if attributes is None:
            self.attributes.pop(item, None)
        else:
            self.attributes[item] = attributes
        self.changed.append(item)
        self.shown = self.shown._replace(attributed=len(self.changed))

    def attributed_since(self, count):
        return None if len(self.changed) - count > REMEMBERED else set(self.changed[count:])


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 39), st.one_of(st.none(), st.integers(0, 6))), min_size=1, max_size=12),
        max_size=20,
    )
)
def test_layers_hold_the_last_attributes_however_changes_were_spread(looks):
    ids = [f"i{n}" for n in range(40)]
    catalogue, changed, file = Items(ids), ChangedAttributes(), attributes_of_file()
    in_file = {line["id"]: line["price"] for line in FILE}
    for look in looks:
        for number, price in look:
            catalogue.change(f"i{number}", None if price is None else {"price": price})
        layers = changed.over(file, catalogue)
        expected = [catalogue.attributes[i]["price"] if i in catalogue.attributes else in_file.get(i) for i in ids]
        assert [values.get("price") for values in layers.of(ids, ["price"])] == expected
        result = layers.mask({"price": {"gte": 4}}, catalogue, len(ids))
        assert result.tolist() == [price is not None and price >= 4 for price in expected]


def test_a_change_of_one_among_many_makes_one_small_layer():
    catalogue, changed = Items([f"i{n}" for n in range(1_000)]), ChangedAttributes()
    for item in catalogue.ids:
        catalogue.change(item, {"price": 1})
    (whole,) = changed.over(None, catalogue).changed
    for count in range(1, 101):
        catalogue.change(f"i{count}", {"price": 2})
        first, *others = changed.over(None, catalogue).changed
        assert first is whole
        assert len(others) <= 3
    assert sum(values["price"] == 2 for values in changed.over(None, catalogue).of(catalogue.ids, ["price"])) == 100


@pytest.mark.parametrize("seed", range(examples(10)))
def test_random_changes_filter_as_a_dict_would(shop, seed):
    draw, twin = np.random.default_rng(seed), Twin()
    attributes = {line["id"]: {name: line[name] for name in line if name != "id"} for line in FILE}
    documents = attributes_of_file()
    first = Change(id="i1", attributes={"size": "L"})
    change(shop.catalogue, first)
    twin.make(first)
    with shop.serving(attributes=lambda model: documents) as node:
        for _ in range(25):
            item_id = f"i{draw.integers(2, ITEMS + 20)}"
            new = {"price": int(draw.integers(7)), "size": "SML"[draw.integers(3)]} if draw.random() < 0.7 else None
            kind = draw.random()
            item_change = Change(id=item_id, features=raw_item(draw), attributes=new)
            if kind < 0.2:
                item_change = Change(id=item_id, delete=True)
            elif kind < 0.5 and item_id in twin.vectors:
                item_change = Change(id=item_id, attributes=new or {})
            change(shop.catalogue, item_change)
            node._live.take_in_all()
            twin.make(item_change)
            condition = {"any": [{"price": {"gte": 4}}, {"size": "M"}], "not": {"brand": "a"}}
            attributes_of = {name: twin.attributes.get(name, attributes.get(name, {})) for name in twin.vectors}
            expected = {
                name
                for name, values in attributes_of.items()
                if (values.get("price", -1) >= 4 or values.get("size") == "M") and values.get("brand") != "a"
            }
            view = node.view()
            result = node.answers(view, [node.attributes.filtered(view, view.items(["i0"]), condition)], 500)
            hits = single(node.attributes.with_fields(view, result, ["price", "size", "brand"])).items
            assert {hit.id for hit in hits} == expected - {"i0"}
            for hit in hits:
                values = attributes_of[hit.id]
                assert hit.attributes == {name: values[name] for name in ("price", "size", "brand") if name in values}


def test_an_item_put_again_is_filtered_rightly_before_searches_find_its_new_row(shop):
    change(shop.catalogue, *(Change(id=f"i{n}", attributes={"sold": n % 2 == 0}) for n in range(ITEMS)))
    put_again, deleted = ("new", "newer"), "newest"
    with shop.serving() as node:
        assert "i1" in filtered(node, node.view(), {"sold": False})
        change(
            shop.catalogue, *(Change(id=i, features=VECTORS, attributes={"sold": True}) for i in (*put_again, deleted))
        )
        node._live.take_in_all()
        view = node.view()
        before = filtered(node, view, {"not": {"sold": True}})
        change(shop.catalogue, *(Change(id=item, features=VECTORS, attributes={"sold": True}) for item in put_again))
        assert filtered(node, view, {"not": {"sold": True}}) == before
        change(shop.catalogue, Change(id=deleted, delete=True))
        change(shop.catalogue, Change(id=put_again[0], attributes={"sold": False}))
        assert filtered(node, view, {"not": {"sold": True}}) == before | {put_again[0]}


def filtered(node, view, condition):
    """Ids of all items that match a filter in this view, but the query."""
    return {hit.id for hit in view.search(node.attributes.filtered(view, view.items(["i0"]), condition), 500).items}
