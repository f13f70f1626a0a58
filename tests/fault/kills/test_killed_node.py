"""Nodes that are killed under search: whatever was answered is the ranking of the version that the answer names."""

from __future__ import annotations

import http.client
import json
import random
import threading

import numpy as np

from tests.fault.asking import version_served
from tests.support.deep import DEEP
from tests.support.forks import ForkedProcess
from tests.support.nodes import start_node, stored_shop
from tests.support.processes import wait_for
from tests.support.worlds import ITEMS

KILLS, K = 12 if DEEP else 3, 10
LIMIT_S = 60
NAMES = ("one", "two")
# Nodes compute with fewer digits.
CLOSE = {"rtol": 1e-3, "atol": 1e-5}


class Asker(threading.Thread):
    """Searches at ports that may not answer, until :meth:`end`; ``answers`` are the items asked for, each with what was
    answered."""

    def __init__(self, ports):
        super().__init__()
        self.ports, self.enough, self.answers = ports, threading.Event(), []
        self.start()

    def run(self):
        draw = random.Random(0)
        while not self.enough.wait(0.01):
            item, port = f"i{draw.randrange(ITEMS)}", draw.choice(self.ports)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            try:
                connection.request("GET", f"/search?model=shop&id={item}&k={K}")
                answer = connection.getresponse()
                body = answer.read()
                if answer.status == 200:
                    self.answers.append((item, json.loads(body)))
            except (OSError, http.client.HTTPException):
                continue
            finally:
                connection.close()

    def end(self):
        self.enough.set()
        self.join()


def test_answers_of_nodes_that_are_killed_are_rankings_of_the_version_they_name(tmp_path):
    shop, draw = stored_shop(tmp_path), random.Random(1)
    nodes, ports = map(list, zip(*(start_node(tmp_path, name) for name in NAMES), strict=True))
    asker = Asker(ports)

    def wait_until_answered(number, version=None):
        """Wait until one of the nodes answers with this version."""

        def answered():
            served = version_served(ports[number])
            return served is not None and version in (None, served)

        wait_for(answered, f"node {NAMES[number]} to answer", LIMIT_S, nodes[number])

    try:
        # Given two nodes that follow new versions, of which one is killed and started again, in turn
        for turn in range(KILLS):
            number = turn % 2
            wait_until_answered(number)
            for _ in range(draw.randint(1, 3)):
                shop.learn()
                shop.publish()
            enough = len(asker.answers) + draw.randint(0, 20)
            wait_for(lambda enough=enough: len(asker.answers) >= enough, "searches to be answered", LIMIT_S)
            nodes[number].kill()
            nodes[number].close()
            nodes[number] = ForkedProcess(tmp_path, "node", "--config", f"{NAMES[number]}.toml", name=NAMES[number])
        for number in range(2):
            wait_until_answered(number, shop.learner.version)
    finally:
        asker.end()
        for node in nodes:
            node.close()
    # I expect of every answer the nearest items of the version that it names, by brute force.
    assert len({answer["version"] for _, answer in asker.answers}) > KILLS // 2
    for item, answer in asker.answers:
        ids, distances = shop.expected(answer["version"], item, ITEMS)
        distance_of = dict(zip(ids, distances, strict=True))
        distances_answered = [entry["distance"] for entry in answer["items"]]
        assert np.allclose(distances_answered, distances[:K], **CLOSE)
        assert np.allclose(distances_answered, [distance_of[entry["id"]] for entry in answer["items"]], **CLOSE)
