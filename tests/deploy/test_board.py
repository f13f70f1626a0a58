"""The committed boards are what the code makes, and each of their queries is PromQL over metrics that there are."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from deploy.grafana.board import BOARD, MODEL_BOARD, texts
from deploy.metrics_page import described
from tests.support.servers.rules import RECORDED, run


def panels_of(board):
    return [panel for panel in json.loads(board.read_text())["panels"] if panel["type"] != "row"]


PANELS = panels_of(BOARD)
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
# Not ours: the client library's, and Prometheus' own.
GENERAL = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"}


def plain(query):
    """The query as Prometheus gets it: Grafana fills its variables in."""
    return re.sub(r"\$(namespace|instance|model)\b", ".*", query.replace("$__rate_interval", "1m"))


def test_the_committed_boards_are_those_that_the_code_makes():
    for file, text in texts().items():
        assert file.read_text() == text, "python -m deploy.grafana.board writes them again"


@pytest.mark.parametrize("board", [BOARD, MODEL_BOARD], ids=lambda board: board.stem)
def test_every_panel_says_what_it_is_and_has_queries_and_a_place_of_its_own(board):
    panels = panels_of(board)
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in panels]
    assert len(set(places)) == len(places) == len({panel["title"] for panel in panels})
    assert all(x + w <= 24 for x, _, w, _ in places)
    for panel in panels:
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"


def test_the_board_of_a_model_asks_for_nothing_but_this_model():
    titles = {panel["title"]: panel for panel in panels_of(MODEL_BOARD)}
    assert {"Mistakes by comparison", "Freshness of all clicks", "Searches", "Margin over the reference"} <= set(titles)
    assert all('model=~"$model"' in target["expr"] for panel in titles.values() for target in panel["targets"])
    variables = {variable["name"]: variable for variable in json.loads(MODEL_BOARD.read_text())["templating"]["list"]}
    assert not variables["model"].get("includeAll")
    assert not variables["model"].get("multi")


@pytest.mark.parametrize("board", [BOARD, MODEL_BOARD], ids=lambda board: board.stem)
def test_alarms_of_drift_are_marked_in_all_charts(board, promtool, tmp_path):
    (drift,) = json.loads(board.read_text())["annotations"]["list"]
    query = drift["expr"].replace("$__interval", "1m")
    assert "omdml_worker_drift_alarms_total" in query
    assert checked(promtool, tmp_path, [query]).returncode == 0


def test_a_slow_click_is_followed_through_every_stage():
    shown = " ".join(QUERIES)
    for stage in ("feedback_flush_seconds", "route_lag_offsets", "event_stage_seconds", "freshness_seconds"):
        assert f"omdml_{stage}" in shown.replace("omdml_node_", "omdml_"), stage


def checked(promtool, folder, queries):
    """The verdict of promtool on these queries, as rules that record them."""
    rules = [{"record": f"query_{number}", "expr": plain(query)} for number, query in enumerate(queries)]
    (folder / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    return run(promtool, folder, "check", "rules", "queries.yml")


def test_every_query_is_promql(promtool, tmp_path):
    done = checked(promtool, tmp_path, QUERIES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(QUERIES)} rules found" in done.stdout
    assert checked(promtool, tmp_path, [*QUERIES, "sum("]).returncode != 0


def test_queries_name_metrics_and_labels_that_there_are():
    metrics = described()
    metric_of = {
        name + suffix: metric for name, metric in metrics.items() for suffix in ("", "_bucket", "_count", "_sum")
    }
    for query in QUERIES:
        recorded = re.findall(r"\b[a-z_]+:[a-z_0-9:]+", query)
        assert set(recorded) <= RECORDED, query
        without_recorded = re.sub(r"\b[a-z_]+:[a-z_0-9:]+", "", query)
        used = set(re.findall(r"\b(?:omdml|process)_\w+(?=[{\s)\[]|$)", without_recorded))
        assert used <= metric_of.keys() | GENERAL, query
        # The name of a recorded metric begins with the labels that it has.
        mine = {label for name in recorded for label in name.split(":")[0].split("_")}
        mine |= {label.split("`")[1] for name in used & metric_of.keys() for label in metric_of[name].labels}
        grouped = re.findall(r"(?:by|on) \(([^)]*)\)", without_recorded)
        asked = {label for group in grouped for label in group.split(", ")} | set(
            re.findall(r'(\w+)=~?"', without_recorded)
        )
        assert asked <= mine | {"namespace", "job", "instance", "le", "alertname", "alertstate"}, query
