"""Searches that ask for a version at least, on two real nodes that follow one store."""

from __future__ import annotations

import threading

import httpx
import pytest

from omdml.workers.node.http.min_version import WAIT_S
from omdml.workers.node.http.openapi import openapi
from tests.support.nodes import start_node, stored_shop
from tests.support.processes import wait_for
from tests.support.shops import refused
from tests.support.waiting import until


@pytest.fixture
def shop(tmp_path):
    return stored_shop(tmp_path)


class Node:
    """A real node, and a client of it."""

    def __init__(self, folder, name) -> None:
        self.process, port = start_node(folder, name)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", verify=False, timeout=30.0)
        wait_for(self.ready, "the node to be ready", process=self.process)

    def ready(self):
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        self.client.close()
        self.process.close()


@pytest.fixture
def nodes(shop, tmp_path):
    pair = [Node(tmp_path, name) for name in ("one", "other")]
    yield pair
    for node in pair:
        node.close()


def test_a_client_of_two_nodes_never_goes_back_with_min_version(shop, nodes):
    seen = 0
    for turn in range(30):
        if turn % 3 == 0:
            shop.learn()
            shop.publish()
        node = nodes[turn % 2]
        answer = node.client.get("/search", params={"id": "i1", "min_version": seen}).raise_for_status().json()
        assert answer["version"] >= seen
        seen = answer["version"]
    assert seen > 0


def test_a_node_waits_for_the_version_and_then_answers_with_it(shop, nodes):
    shop.learn()
    answers = []

    def search():
        query = {"id": "i1", "min_version": shop.learner.version}
        answers.append(nodes[0].client.post("/search", json=query))

    waiting = threading.Thread(target=search)
    waiting.start()
    version = shop.publish()
    waiting.join()
    assert answers[0].raise_for_status().json()["version"] == version == 20


def test_a_node_that_stays_behind_says_which_version_it_has_and_what_to_do(nodes):
    response = nodes[0].client.get("/search", params={"id": "i1", "min_version": 7})
    assert "version 0 is live at this node, and min_version is 7" in refused(response, 503, "behind")
    assert response.json()["version"] == 0
    assert int(response.headers["retry-after"]) >= 1
    assert response.elapsed.total_seconds() > WAIT_S
    assert refused(nodes[0].client.get("/search?id=i1&min_version=-1"), 400, "invalid")


def test_a_node_that_was_paused_answers_with_the_version_once_it_goes_on(shop, nodes):
    nodes[1].process.pause()
    try:
        shop.learn()
        version = shop.publish()
        until(lambda: nodes[0].client.get("/search?id=i1").json()["version"] == version)
    finally:
        nodes[1].process.resume()
    answer = nodes[1].client.get("/search", params={"id": "i1", "min_version": version})
    assert answer.raise_for_status().json()["version"] == version


def test_the_openapi_document_describes_min_version():
    document = openapi()
    methods = document["paths"]["/search"]
    (parameter,) = (parameter for parameter in methods["get"]["parameters"] if parameter["name"] == "min_version")
    assert "waits two seconds" in parameter["schema"]["description"]
    assert not parameter["required"]
    assert "min_version" in document["components"]["schemas"]["Search"]["properties"]
    for method in methods.values():
        assert "Retry-After" in method["responses"]["503"]["headers"]
