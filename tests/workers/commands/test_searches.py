"""``omdml search`` and ``omdml compare`` against a real node."""

from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner

from omdml.workers.cli import main
from omdml.workers.commands.nodes.searches import in_a_cell
from omdml.workers.node.attributes.table import Attributes
from tests.support.processes import free_port
from tests.support.shops import Shop, client_of, listening
from tests.support.worlds import items

TOKEN = "0123456789abcdef-known"
PRICES = [msgspec.json.encode({"id": f"i{n}", "price": n}) for n in range(120)]


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    for _ in range(2):
        shop.learn()
        shop.publish()
    return shop


@pytest.fixture
def server(shop):
    table = Attributes(iter(PRICES), "test")
    with (
        shop.serving(attributes=lambda model: table) as node,
        listening(node, TOKEN, private=True) as server,
    ):
        yield server


@pytest.fixture
def omdml(server):
    """Runs a command; returns its exit code and its lines."""

    def run(*words):
        environment = {"OMDML_NODE__TOKEN": TOKEN, "COLUMNS": "160"}
        ran = CliRunner().invoke(main, [*words, "--node", server.url], env=environment)
        return ran.exit_code, [line for line in ran.output.splitlines() if line]

    return run


def answered(server, **query):
    """The node's own answer to a query."""
    with client_of(server, headers={"authorization": f"Bearer {TOKEN}"}) as client:
        return client.post("/search", json=query).raise_for_status().json()


def test_a_search_shows_items_attributes_and_the_parts_of_distances(omdml, server):
    words = ["--filter", '{"price": {"lt": 60}}', "--field", "price", "--explain", "-k", "3", "--exclude", "i8"]
    code, lines = omdml("search", "i5", *words)
    expected = answered(server, id="i5", k=3, filter={"price": {"lt": 60}}, fields=["price"], exclude=["i8"])["items"]
    assert code == 0
    shown = [line.split("│") for line in lines if line.startswith("│")]
    assert [row[2].strip() for row in shown] == [item["id"] for item in expected]
    assert [int(row[4]) for row in shown] == [item["attributes"]["price"] for item in expected]
    assert all("noise" in row[5] and "%" in row[5] for row in shown)
    assert lines[-1].startswith("shop: version 40, answered in")


def test_a_search_may_start_from_several_items_and_from_vectors(omdml, server):
    features, _ = items()
    raw = {name: matrix[9].tolist() for name, matrix in features.items()}
    code, (line,) = omdml("search", "i5", "i6", "--features", json.dumps(raw), "-k", "4", "--json")
    expected = answered(server, ids=["i5", "i6"], features=raw, k=4)
    assert code == 0
    # Neither the node's answer nor this one has a field without a value, such as "parent": null.
    assert json.loads(line) | {"took_s": 0} == expected | {"took_s": 0}


def test_each_of_several_items_can_be_a_query_of_its_own(omdml, server):
    code, lines = omdml("search", "i5", "i6", "--each", "-k", "2", "--field", "price")
    expected = answered(server, queries=[{"id": "i5"}, {"id": "i6"}], k=2)["answers"]
    assert code == 0
    shown = [[cell.strip() for cell in line.split("│")[1:4]] for line in lines if line.startswith("│")]
    ids = {
        ("i5", "1"): expected[0][0],
        ("i5", "2"): expected[0][1],
        ("i6", "1"): expected[1][0],
        ("i6", "2"): expected[1][1],
    }
    assert {(query, rank): item for query, rank, item in shown} == {place: item["id"] for place, item in ids.items()}
    code, (line,) = omdml("search", "i5", "i6", "--each", "--json")
    assert [answer["version"] for answer in json.loads(line)] == [40, 40]
    code, lines = omdml("search", "i5", "--each", "--features", '{"noise": [1]}')
    assert (code, lines[-1]) == (2, "Error: --each is about IDs only: leave out --features, --text and --picture")


def test_the_texts_of_a_list_have_commas_between_them_in_a_table():
    assert in_a_cell(["new", "red"]) == "new, red"
    assert in_a_cell(9.5) == 9.5


def test_versions_are_compared_with_a_second_search_if_one_is_asked_for(omdml, server):
    code, (line,) = omdml("compare", "i5", "20", "-k", "5", "--expand", "5", "--json")
    expected = answered(server, id="i5", k=5, expand=5)["items"]
    assert code == 0
    assert [item["distance"] for item in json.loads(line)["after"]["items"]] == [item["distance"] for item in expected]


def test_two_versions_are_compared(omdml):
    code, lines = omdml("compare", "i5", "20", "-k", "40")
    assert code == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert lines[-1] == f"shop, like i5: {len(rows)} items of either version's first 40 moved"
    assert rows
    for _, before, after, how in rows:
        rose = int(before) - int(after)
        assert how == (f"up {rose}" if rose > 0 else f"down {-rose}")
    code, lines = omdml("compare", "i5", "40", "40")
    assert lines[-1] == "shop, like i5: the first 10 are the same in both versions"


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["search"], 2, "give the ID of an item, --features, --text or --picture"),
        (["search", "i5", "--filter", "{"], 2, "'{' is not JSON"),
        (["search", "i5", "--filter", "[1]"], 2, "is not a JSON object"),
        (["search", "nobody"], 1, "has no item 'nobody': GET /items lists the ids"),
        (["search", "i5", "--token", "wrong"], 1, "not a token of this node"),
        (["compare", "i5", "21"], 1, "version 21"),
    ],
)
def test_a_search_that_cannot_be_answered_says_why_in_a_sentence(omdml, words, code, expected):
    ended, lines = omdml(*words)
    assert ended == code
    assert expected in " ".join(lines)
    assert "Traceback" not in " ".join(lines)


def test_a_node_that_is_away_is_reported():
    ran = CliRunner().invoke(main, ["search", "i5", "--node", f"http://127.0.0.1:{free_port()}"])
    assert ran.exit_code == 1
    assert "is it up? Start omdml node, or correct the address" in ran.output


@pytest.mark.parametrize("words", [("search", "i1"), ("compare", "i1", "20"), ("compare-live",)], ids=" ".join)
def test_the_node_of_the_configuration_is_asked_unless_another_is_named(server, tmp_path, words):
    def run(bind, *more):
        file = tmp_path / "omdml.toml"
        file.write_text(f'[node]\nbind = "{bind}"\n')
        options = ["-c", str(file), "--token", TOKEN, *more]
        return CliRunner().invoke(main, [*words, *options], env={"COLUMNS": "160"}).exit_code

    here, nowhere = server.url.removeprefix("http://"), f"127.0.0.1:{free_port()}"
    assert run(here) == 0
    assert run(here.replace("127.0.0.1", "0.0.0.0")) == 0
    assert run(nowhere) != 0
    assert run(nowhere, "--node", server.url) == 0
