"""Before its first snapshot a model answers with the metric that it begins with."""

from __future__ import annotations

from contextlib import suppress

import httpx
import numpy as np
import pytest

from omdml.errors import StoreError
from omdml.streams.catalogues.building.build import add_items
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.node.searching.options import SearchError
from tests.support.nodes import assert_exact, serves, start_node
from tests.support.shops import Shop, asking, refused
from tests.support.waiting import until, wait_until_ready
from tests.support.worlds import items


def beginning(shop, models=("shop",), **options):
    """A node that answers for models of which the store has nothing."""
    return shop.node(models=list(models), first=shop.current.first, **options)


def as_begun(shop, item, k):
    """The ids that are closest by the metric that a model begins with."""
    embedded = shop.current.first(shop.model).metric.embed(shop.catalogue.features).astype(np.float64)
    distances = ((embedded - embedded[int(shop.catalogue.rows([item])[0])]) ** 2).sum(axis=1)
    return [shop.catalogue.ids[row] for row in np.argsort(distances, kind="stable")[1 : k + 1]]


def ids_of(answer):
    return [item.id for item in answer.items]


def test_a_named_model_answers_as_it_begins_until_something_is_published(tmp_path):
    shop = Shop(tmp_path)
    with beginning(shop) as node:
        wait_until_ready(node)
        answer = node.search(ids=["i5"], k=7)
        assert (answer.version, answer.serial, ids_of(answer)) == (0, 0, as_begun(shop, "i5", 7))
        (described,) = node.readiness.describe()
        assert (described["ready"], described["version"], described["items"]) == (True, 0, len(shop.catalogue.ids))
        shop.learn()
        until(serves(node, shop.publish()))
        assert_exact(shop, node.search(ids=["i5"], k=7), "i5", 7)


def test_version_0_can_be_compared_with_though_the_store_no_longer_keeps_it(tmp_path):
    shop = Shop(tmp_path)
    shop.learn(300)
    shop.publish()
    with beginning(shop) as node, asking(node) as client:
        wait_until_ready(node)
        at_start = client.post("/search", json={"id": "i5", "k": 7, "version": 0}).raise_for_status().json()
        assert (at_start["version"], [item["id"] for item in at_start["items"]]) == (0, as_begun(shop, "i5", 7))
        compared = client.get("/models/shop/compare?before=0&id=i5&k=7").raise_for_status().json()
        assert compared["before"]["items"] == at_start["items"]
        assert compared["after"]["version"] == 300
        assert compared["moved"]
        refused(client.get("/search?id=i5&version=7"), 404, "not_kept")


def test_a_node_that_starts_before_its_store_makes_none_and_follows_it_later(tmp_path):
    shop, state = Shop(tmp_path), tmp_path / "state"
    process, port = start_node(tmp_path)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=False) as client:
        try:
            until(process_answers(client, version=0), limit_s=60.0)
            assert not state.exists()
            assert "store_is_empty" in process.said
            shop.store = DirectoryStore(state)
            shop.epoch = shop.store.claim("shop").epoch
            shop.learn()
            until(process_answers(client, shop.publish()))
            assert process.stop() == 0
        finally:
            process.close()


def process_answers(client, version):
    """Whether a node's process answers with this version."""

    def answers():
        with suppress(httpx.TransportError):
            answer = client.get("/search", params={"id": "i5", "k": 1})
            return answer.status_code == 200 and answer.json()["version"] == version

    return answers


def test_every_name_of_a_pattern_can_be_searched_and_none_is_kept(tmp_path):
    shop = Shop(tmp_path, model="user-7")
    with beginning(shop, ["user-*"]) as node:
        answers = [node.search(f"user-{number}", ids=["i5"]) for number in range(20)]
        assert {answer.model for answer in answers} == {f"user-{number}" for number in range(20)}
        assert len({tuple(ids_of(answer)) for answer in answers}) == 1
        assert node.readiness.describe() == []
        views = [node.view(f"user-{number}") for number in range(2)]
        assert views[0].indexes is views[1].indexes
        # What is learned of one of them answers from then on, for this one alone.
        shop.learn()
        shop.publish()
        assert node.search("user-7", ids=["i5"]).version == shop.learner.version
        assert node.search("user-8", ids=["i5"]).version == 0
        with pytest.raises(SearchError, match="no model 'shop' is configured"):
            node.search("shop", ids=["i5"])


def test_a_store_out_of_reach_is_not_taken_for_an_empty_one(tmp_path, monkeypatch):
    shop = Shop(tmp_path)

    def away(model):
        raise StoreError("away")

    monkeypatch.setattr(shop.store, "current", away)
    with beginning(shop) as node:
        with pytest.raises(SearchError) as refused:
            node.search(ids=["i5"])
        assert refused.value.reason == "not_ready"
        assert node.readiness.missing() == ["shop"]


def test_a_snapshot_that_cannot_be_served_does_not_bring_the_beginning_back(tmp_path):
    shop = Shop(tmp_path)
    shop.learn()
    shop.publish()
    shop.damage(shop.snapshot())
    with beginning(shop) as node:
        until(lambda: node.readiness.instead())
        assert node.readiness.missing() == ["shop"]
        with pytest.raises(SearchError, match="no snapshot that can be served"):
            node.search(ids=["i5"])


def test_items_that_are_added_are_found_before_anything_is_learned(tmp_path):
    shop = Shop(tmp_path)
    with beginning(shop) as node:
        node.search(ids=["i5"])
        features, _ = items()
        add_items(tmp_path / "items", {name: x[:1] for name, x in features.items()}, ids=["new"])
        shop.catalogue.refresh()
        assert ids_of(node.search(ids=["new"], k=1)) == ["i0"]


def test_a_model_that_was_deleted_answers_as_it_begins(tmp_path):
    shop = Shop(tmp_path)
    shop.learn()
    shop.publish()
    with beginning(shop) as node:
        wait_until_ready(node)
        shop.store.delete("shop")
        until(lambda: node.search(ids=["i5"]).version == 0)
        assert node.readiness.missing() == []
