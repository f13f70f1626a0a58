"""A program that changes items of a real node, asks it several things at once, and compares versions."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from omdml.client import BadRequest, Client, NotFound
from omdml.client.bodies import BATCH, batches
from omdml.feedback import decode
from tests.support.catalogues.changing import plain_catalogue, raw_item
from tests.support.shops import Shop, listening, sent
from tests.support.worlds import items

RNG = np.random.default_rng(5)


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path, items=plain_catalogue)


def ids(answer):
    return [item.id for item in answer.items]


def raw(row):
    features, _ = items()
    return {name: matrix[row] for name, matrix in features.items()}


def test_an_item_that_is_put_is_answered_and_one_that_is_deleted_is_not(client):
    vectors = {name: np.array(x) for name, x in raw_item(RNG).items()}
    answer = client.put_item("new", vectors, {"price": 4})
    assert (answer.put, answer.position) == (1, 1)
    assert ids(client.search(features=vectors, k=1)) == ["new"]
    assert client.put_item("new", attributes={"price": 5}).attributes == 1
    (item,) = client.search(features=vectors, k=1, filter={"price": 5}, fields=["price"]).items
    assert (item.id, item.attributes) == ("new", {"price": 5})
    assert client.delete_item("new").deleted == 1
    assert ids(client.search(features=vectors, k=1)) != ["new"]
    assert client.delete_item("new").unknown == ["new"]
    with pytest.raises(NotFound, match="new"):
        client.search("new")


def test_an_item_and_a_list_of_items_come_with_their_attributes(client):
    client.put_item("i3", attributes={"price": 3, "brand": "acme"})
    assert client.item("i3").attributes == {"price": 3, "brand": "acme"}
    assert client.item("i3", fields=["price"]).attributes == {"price": 3}
    assert client.item("i4").attributes == {}
    assert client.item("none") is None
    listed = client.items(offset=2, limit=2, fields=["brand"])
    assert [(item.id, item.attributes) for item in listed.items] == [("i2", {}), ("i3", {"brand": "acme"})]
    assert (listed.attributes, listed.position) == (["price", "brand"], 1)
    assert [item.id for item in client.items("i17", limit=1).items] == ["i17"]
    with pytest.raises(BadRequest, match="no attribute 'prise'"):
        client.items(fields=["prise"])


def test_garbage_collection_does_not_look_through_the_items_of_an_answer(client):
    assert not any(gc.is_tracked(item) for item in client.search("i1", k=50).items)


def test_changes_of_any_number_go_in_batches_and_are_counted_together(client):
    many = [{"id": f"n{n}", "features": raw_item(RNG)} for n in range(BATCH + 5)]
    answer = client.change_items(iter([*many, {"id": "n3", "delete": True}, {"id": "none", "delete": True}]))
    assert (answer.model, answer.put, answer.deleted, answer.unknown) == ("shop", BATCH + 5, 1, ["none"])
    assert answer.position == BATCH + 6
    assert client.change_items([]).put == 0


def test_a_change_that_cannot_be_made_is_reported_with_its_number(client):
    with pytest.raises(BadRequest, match="2"):
        client.change_items([{"id": "a", "features": raw_item(RNG)}, {"id": "b", "features": {"color": [1.0]}}])
    with pytest.raises(NotFound, match="'a'"):
        client.search("a")


def test_lines_are_cut_into_batches_by_number_and_by_size(monkeypatch):
    monkeypatch.setattr("omdml.client.bodies.BATCH_BYTES", 10)
    assert list(batches([b"1234", b"12345", b"1", b"12345678901", b"2"])) == [
        [b"1234", b"12345"], [b"1"], [b"12345678901"], [b"2"]]  # fmt: skip
    monkeypatch.setattr("omdml.client.bodies.BATCH", 2)
    assert list(batches([b"1"] * 5)) == [[b"1"] * 2, [b"1"] * 2, [b"1"]]


def test_several_queries_are_answered_under_one_version_as_each_alone(client):
    queries = ["i5", ["i6", "i7"], raw(9)]
    each = client.search_each(queries, 5, exclude=["i8"])
    alone = [client.search("i5", 5, exclude=["i8"]), client.search(["i6", "i7"], 5, exclude=["i8"]),
             client.search(None, 5, features=raw(9), exclude=["i8"])]  # fmt: skip
    assert [ids(answer) for answer in each] == [ids(answer) for answer in alone]
    assert {answer.version for answer in each} == {0}


def test_parts_add_up_to_the_distance_and_a_query_may_mix_items_and_vectors(client):
    for item in client.search("i5", 3, features=raw(9), explain=True).items:
        assert sum(item.parts.values()) == pytest.approx(item.distance, rel=1e-4)
    assert client.search("i5", 1).items[0].parts == {}
    assert ids(client.search("i5", 10, expand=5)) != ids(client.search("i5", 10))


def test_every_kind_of_feedback_may_say_whose_it_is(shop, client):
    client.triplet("i1", "i2", "i3", user="anna")
    client.ranking("i1", ["i2"], ["i3", "i4"], user="anna")
    client.page("i1", ["i2", "i3"], ["i3"], user="anna")
    client.triplet("i1", "i2", "i3")
    users = [decode(payload).user for payload in sent(shop)]
    assert users == ["anna", "anna", "anna", None]
    with pytest.raises(BadRequest, match="user"):
        client.triplet("i1", "i2", "i3", user="x" * 201)


def test_two_versions_are_compared_item_by_item(shop):
    for _ in range(2):
        shop.learn()
        shop.publish()
    with shop.serving() as node, listening(node) as server, Client(server.url) as client:
        comparison = client.compare("i5", 20, k=5, model="shop")
        assert (comparison.before.version, comparison.after.version) == (20, 40)
        assert [item.id for item in comparison.after.items] == ids(client.search("i5", 5))
        in_both = [item for item in comparison.moved if item.before and item.after]
        assert in_both
        assert [item.rose for item in in_both] == [item.before - item.after for item in in_both]
        assert client.compare("i5", 20, 20, model="shop").moved == []
