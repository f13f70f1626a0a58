"""Writes deploy/grafana/omdml.json, the board: ``python -m deploy.grafana.board`` (with the extra ``dev``).

Rows go from "is it well?" to causes, in the order in which somebody on call asks.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.common import StackingMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef

BOARD, PANELS = Path(__file__).with_name("omdml.json"), Path(__file__).with_name("panels.toml")
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH, HEIGHT, STAT_HEIGHT = 24, 8, 4


class Shown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One panel: ``queries`` are pairs of an expression and a legend."""

    title: str
    unit: str
    queries: list[tuple[str, str]]
    help: str
    stacked: bool = False


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of panels under a title."""

    title: str
    panels: list[Shown]


class Panels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole board: single numbers on top, then rows of graphs."""

    glance: list[Shown]
    rows: list[Row]


# What the panels' queries name by $.
SELECTORS = {
    "$worker": 'job="omdml-worker", instance=~"$instance"',
    "$node": 'job="omdml-node", instance=~"$instance"',
    "$route": 'job="omdml-route", instance=~"$instance"',
    "$models": 'model=~"$model"',
}


def filled(expression: str) -> str:
    """The expression of a query, with its selectors filled in."""
    for name, selector in SELECTORS.items():
        expression = expression.replace(name, selector)
    return expression


def targets(shown: Shown) -> list[Builder[Dataquery]]:
    """The queries of a panel, one for each line of its chart."""
    made: list[Builder[Dataquery]] = []
    for number, (expression, legend) in enumerate(shown.queries):
        query = prometheus.Dataquery().datasource(SOURCE).expr(filled(expression)).legend_format(legend)
        if expression.startswith("histogram_quantile"):
            # Traces of clicks lie beside the buckets.
            query = query.exemplar(True)
        made.append(query.ref_id(chr(ord("A") + number)))
    return made


def glance(shown: Shown, count: int) -> stat.Panel:
    """A panel that shows one number."""
    panel = stat.Panel().title(shown.title).unit(shown.unit).datasource(SOURCE).description(shown.help)
    return panel.targets(targets(shown)).height(STAT_HEIGHT).span(WIDTH // count)


def graph(shown: Shown) -> timeseries.Panel:
    """A panel that shows lines over time."""
    panel = timeseries.Panel().title(shown.title).unit(shown.unit).datasource(SOURCE).description(shown.help)
    panel = panel.targets(targets(shown)).height(HEIGHT).span(WIDTH // 3)
    if shown.stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(20)
    return panel


def board() -> dashboard.Dashboard:
    """The board as a JSON document."""
    panels = msgspec.toml.decode(PANELS.read_bytes(), type=Panels)
    built = dashboard.Dashboard("omdml").uid("omdml").tags(["omdml"]).refresh("10s").time("now-3h", "now")
    built = built.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    for name, query in (
        ("instance", 'label_values(up{job=~"omdml-.*"}, instance)'),
        ("model", "label_values(omdml_worker_comparisons_total, model)"),
    ):
        variable = dashboard.QueryVariable(name).datasource(SOURCE).query(query)
        built = built.with_variable(variable.include_all(True).multi(True).all_value(".*"))
    built = built.with_row(dashboard.Row("Is it well?"))
    for shown in panels.glance:
        built = built.with_panel(glance(shown, len(panels.glance)))
    for row in panels.rows:
        built = built.with_row(dashboard.Row(row.title))
        for shown in row.panels:
            built = built.with_panel(graph(shown))
    return built


def text() -> str:
    """The board as Grafana imports it."""
    return JSONEncoder(sort_keys=True, indent=2).encode(board().build()) + "\n"


if __name__ == "__main__":
    BOARD.write_text(text())
