"""Experiments on a node: searches that mix two rankings, the clicks that are counted, and the verdict."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from omdml.errors import ConfigurationError
from omdml.retrieval.interleaving import Drafted, team_draft
from omdml.workers.configuration.config import ExperimentConfig
from omdml.workers.node.experiments import tally
from omdml.workers.node.experiments.experiments import Experiments
from omdml.workers.node.experiments.tally import ExperimentTally
from tests.support.shops import Shop, client_of, listening, refused


@contextmanager
def trying(shop, token="", **config):
    """A client of a node that compares version 200 of the shop's model, which is live, with its version 0."""
    shop.publish()
    shop.learn(200)
    config = {"model": "shop", "against_version": 0, "share": 1.0, **config}
    experiments = Experiments({"metric": ExperimentConfig(**config)})
    with shop.serving() as node, listening(node, token, experiments=experiments) as server, client_of(server) as client:
        yield client
    experiments.close()


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def search(client, **changes):
    """The ids that a search answers, and what it says of the experiment, if it is interleaved."""
    answer = client.post("/search", json={"id": "i5", "k": 8, "session": "alice", **changes}).json()
    return [item["id"] for item in answer["items"]], answer.get("interleaved")


def outcome(client):
    (experiment,) = client.get("/experiments").json()["experiments"]
    return experiment


def teams_of(client, trial):
    """The team of each item of an answer, in its order."""
    own, other = (search(client, version=version)[0] for version in (200, 0))
    return [team for _, team in team_draft(own, other, 8, trial["search"].encode())]


def test_an_answer_is_made_of_both_rankings_and_says_so(shop):
    with trying(shop) as client:
        ids, trial = search(client)
        own, other = (search(client, version=version)[0] for version in (200, 0))
        assert own != other
        assert set(ids) <= set(own) | set(other)
        assert len(set(ids)) == 8
        assert (trial["experiment"], trial["against"], trial["against_version"]) == ("metric", "shop", 0)
        # The same session sees the same page again, and the page after it goes on from there.
        assert search(client) == (ids, trial)
        assert search(client, k=4, offset=4)[0] == ids[4:]
        assert outcome(client)["counts"]["searches"] == 1
        response = client.get("/search", params={"id": "i5", "k": 8, "session": "alice"})
        assert [item["id"] for item in response.json()["items"]] == ids
        assert "etag" not in response.headers


def test_clicks_count_once_for_the_team_that_brought_the_item(shop):
    with trying(shop) as client:
        ids, trial = search(client)
        team = teams_of(client, trial)
        mine, theirs = ids[team.index(0)], ids[team.index(1)]
        for _ in range(2):
            client.post("/clicks", json={"search": trial["search"], "ids": [theirs, "i99999"]})
        counts = outcome(client)["counts"]
        assert (counts["first"], counts["second"], counts["ties"], counts["clicks"]) == (0, 1, 0, [0, 1])
        assert client.post("/clicks", json={"search": trial["search"], "ids": [mine]}).json() == {"counted": 1}
        counts = outcome(client)["counts"]
        assert (counts["first"], counts["second"], counts["ties"], counts["clicks"]) == (0, 0, 1, [1, 1])


def test_sessions_that_always_click_on_one_side_lead_to_a_verdict(shop):
    with trying(shop) as client:
        for number in range(12):
            ids, trial = search(client, session=f"visitor {number}")
            theirs = ids[teams_of(client, trial).index(1)]
            client.post("/clicks", json={"search": trial["search"], "ids": [theirs]})
        result = outcome(client)
        assert (result["better"], result["share"]) == ("second", 1.0)
        assert result["confidence"] > 0.99
        assert result["low"] > 0.5


def test_a_share_of_the_sessions_is_interleaved_always_the_same(shop):
    with trying(shop, share=0.3) as client:
        first = [search(client, session=f"visitor {number}")[1] for number in range(100)]
        assert first == [search(client, session=f"visitor {number}")[1] for number in range(100)]
        assert 15 <= sum(interleaving is not None for interleaving in first) <= 45


def test_a_search_that_names_a_version_is_not_interleaved(shop):
    with trying(shop) as client:
        assert search(client, version=200)[1] is None


def test_a_model_answers_alone_if_the_other_side_cannot(shop):
    with trying(shop, against_version=7) as client:
        ids, trial = search(client)
        assert (len(ids), trial) == (8, None)
        counts = outcome(client)["counts"]
        assert (counts["failed"], counts["searches"]) == (1, 0)


def test_clicks_on_unknown_searches_are_refused(shop):
    with trying(shop) as client:
        for unknown in ("metric:0123", "other:0123", ""):
            response = client.post("/clicks", json={"search": unknown, "ids": ["i1"]})
            assert "not interleaved" in refused(response, 404, "unknown_search")


def test_clicks_need_a_token_if_there_is_one(shop):
    with trying(shop, token="0123456789abcdef-clicks") as client:
        trial = search(client)[1]
        refused(client.post("/clicks", json={"search": trial["search"], "ids": ["i1"]}), 401, "unauthorized")


def test_searches_for_many_items_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(tally, "REMEMBERED_ITEMS", 10)
    counted = ExperimentTally()
    for number in range(3):
        # The page of the last search is loaded again.
        for _ in range(2):
            counted.shown(f"metric:{number}", [Drafted(f"i{item}", item % 2) for item in range(4)])
    assert counted.clicked("metric:0", ["i1"]) is None
    assert [counted.clicked(f"metric:{number}", ["i1", "i2"]) for number in (1, 2)] == [2, 2]
    assert counted.counts.searches == 3


def test_counts_outlive_the_node_if_they_have_a_file(tmp_path, shop):
    path = tmp_path / "counts.json"
    with trying(shop, counts=str(path)) as client:
        ids, trial = search(client)
        client.post("/clicks", json={"search": trial["search"], "ids": ids[:1]})
        before = outcome(client)["counts"]
    assert before["clicks"] in ([1, 0], [0, 1])
    assert ExperimentTally(path).counts.clicks == tuple(before["clicks"])
    assert ExperimentTally(path).counts.since == before["since"]


@pytest.mark.parametrize("content", [b"not JSON", b'{"searches": "many"}'])
def test_a_file_that_holds_no_counts_is_refused(tmp_path, content):
    path = tmp_path / "counts.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="holds no counts"):
        ExperimentTally(path)
