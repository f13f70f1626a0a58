"""The node: it follows its store, answers exactly, and never answers worse because something failed."""

from __future__ import annotations

import math
import threading
import time

import pytest

from omdml.errors import StoreError
from omdml.metrics import ProjectionMetric
from omdml.streams.catalogues.building.build import add_items
from omdml.workers.node.following.making_views import embedded_view
from omdml.workers.node.searching.options import SearchError
from tests.support.nodes import assert_exact, metric_value, pointer, serves
from tests.support.shops import Shop
from tests.support.waiting import until, wait_until_ready
from tests.support.worlds import items


def test_a_node_is_ready_when_something_is_published(tmp_path):
    shop = Shop(tmp_path)
    with shop.node() as node:
        assert node.readiness.missing() == ["shop"]
        with pytest.raises(SearchError, match="is a worker running") as refused:
            node.search(ids=["i0"])
        assert refused.value.reason == "not_ready"
        shop.publish()
        wait_until_ready(node)
        assert_exact(shop, node.search(ids=["i5"], k=7), "i5", 7)


def test_what_is_published_goes_live_without_a_poll(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving(poll_interval_s=3600.0) as node:
        for _ in range(5):
            shop.learn()
            until(serves(node, shop.publish()))
        assert_exact(shop, node.search(ids=["i3"]), "i3")


def test_if_no_hint_comes_the_poll_finds_it(tmp_path, monkeypatch):
    shop = Shop(tmp_path)

    class Deaf:
        def wait(self, timeout_s):
            # A watch may use the time it is given: one that returns at once would have the node poll without end.
            time.sleep(min(timeout_s, 0.01))
            return set()

        def close(self):
            pass

    monkeypatch.setattr(shop.store, "watch", lambda models: Deaf())
    with shop.serving() as node:
        shop.learn()
        until(serves(node, shop.publish()))
        assert node.search(ids=["i0"]).version == shop.learner.version


@pytest.mark.parametrize("patience_s", [0.0, 3600.0], ids=["over bridges", "embedded whole"])
def test_every_answer_is_exact_under_the_version_it_names_while_versions_come(tmp_path, patience_s):
    shop = Shop(tmp_path)
    with shop.serving(patience_s=patience_s) as node:
        done = threading.Event()

        def publish():
            try:
                for _ in range(60):
                    shop.learn(5)
                    shop.publish()
            finally:
                done.set()

        publisher = threading.Thread(target=publish)
        publisher.start()
        versions = set()
        while not done.is_set():
            item = f"i{len(versions)}"
            answer = node.search(ids=[item], k=5)
            versions.add(answer.version)
            assert_exact(shop, answer, item, 5)
        publisher.join()
        until(serves(node, shop.learner.version))
        assert_exact(shop, node.search(ids=["i1"]), "i1")


def test_a_pattern_model_not_asked_for_yet_waits_for_the_store_and_says_why(tmp_path):
    # Given a model that was asked for, another one that was not, and a store that goes away
    shop = Shop(tmp_path, model="user-7")
    for name in ("user-7", "user-8"):
        shop.store.publish(shop.snapshot(model=name), shop.store.claim(name).epoch)
    with shop.node(models=["user-*"]) as node:
        assert node.search("user-7", ids=["i0"]).version == 0
        shop.store.failing = StoreError("refused")
        until(lambda: node.stale_seconds > 0)
        # I expect answers for the first model. The error about the other one says that its first search loads it.
        assert node.search("user-7", ids=["i0"]).version == 0
        with pytest.raises(SearchError, match=r"loaded by its first search\), and its store is out of reach"):
            node.search("user-8", ids=["i0"])
        assert node.readiness.missing() == []


def test_a_failure_nobody_foresaw_is_survived(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving() as node:
        shop.store.failing = ZeroDivisionError()
        until(lambda: node.stale_seconds > 0)
        shop.store.failing = None
        until(lambda: node.stale_seconds == 0)
        assert node.alive


def test_items_added_to_the_catalogue_are_found(tmp_path):
    shop = Shop(tmp_path)

    def refreshed(model):
        shop.catalogue.refresh()
        return shop.catalogue

    shop.publish()
    node = shop.node()
    node._live.catalogues = refreshed
    features, _ = items()
    with node:
        wait_until_ready(node)
        add_items(shop.catalogue.path, {name: matrix[:1] for name, matrix in features.items()}, ids=["twin"])
        until(lambda: node.view().count == 121)
        assert node.search(ids=["i0"], k=1).items[0].id == "twin"


def test_models_of_a_pattern_are_loaded_and_followed_once_asked_for(tmp_path):
    shop = Shop(tmp_path, model="user-7")
    shop.publish()
    with shop.node(models=["user-*"]) as node:
        assert node.readiness.missing() == []
        assert node.search("user-7", ids=["i0"]).version == 0
        shop.learn()
        until(serves(node, shop.publish(), "user-7"))
        with pytest.raises(SearchError, match="no snapshot"):
            node.search("user-8", ids=["i0"])
        with pytest.raises(SearchError, match=r"&model=NAME in a URL.* --model NAME in a command; configured: user-\*"):
            node.search(ids=["i0"])
        # Asking for what is not there makes nothing stale.
        assert node.stale_seconds == 0


def test_models_of_a_pattern_that_were_not_asked_for_lately_make_room(tmp_path):
    shop = Shop(tmp_path, model="user-0")
    for number in range(4):
        name = f"user-{number}"
        shop.store.publish(shop.snapshot(model=name), shop.store.claim(name).epoch)
    with shop.node(models=["user-*"]) as node:
        size = node.view("user-0").nbytes
    with shop.node(models=["user-*"], budget_bytes=2 * size) as node:
        for name in ("user-1", "user-0", "user-2", "user-3"):
            node.search(name, ids=["i0"])
        assert [described["model"] for described in node.readiness.describe()] == ["user-2", "user-3"]


def test_a_model_dropped_while_the_node_polls_does_not_come_back(tmp_path):
    shop = Shop(tmp_path, model="user-0")
    shop.publish()
    node = shop.node(models=["user-*"])
    node.view("user-0")
    looked_at = node._live.views.keys() | set()
    node._refresher.forget("user-0")
    for name in looked_at:
        node._follower._refresh(name)
    assert node.loaded("user-0") is None
    assert node.view("user-0").snapshot.version == 0


@pytest.mark.parametrize(
    ("query", "reason", "message"),
    [
        ({"model": "shpo", "ids": ["i0"]}, "unknown_model", "did you mean 'shop'"),
        ({"ids": ["i0", "nope"]}, "unknown_item", "'nope'"),
        ({"ids": ["i0"], "k": 0}, "bad_k", "1 to 10000"),
        ({"ids": ["i0"], "k": 10001}, "bad_k", "1 to 10000"),
        ({"ids": []}, "invalid", "expected 1 to 1000"),
        ({"ids": ["i0"], "task": "taste"}, "unknown_task", "has no tasks"),
        ({}, "invalid", "or both"),
        ({"features": {}}, "missing_modality", "query's features: modality 'noise' is missing"),
        ({"features": {"noise": [0.0] * 4}}, "dimension", "query's features: modality 'noise' has 4 numbers, the cat"),
        ({"features": {"noise": [0.0] * 4}}, "dimension", r"; send one or more of noise \(5 numbers\), shape \(9 num"),
        ({"features": {"noise": [math.nan] * 5}}, "not_finite", "query's features: modality 'noise': column 0 is nan"),
        ({"features": {"sound": [0.0]}}, "invalid", "query's features: modality 'sound' is unknown"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_saying_why(tmp_path, query, reason, message):
    with Shop(tmp_path).serving() as node, pytest.raises(SearchError, match=message) as refused:
        node.search(**query)
    assert refused.value.reason == reason


def test_raw_vectors_are_scaled_as_the_catalogue_was(tmp_path):
    shop = Shop(tmp_path)
    features, _ = items()
    with shop.serving() as node:
        raw = {name: matrix[17].tolist() for name, matrix in features.items()}
        answer = node.search(features=raw, k=3)
        assert answer.items[0].id == "i17"
        assert [item.id for item in answer.items[1:]] == shop.expected(0, "i17", 2)[0]


def test_freshness_is_measured_from_the_oldest_event_to_the_swap(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving() as node:
        # The first snapshot may be old, so it says nothing about freshness.
        assert node.readiness.describe()[0]["freshness"] is None
        shop.learn()
        until(serves(node, shop.publish(oldest_event_time=time.time() - 5.0)))
        until(lambda: node.readiness.describe()[0]["freshness"])
        assert 5.0 <= node.readiness.describe()[0]["freshness"]["p99_s"] < 65.0
        assert metric_value(node, "freshness_seconds_count", model="shop") == 1
        shop.store.move("shop", 0, pin=True)
        until(serves(node, 0))
        assert node.readiness.describe()[0]["freshness"]["count"] == 1


def test_a_view_that_was_taken_answers_the_same_after_a_swap(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving() as node:
        view = node.view()
        shop.learn(200)
        until(serves(node, shop.publish()))
        assert view.search(view.items(["i0"])).version == 0
        assert_exact(shop, view.search(view.items(["i0"])), "i0")


def test_a_metric_with_tasks_answers_each_task(tmp_path):
    shop = Shop(tmp_path)
    shop.learn()

    class Tasks(ProjectionMetric):
        kind = "tasks of a test"
        tasks = ("odd",)

        def embed(self, features, task=None):
            embedded = super().embed(features)
            return embedded[:, :1] if task == "odd" else embedded

    learned = shop.learner.metric
    tasks = shop.snapshot(metric=Tasks(learned.weights, learned.matrices))
    view = embedded_view(pointer(1, tasks.version), tasks, shop.catalogue)
    shared = view.search(view.items(["i0"]), 5)
    odd = view.search(view.items(["i0"]), 5, "odd")
    assert [item.id for item in odd.items] != [item.id for item in shared.items]
    with pytest.raises(SearchError, match="has odd"):
        view.search(view.items(["i0"]), 5, "even")
