"""Searching sets on a node: one vector for each set, or for the query too, re-ranking, and the exact search."""

from __future__ import annotations

import numpy as np
import pytest

from omdml import SetNet
from omdml.snapshot import Snapshot
from omdml.streams.catalogues.building.build import add_items, build_catalogue
from omdml.streams.catalogues.changes.change import Change
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.node.node import RetrievalNode
from omdml.workers.node.searching.answers import Paging
from omdml.workers.node.searching.options import SearchError
from tests.naive.sets import greedy
from tests.support.catalogues.changing import change
from tests.support.learning.judged import judged_by_label, labelled
from tests.support.shops import Shop, asking, refused
from tests.support.waiting import until, wait_until_ready

SETS = 80


class Album:
    """Faces of twelve people, photographs that are sets of faces, and a model that a node can serve."""

    def __init__(self, folder, sets=True) -> None:
        self.features, self.label = labelled()
        draw = np.random.default_rng(3)
        rows = [draw.choice(len(self.label), draw.integers(2, 6), replace=False) for _ in range(SETS)]
        photos = {f"p{i}": [f"f{row}" for row in some] for i, some in enumerate(rows)}
        ids = [f"f{row}" for row in range(len(self.label))]
        self.catalogue = build_catalogue(
            folder / "faces", self.features, ids=ids, sets=photos if sets else None, scaling="none"
        )
        self.learner = SetNet(dims={"signal": 6, "noise": 10}, rank=16)
        self.learner.learn_many(judged_by_label(self.label, 300), self.catalogue.features)
        self.store = MemoryStore()
        self.epoch = self.store.claim("album").epoch
        self.publish()

    def publish(self) -> int:
        """Publish what was learned so far; returns its version."""
        snapshot = Snapshot(
            model="album", learner="setnet", version=self.learner.version, generation=self.catalogue.generation,
            event_time=None, oldest_event_time=None, progress={}, metric=self.learner.metric,
        )  # fmt: skip
        self.store.publish(snapshot, self.epoch)
        return snapshot.version

    def delete_one_of_no_set(self) -> None:
        """Delete the first item that is an element of no set."""
        alone = next(item for item in self.catalogue.ids if not self.catalogue.in_sets(item))
        change(self.catalogue, Change(id=alone, delete=True))

    def node(self) -> RetrievalNode:
        """A node that is not started."""
        return RetrievalNode(self.store, lambda model: self.catalogue, ["album"], poll_interval_s=0.02)

    def vectors(self, rows):
        """The vectors of single items, each as a set of its own."""
        return self.learner.metric.embed({name: x[rows] for name, x in self.catalogue.features.items()})

    def by_sum(self, query):
        """Scores of all sets for a query of several elements."""
        sets = self.learner.metric.embed_sets(self.catalogue.features, list(self.catalogue.sets.values()))
        return self.learner.metric.score_sets(self.vectors(query), sets)

    def by_elements(self, query):
        """The exact scores of all sets."""
        elements = self.vectors(query)
        return np.array([greedy(elements @ self.vectors(rows).T) for rows in self.catalogue.sets.values()])


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    return Album(tmp_path_factory.mktemp("album"))


@pytest.fixture(scope="module")
def node(album):
    with album.node() as node:
        wait_until_ready(node)
        yield node


def ranked(scores, k):
    """Ids and distances of the best sets."""
    order = np.argsort(-scores, kind="stable")[:k]
    return [f"p{i}" for i in order], -scores[order]


def assert_answer(answer, scores, k):
    ids, distances = ranked(scores, k)
    assert [item.id for item in answer.items] == ids
    np.testing.assert_allclose([item.distance for item in answer.items], distances, rtol=1e-4)


def test_sets_are_answered_by_the_sum_of_their_scores_for_each_element(album, node):
    assert_answer(node.search(ids=["f3", "f77"], k=7), album.by_sum([3, 77]), 7)
    assert_answer(node.search(ids=["f3", "f77"], k=7, by="vector"), album.by_sum([3, 77]), 7)


def test_sets_are_excluded_by_their_names_and_answered_in_pages(node):
    query = {"ids": ["f3", "f77"]}
    whole = [item.id for item in node.search(**query, k=SETS).items]
    answer = node.search(**query, k=3, page=Paging(offset=2, exclude=[whole[0], whole[3], "f3"]))
    assert [item.id for item in answer.items] == [name for name in whole if name not in (whole[0], whole[3])][2:5]


def test_an_aggregated_query_is_one_vector_of_all_its_elements(album, node):
    metric, table = album.learner.metric, album.catalogue.features
    query = metric.embed_sets(table, [np.array([3, 77, 150])])
    scores = metric.score_sets(query, metric.embed_sets(table, list(album.catalogue.sets.values())))
    assert_answer(node.search(ids=["f3", "f77", "f150"], by="aggregate"), scores, 10)


def test_the_exact_search_matches_elements_greedily_each_once(album, node):
    assert_answer(node.search(ids=["f3", "f4", "f77"], k=SETS, by="elements"), album.by_elements([3, 4, 77]), SETS)


