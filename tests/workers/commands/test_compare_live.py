"""``omdml compare-live``: the clicks of an experiment, added up over nodes."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from omdml.client import Client
from omdml.workers.cli import main
from omdml.workers.configuration.config import ExperimentConfig
from omdml.workers.node.experiments.experiments import Experiments
from tests.support.shops import Shop, listening

METRIC = {"metric": ExperimentConfig(model="shop", against_version=0, share=1.0)}


@pytest.fixture
def nodes(tmp_path):
    """Two nodes of one store, each with experiments of its own."""
    shop = Shop(tmp_path)
    shop.publish()
    shop.learn(200)
    with (
        shop.serving() as node,
        shop.node() as other,
        listening(node, experiments=Experiments(METRIC)) as first,
        listening(other, experiments=Experiments(METRIC)) as second,
    ):
        yield first.url, second.url


def clicks(url, sessions):
    """Click on the first item in each session; returns how many of the clicked items the second ranking brought."""
    with Client(url, model="shop") as client:
        for session in sessions:
            answer = client.search("i5", session=session)
            assert client.clicked(answer, answer.items[0].id) == 1
        return client.experiments()[0].counts.clicks[1]


def run(*words):
    ran = CliRunner().invoke(main, ["compare-live", *words], env={"COLUMNS": "160"})
    return ran.exit_code, ran.output


def test_counts_of_several_nodes_are_added_up(nodes):
    second = sum(clicks(url, [f"{url} {number}" for number in range(5)]) for url in nodes)
    code, message = run("--node", nodes[0], "--node", nodes[1])
    assert code == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in message.splitlines() if line.startswith("│")]
    assert rows[1] == ["shop version 0", str(second), str(second)]
    assert rows[0] == ["shop", str(10 - second), str(10 - second)]
    assert "10 searches interleaved" in message
    assert "of the decided searches" in message


def test_a_node_without_clicks_says_how_they_come(nodes):
    code, message = run("metric", "--node", nodes[0])
    assert code == 0
    assert "no search was won yet: send clicks with POST /clicks" in message


def test_an_unknown_experiment_is_refused_with_those_that_run(nodes):
    code, message = run("metrics", "--node", nodes[0])
    assert code == 2
    assert "no experiment 'metrics' runs at" in message
    assert "these run: metric" in message
