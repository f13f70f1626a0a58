"""Filters that an index applies itself, so that enough candidates remain."""

from __future__ import annotations

import json
import math
from contextlib import closing

import numpy as np
import pytest

from omdml.streams.protocols.index import Compared, Indexed, Joined
from omdml.workers.node.attributes.index_filters import pushed_down
from omdml.workers.node.attributes.table import Attributes
from omdml.workers.node.galleries.candidates import CandidateIndex
from tests.support.catalogues.candidates import GALLERY, serving, step
from tests.support.catalogues.indexes import Postgres, Sync
from tests.support.waiting import wait_until_ready
from tests.support.worlds import ITEMS

# One process runs the tests of indexes, with one PostgreSQL.
pytestmark = pytest.mark.xdist_group("indexes")

FILTERS = (
    {"price": 5},
    {"price": {"gte": 20, "lt": 40.5}},
    {"price": {"ne": 7}},
    {"price": {"in": [3, 4.5, 90]}},
    {"brand": "acme"},
    {"brand": {"in": ["q\"uo'te\\", "zeta"]}, "sale": True},
    {"brand": {"gt": "acme", "lte": "zeta"}},
    {"sale": {"ne": True}},
    {"tags": "red"},
    {"tags": {"has": ["red", "gr'ün"]}},
    {"not": {"tags": {"exists": True}}},
    {"any": [{"brand": "acme"}, {"not": {"price": {"lt": 60}}}]},
    {"all": [{"sale": False}, {"price": {"exists": True}}], "brand": {"exists": False}},
    {"a.b c": {"gt": 3}},
)
BRANDS, TAGS = ("acme", "q\"uo'te\\", "zeta", None), (["red"], ["gr'ün", "blue"], [], None)


def offered(ids):
    """Attributes of every kind, which some items lack."""
    for row, name in enumerate(ids):
        attributes = {
            "price": row % 50,
            "brand": BRANDS[row % 4],
            "tags": TAGS[row % 3],
            "sale": (True, False, None)[row % 3],
        }
        attributes |= {"a.b c": row % 7, "since": f"2026-11-{row % 28 + 1:02}"}
        yield (
            name,
            {key: value for key, value in attributes.items() if value is not None and (row % 5 or key == "brand")},
        )


@pytest.mark.parametrize("asked", FILTERS, ids=str)
def test_an_index_finds_the_items_that_a_filter_leaves(shop, real_database, asked):
    table = Attributes((json.dumps({"id": name} | has).encode() for name, has in offered(shop.catalogue.ids)), "test")
    with Sync(shop, real_database.open(), table) as sync:
        sync.step()
    condition = pushed_down(asked, table.columns)
    assert condition.whole
    reader = real_database.open().reader()
    indexed = reader.live()
    ids = reader.nearest_among(indexed, np.zeros(indexed.width, np.float32), ITEMS, condition.condition)
    right = np.flatnonzero(table.mask(asked, shop.catalogue, ITEMS))
    assert sorted(ids) == sorted(shop.catalogue.ids[row] for row in right)


KINDS = [{"of": 5}, {"of": "5"}, {"of": True}, {"of": "true"}, {"of": 1e300}, {}]


@pytest.mark.parametrize(
    ("condition", "right"),
    [
        (Compared("of", "eq", (5.0, 6.0)), "a"),
        (Compared("of", "gt", (4.0,)), "ae"),
        (Compared("of", "eq", ("5",)), "b"),
        (Compared("of", "gte", ("",)), "bd"),
        (Compared("of", "eq", (True,)), "c"),
        (Joined("not", (Compared("of", "lt", (6.0,)),)), "bcdef"),
        (Joined("any", (Joined("not", (Compared("of", "exists"),)), Compared("of", "eq", (True,)))), "cf"),
    ],
    ids=str,
)
def test_a_value_of_another_kind_meets_no_condition(shop, real_database, condition, right):
    assert "".join(sorted(among_kinds(real_database, KINDS, condition))) == right


def among_kinds(database, attributes, condition):
    """The items that meet a condition in an index of items with these attributes, which may not be today's."""
    count, names = len(attributes), list("abcdefg"[: len(attributes)])
    with closing(database.open()) as index, closing(database.open().reader()) as reader:
        rows = index.draft(2)
        index.write(rows._replace(ids=names, embedding=np.zeros((count, 2), np.float32), attributes=attributes))
        index.switch(
            Indexed(
                model="shop", task=None, version=1, serial=1, digest="", generation="", items=count, width=2, moved=0,
                bound=0,
            )
        )  # fmt: skip
        return reader.nearest_among(reader.live(), np.zeros(2, np.float32), count, condition)