@pytest.mark.parametrize("by", ["vector", "aggregate"])
def test_reranking_everything_is_the_exact_search(node, by):
    query = {"ids": ["f3", "f77"], "k": 9}
    exact = node.search(by="elements", **query)
    assert node.search(by=by, rerank=SETS, **query).items == exact.items


def test_reranking_orders_the_best_again_and_leaves_the_others_out(album, node):
    top, _ = ranked(album.by_sum([3, 77]), 12)
    exact = album.by_elements([3, 77])
    expected = sorted(top, key=lambda name: (-exact[int(name[1:])], int(name[1:])))[:5]
    assert [item.id for item in node.search(ids=["f3", "f77"], k=5, rerank=12).items] == expected


def test_a_set_in_the_query_stands_for_its_elements_and_is_no_answer(album, node):
    rows = album.catalogue.sets["p5"]
    scores = album.by_sum(np.sort(rows))
    scores[5] = -np.inf
    assert_answer(node.search(ids=["p5"], k=6), scores, 6)
    assert len(node.search(ids=["p5", "f1"], k=1000).items) == SETS - 1


def test_raw_vectors_are_an_element(album, node):
    raw = {name: x[3].tolist() for name, x in album.features.items()}
    assert_answer(node.search(features=raw, k=5), album.by_sum([3]), 5)


def test_a_catalogue_without_sets_answers_items_as_sets_of_one(tmp_path):
    album = Album(tmp_path, sets=False)
    with album.node() as node:
        wait_until_ready(node)
        scores = album.learner.metric.score_sets(album.vectors([3]), album.vectors(np.arange(240)))
        scores[3] = -np.inf
        order = np.argsort(-scores, kind="stable")[:5]
        for by in ("vector", "elements"):
            assert [item.id for item in node.search(ids=["f3"], k=5, by=by).items] == [f"f{row}" for row in order]


def test_new_versions_and_added_sets_go_live(tmp_path):
    album = Album(tmp_path)
    with album.node() as node:
        wait_until_ready(node)
        twin = {name: x[:1] for name, x in album.features.items()}
        add_items(album.catalogue.path, twin, ids=["new"], sets={"p80": ["new"]})
        album.catalogue.refresh()
        until(lambda: node.search(ids=["f0"], k=1).items[0].id == "p80")
        album.learner.learn_many(judged_by_label(album.label, 100, seed=1), album.catalogue.features)
        version = album.publish()
        until(lambda: node.view().snapshot.version == version)
        assert_answer(node.search(ids=["f9"]), album.by_sum([9]), 10)


@pytest.mark.parametrize(
    ("query", "reason", "message"),
    [
        ({"ids": ["f3", "nobody"]}, "unknown_item", "no item 'nobody'"),
        ({"ids": []}, "invalid", "0 query items"),
        ({"ids": ["f3"], "by": "magic"}, "invalid", "expected vector, aggregate or elements"),
        ({"ids": ["f3"], "rerank": 0}, "invalid", "rerank is 0"),
        ({"ids": ["f3"], "by": "elements", "rerank": 5}, "invalid", "rerank is 5"),
        ({"ids": ["f3"], "task": "taste"}, "unknown_task", "has no tasks"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(node, query, reason, message):
    with pytest.raises(SearchError, match=message) as refusal:
        node.search(**query)
    assert refusal.value.reason == reason


def test_sets_are_searched_over_http(node):
    with asking(node) as client:
        body = {"ids": ["f3", "f77"], "k": 4}
        for options in ({}, {"by": "aggregate"}, {"by": "elements"}, {"rerank": 20}):
            answered = client.post("/search", json=body | options).raise_for_status().json()
            expected = node.search(**body, **options)
            assert [item["id"] for item in answered["items"]] == [item.id for item in expected.items]
        assert "by" in refused(client.post("/search", json=body | {"by": "magic"}), 400, "invalid")
        schema = client.get("/schema").json()["components"]["schemas"]["Search"]["properties"]
        assert {"aggregate", "elements", "vector"} <= set(schema["by"]["anyOf"][0]["enum"])


def test_after_an_item_of_no_set_went_all_sets_are_listed(tmp_path):
    album = Album(tmp_path)
    node = album.node()
    node.view("album")
    album.delete_one_of_no_set()
    node.items._take_in()
    assert list(node.view("album").listed) == list(album.catalogue.sets)


def test_items_that_go_during_an_outage_leave_a_model_of_sets_stale(tmp_path):
    album = Album(tmp_path)
    node = album.node()
    node.view("album")
    node._refresher.fall_behind(["album"])
    album.delete_one_of_no_set()
    node.items._take_in()
    assert node.view("album").covers(album.catalogue)
    assert node.stale_seconds > 0


def test_other_metrics_have_no_sets_to_search(tmp_path):
    with Shop(tmp_path).serving() as node, pytest.raises(SearchError, match="are for models of sets"):
        node.search(ids=["i0"], by="elements")
