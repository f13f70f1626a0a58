"""Simulated people at work on a real node: what reaches the log, what is measured, and what stops them."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest

from omdml.client import ClientError
from omdml.errors import ConfigurationError, MeasureError
from omdml.evaluate import mean_average_precision
from omdml.feedback import decode
from omdml.workers.demo.people.crowd import Crowd, Task
from omdml.workers.demo.people.labels import Labels
from omdml.workers.demo.people.unmarked_queries import UnmarkedQueries
from omdml.workers.demo.services.node_client import NodeClient
from omdml.workers.demo.simulation import run_simulation
from tests.support.shops import Shop, client_of, listening
from tests.support.waiting import until, wait_until_ready
from tests.support.worlds import ITEMS, items


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


@pytest.fixture
def labels():
    return Labels({f"i{row}": str(label) for row, label in enumerate(items()[1])}, seed=0)


@pytest.fixture
def labels_file(labels, tmp_path):
    path = tmp_path / "labels.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "label"), *labels.of.items()])
    return path


def events_in_the_log(shop):
    """The events that the feedback log holds."""
    (partition,) = shop.log.partitions
    return [decode(record.value) for record in shop.log.read(partition, 0, 100_000)]


def work(task, labels):
    """Let a crowd work until it has finished."""
    with Crowd(task, labels) as crowd:
        until(lambda: not crowd.at_work, 120.0)
    return crowd


@pytest.mark.parametrize("people", [1, 4])
def test_a_crowd_says_exactly_as_much_as_it_is_asked_for(shop, labels, people):
    with shop.serving() as node, listening(node) as server:
        crowd = work(Task(server.url, "shop", 100, people=people), labels)
    comparisons = events_in_the_log(shop)
    assert crowd.sent == len(comparisons) == 100
    assert all(event.model == "shop" and event.at for event in comparisons)
    assert len(crowd.search_s) >= 100 / 3


def test_a_person_alone_says_the_same_for_the_same_seed(tmp_path, labels):
    events = []
    for seed, run in ((1, "a"), (1, "b"), (2, "c")):
        shop = Shop(tmp_path / run)
        with shop.serving() as node, listening(node) as server:
            work(Task(server.url, "shop", 30, people=1, seed=seed), labels)
        events.append([(event.query, event.relevant, event.irrelevant) for event in events_in_the_log(shop)])
    assert events[0] == events[1] != events[2]


def test_a_crowd_waits_at_every_look_until_it_may_go_on(shop, labels):
    with shop.serving() as node, listening(node) as server:
        at_looks = []
        with Crowd(Task(server.url, "shop", 40, looks=(7, 20, 40)), labels) as crowd:
            for _ in range(2):
                until(lambda: crowd.waits)
                at_looks.append((crowd.sent, crowd.at_work))
                crowd.go_on()
            until(lambda: not crowd.at_work)
    assert [*at_looks, (crowd.sent, crowd.waits)] == [(7, True), (20, True), (40, False)]


def test_a_crowd_that_is_left_while_it_waits_stops(shop, labels):
    with shop.serving() as node, listening(node) as server:
        with Crowd(Task(server.url, "shop", 40, looks=(7,)), labels) as crowd:
            until(lambda: crowd.waits)
        assert (crowd.at_work, crowd.sent) == (False, 7)


def test_a_crowd_that_is_left_early_stops(shop, labels):
    with shop.serving() as node, listening(node) as server:
        with Crowd(Task(server.url, "shop", 1_000_000, rate=0.1), labels) as crowd:
            assert crowd.at_work
        assert not crowd.at_work


def test_a_crowd_tells_why_it_gave_up(labels):
    with pytest.raises(ClientError, match=r"did not answer POST /search.*: is it up\?"):
        work(Task("http://127.0.0.1:1", "shop", 10), labels)


def test_map_is_that_of_the_metric_that_the_node_serves(shop, labels):
    shop.learn(100)
    with shop.serving() as node, listening(node) as server:
        measured = UnmarkedQueries(NodeClient(server.url), "shop", labels).mean_average_precision()
    embedded = shop.learner.metric.embed(shop.catalogue.features)
    rows = shop.catalogue.rows(labels.held_out)
    assert measured == pytest.approx(mean_average_precision(embedded, items()[1], rows), abs=1e-3)


def test_precision_counts_the_first_ten(shop, labels):
    shop.learn(100)
    with shop.serving() as node, listening(node) as server:
        measured = UnmarkedQueries(NodeClient(server.url), "shop", labels).precision()
    version = shop.learner.version
    shares = [
        np.mean([labels.of[answer] == labels.of[query] for answer in shop.expected(version, query, 10)[0]])
        for query in labels.held_out
    ]
    assert measured == pytest.approx(np.mean(shares))


def test_map_is_refused_if_the_node_does_not_rank_all_items(shop, labels):
    more = Labels({**labels.of, "elsewhere": "0", "nowhere": "1"}, seed=0)
    more.held_out[:] = [item for item in more.held_out if item in labels.of]
    with (
        shop.serving() as node,
        listening(node) as server,
        pytest.raises(MeasureError, match=f"ranks {ITEMS - 1} items"),
    ):
        UnmarkedQueries(NodeClient(server.url), "shop", more).mean_average_precision()


def test_a_client_outlives_a_connection_that_the_server_closed(shop):
    with shop.serving() as node, listening(node) as server:
        client = NodeClient(server.url)
        assert client.models()["shop"].ready
    with shop.node() as again, listening(again, port=server.port):
        wait_until_ready(again)
        assert len(client.search("shop", "i0", 5).items) == 5
    client.close()


def test_a_refusal_is_reported_in_the_nodes_words(shop):
    with shop.serving() as node, listening(node) as server:
        client = NodeClient(server.url)
        with pytest.raises(ClientError, match=r"refuses: .*i999") as refusal:
            client.search("shop", "i999", 5)
        assert refusal.value.reason == "unknown_item"
        client.close()


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "http://host:port", ""])
def test_an_address_that_is_no_url_is_refused(url):
    with pytest.raises(ConfigurationError, match="expected a URL such as"):
        NodeClient(url)


def test_a_simulation_reports_its_load_and_the_precision_before_and_after(shop, labels_file, capsys, monkeypatch):
    # Nobody learns here, so no version will come.
    monkeypatch.setattr("omdml.workers.demo.observer.STILL_S", 0.0)
    with shop.serving() as node, listening(node) as server:
        assert run_simulation(server.url, labels_file, comparisons=40, people=2) == 0
    load_line, last_line = capsys.readouterr().out.splitlines()[-2:]
    assert re.fullmatch(
        r"\d+ searches, 40 comparisons, [\d,]+ a second; search p50 .* ms; feedback p50 .* ms", load_line
    )
    assert re.fullmatch(r"precision@10 0\.\d{3} -> 0\.\d{3} after 40 comparisons; click-to-live not yet", last_line)
    assert len(events_in_the_log(shop)) == 40


def test_a_simulation_must_be_told_which_of_several_models_to_use(shop, labels_file):
    refusal = pytest.raises(ConfigurationError, match=r"which model.* has models shop, other: choose one with --model")
    with shop.node(models=("shop", "other")) as node, listening(node) as server, refusal:
        run_simulation(server.url, labels_file)


def test_a_simulation_does_not_choose_a_name_that_only_a_pattern_covers(shop, labels_file):
    with shop.node(models=("shop-*",)) as node, listening(node) as server, client_of(server) as client:
        # Somebody asks for a wrong name, and the node answers with what such a model would begin with.
        client.get("/search", params={"id": "i1", "model": "shop-wrong"})
        with pytest.raises(ConfigurationError, match=r"which model\? .*shop-\*: choose one with --model"):
            run_simulation(server.url, labels_file)
    assert events_in_the_log(shop) == []