@pytest.mark.parametrize("condition", [Compared("of", "eq", ("5",)), Compared("of", "lt", (6.0,))], ids=str)
def test_lancedb_cannot_compare_an_attribute_that_was_a_list(lance, condition):
    """It is asked for more candidates instead, until the next sync."""
    assert among_kinds(lance, [{"of": ["5"]}, {"of": "5"}], condition) is None


def test_what_a_filter_says_of_dates_is_left_to_the_node(shop):
    table = Attributes((json.dumps({"id": name} | has).encode() for name, has in offered(shop.catalogue.ids)), "test")
    since = {"since": {"gte": "2026-11-10"}}
    assert pushed_down(since, table.columns) is None
    assert not pushed_down({"brand": "acme"} | since, table.columns).whole
    assert pushed_down({"not": since, "any": [{"brand": "acme"}, since]}, table.columns) is None
    assert pushed_down({"price": {"lt": math.inf}}, table.columns) is None


def assert_nearest(shop, node, table, asked):
    """A node answers i3 with the ten nearest items that a filter leaves."""
    view = node.view()
    answer = node.answer(view, node.attributes.filtered(view, view.query(["i3"]), asked), 10)
    right = table.mask(asked, shop.catalogue, ITEMS)
    near = [item for item in shop.expected(20, "i3", ITEMS)[0] if right[int(item[1:])]]
    assert [item.id for item in answer.items] == near[:10]


def test_a_filter_is_pushed_down_so_that_enough_candidates_remain(shop, real_database, monkeypatch):
    monkeypatch.setattr(f"{GALLERY}.MOST", 40)
    monkeypatch.setattr(f"{GALLERY}.MOST_COMPARED", 0)
    table = Attributes((json.dumps({"id": name} | has).encode() for name, has in offered(shop.catalogue.ids)), "test")
    with Sync(shop, real_database.open(), table, moved=0.0) as sync:
        sync.step()
    with serving(shop, real_database, attributes=lambda model: table) as node:
        wait_until_ready(node)
        # Of the forty nearest items, not ten are on sale.
        assert_nearest(shop, node, table, {"sale": True})


def shares(shop, near):
    """Attributes that say which items are even, and which are the farthest third from an item."""
    far = set(shop.expected(20, near, ITEMS)[0][2 * ITEMS // 3 :])
    lines = ({"id": name, "even": row % 2 == 0, "far": name in far} for row, name in enumerate(shop.catalogue.ids))
    return Attributes((json.dumps(line).encode() for line in lines), "test")


def test_an_index_filters_only_if_too_few_of_its_nearest_match(shop, real_database, monkeypatch):
    monkeypatch.setattr(f"{GALLERY}.MOST_COMPARED", 0)
    filtered = []

    def watched(index, *question):
        filtered.append(question[-1])
        return asked(index, *question)

    asked = CandidateIndex.nearest_among
    monkeypatch.setattr(CandidateIndex, "nearest_among", watched)
    table = shares(shop, "i3")
    with Sync(shop, real_database.open(), table, moved=0.0) as sync:
        sync.step()
    with serving(shop, real_database, attributes=lambda model: table) as node:
        wait_until_ready(node)
        assert_nearest(shop, node, table, {"even": True})
        assert not filtered
        monkeypatch.setattr(f"{GALLERY}.DEPTH", 20)
        assert_nearest(shop, node, table, {"far": True})
        assert filtered == [pushed_down({"far": True}, table.columns).condition]


def test_an_older_pgvector_is_asked_for_more_candidates(shop, postgres, monkeypatch):
    monkeypatch.setattr("omdml.streams.indexes.postgresql.reader.ITERATIVE", (99, 0))
    database = Postgres(postgres.url)
    step(shop, database)
    with closing(database.open().reader()) as reader:
        indexed = reader.live()
        place = np.zeros(indexed.width, np.float32)
        assert reader.nearest_among(indexed, place, 5, Compared("price", "eq", (5.0,))) is None
        assert len(reader.nearest(indexed, place, 5)) == 5
