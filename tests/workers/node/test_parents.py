"""Before its first snapshot a model that has a parent answers with what the parent serves."""

from __future__ import annotations

import httpx
import numpy as np
import pytest
from msgspec.structs import replace

from omdml.client import Client
from omdml.learners import DCA
from omdml.snapshot import Snapshot
from omdml.workers.configuration.specs import Specs
from omdml.workers.node.catalogues import CurrentModels
from tests.support.shops import Shop, asking, refused
from tests.support.waiting import until, wait_until_ready
from tests.support.worlds import configuration, triplets

OPTIONS = {"learner": "dca", "coordinates": "features", "rank": 6}
MODELS = {"main": OPTIONS, "shop": {**OPTIONS, "parent": "main"}, "user-*": {**OPTIONS, "parent": "main"}}


class Family(Shop):
    """A parent that publishes, and models that begin from it."""

    def __init__(self, folder) -> None:
        super().__init__(folder, model="main")
        self.current = CurrentModels(Specs(configuration(folder / "items", MODELS), {"items": self.catalogue}))
        self.learner = DCA(dims=dict(self.catalogue.dims), rank=6)
        self.learner.start(self.catalogue.features)

    def snapshot(self, **changes) -> Snapshot:
        return super().snapshot(**{"learner": "dca", **changes})

    def node(self, **options):
        return super().node(list(MODELS), first=self.current.first, parent=self.current.parent, **options)


@pytest.fixture
def family(tmp_path):
    return Family(tmp_path)


def ids_and_distances(answer):
    """The ids and distances in an answer."""
    return [(item.id, item.distance) for item in answer.items]


def test_a_model_that_began_with_a_parent_has_no_version_0_any_more(family):
    family.learn(60)
    with family.serving() as node, asking(node) as client:
        refused(client.post("/search", json={"model": "user-7", "id": "i5", "version": 0}), 404, "not_kept")
        assert client.post("/search", json={"model": "main", "id": "i5", "version": 0}).json()["version"] == 0


def test_names_and_patterns_answer_as_their_parent_does_at_that_moment(family):
    family.learn(60)
    with family.serving() as node:
        for model in ("shop", "user-7"):
            answer, parent = (node.search(name, ids=["i5"], k=9) for name in (model, "main"))
            assert (answer.model, answer.version, answer.serial) == (model, 0, 0)
            assert (answer.parent, answer.parent_version) == ("main", 60)
            assert ids_and_distances(answer) == ids_and_distances(parent)
            assert (parent.parent, parent.parent_version) == (None, None)
        assert {entry["model"]: entry.get("parent") for entry in node.readiness.describe()} == {
            "main": None,
            "shop": "main",
        }
        assert node.view("shop").indexes is node.view("main").indexes
        family.learn(40)
        version = family.publish()
        until(lambda: node.search("main", ids=["i5"]).version == version)
        answer = node.search("user-7", ids=["i5"], k=9)
        assert answer.parent_version == version
        assert ids_and_distances(answer) == ids_and_distances(node.search("main", ids=["i5"], k=9))


def test_a_snapshot_of_its_own_takes_the_place_of_the_parent(family):
    family.learn(60)
    with family.serving() as node:
        assert node.search("user-7", ids=["i5"]).parent == "main"
        child = DCA(dims=dict(family.catalogue.dims), rank=6)
        child.learn_many(triplets(3), family.catalogue.features)
        snapshot = replace(family.snapshot(), model="user-7", version=3, metric=child.metric)
        family.store.publish(snapshot, family.store.claim("user-7").epoch)
        answer = node.search("user-7", ids=["i5"], k=3)
        assert (answer.version, answer.parent) == (3, None)


@pytest.mark.parametrize("why", ["nothing published", "version 0", "another generation"])
def test_a_parent_that_says_nothing_of_these_items_does_not_answer(family, why):
    if why == "version 0":
        family.publish()
    elif why == "another generation":
        family.learn()
        family.publish(generation="of-before")
    with family.node() as node:
        if why != "another generation":
            wait_until_ready(node)
        answer = node.search("user-7", ids=["i5"], k=3)
        assert (answer.version, answer.parent) == (0, None)
        plain = family.current.first("user-7").metric.embed(family.catalogue.features)
        np.testing.assert_allclose(
            answer.items[0].distance, np.sort(((plain - plain[5]) ** 2).sum(axis=1))[1], rtol=1e-5
        )


def test_over_http_the_answer_names_the_parent(family):
    family.learn(60)
    with family.serving() as node, asking(node) as client:
        answer = client.get("/search", params={"id": "i5", "k": 2, "model": "user-7"}).json()
        assert {name: answer[name] for name in ("model", "version", "parent", "parent_version")} == {
            "model": "user-7", "version": 0, "parent": "main", "parent_version": 60,
        }  # fmt: skip
        assert "parent" not in client.get("/search", params={"id": "i5", "k": 2, "model": "main"}).json()
        schema = client.get("/schema").json()["components"]["schemas"]["Answer"]["properties"]
        assert {"parent", "parent_version"} <= set(schema)
        models = {model["model"]: model for model in client.get("/models").json()["models"]}
        assert (models["shop"]["parent"], models["shop"]["version"]) == ("main", 0)
        assert client.get("/readyz").status_code == httpx.codes.OK
        with Client(str(client.base_url)) as shop:
            answer = shop.search("i5", model="user-7")
            assert (answer.version, answer.parent, answer.parent_version) == (0, "main", 60)
            assert {model.model: model.parent for model in shop.models()} == {"main": None, "shop": "main"}
