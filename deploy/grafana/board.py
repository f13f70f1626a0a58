"""Writes the boards: ``python -m deploy.grafana.board`` (with the extra ``dev``).

omdml.json is for people on call: its rows lead from "Is it well?" to causes, in the order in which people ask.
omdml-model.json is for people who own a model: it has the panels that are about models, for one of them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.common import StackingMode
from grafana_foundation_sdk.models.dashboard import DashboardLinkType, DataSourceRef, VariableOption
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FOLDER = Path(__file__).parent
BOARD, MODEL_BOARD = FOLDER / "omdml.json", FOLDER / "omdml-model.json"
PANELS = FOLDER / "panels.toml"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH, HEIGHT, STAT_HEIGHT = 24, 8, 4


class Shown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One panel: ``queries`` are pairs of an expression and a legend."""

    title: str
    unit: str
    queries: list[tuple[str, str]]
    help: str
    stacked: bool = False
    heatmap: bool = False

    @property
    def of_models(self) -> bool:
        """Whether it shows nothing but the chosen models."""
        return all("$models" in expression for expression, _ in self.queries)


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of panels under a title."""

    title: str
    panels: list[Shown]


class Panels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole board: single numbers on top, then rows of graphs."""

    glance: list[Shown]
    rows: list[Row]


# What the panels' queries name by $.
PROCESS = 'namespace=~"$namespace", instance=~"$instance"'
SELECTORS = {
    "$worker": f'job="omdml-worker", {PROCESS}',
    "$node": f'job="omdml-node", {PROCESS}',
    "$route": f'job="omdml-route", {PROCESS}',
    "$process": f'job=~"omdml-.*", {PROCESS}',
    "$installation": 'namespace=~"$namespace"',
    "$models": 'model=~"$model"',
}


def filled(expression: str) -> str:
    """The expression of a query, with its selectors filled in."""
    for name, selector in SELECTORS.items():
        expression = expression.replace(name, selector)
    return expression


def targets(shown: Shown) -> list[Builder[Dataquery]]:
    """The queries of a panel, one for each line of its chart."""
    queries: list[Builder[Dataquery]] = []
    for number, (expression, legend) in enumerate(shown.queries):
        query = prometheus.Dataquery().datasource(SOURCE).expr(filled(expression)).legend_format(legend)
        if expression.startswith("histogram_quantile"):
            # Traces of clicks lie beside the buckets.
            query = query.exemplar(True)
        if shown.heatmap:
            query = query.format(PromQueryFormat.HEATMAP)
        queries.append(query.ref_id(chr(ord("A") + number)))
    return queries


def glance(shown: Shown, count: int) -> stat.Panel:
    """A panel that shows one number."""
    panel = stat.Panel().title(shown.title).unit(shown.unit).datasource(SOURCE).description(shown.help)
    return panel.targets(targets(shown)).height(STAT_HEIGHT).span(WIDTH // count)


def graph(shown: Shown) -> timeseries.Panel | heatmap.Panel:
    """A panel that shows something over time: lines, or how many values lie in which bucket."""
    panel = heatmap.Panel() if shown.heatmap else timeseries.Panel()
    panel = panel.title(shown.title).unit(shown.unit).datasource(SOURCE).description(shown.help)
    panel = panel.targets(targets(shown)).height(HEIGHT).span(WIDTH // 3)
    if isinstance(panel, timeseries.Panel) and shown.stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(20)
    return panel


def choice(name: str, query: str) -> dashboard.QueryVariable:
    """A choice on a board, whose values come from a query."""
    return dashboard.QueryVariable(name).datasource(SOURCE).query(query)


def several(variable: dashboard.QueryVariable) -> dashboard.QueryVariable:
    """The same choice, of any number of values, and at first of all."""
    return variable.include_all(True).multi(True).all_value(".*").current(VariableOption(True, ["All"], ["$__all"]))


def empty_board(title: str, uid: str, model: dashboard.QueryVariable) -> dashboard.Dashboard:
    """A board without panels. It has the choices that its queries name, and marks when alarms of drift came."""
    processes = 'up{job=~"omdml-.*", namespace=~"$namespace"}'
    drift = filled("sum by (model) (increase(omdml_worker_drift_alarms_total{$worker, $models}[$__interval])) > 0")
    other = dashboard.DashboardLink("Boards of omdml").type(DashboardLinkType.DASHBOARDS).tags(["omdml"])
    return (
        dashboard.Dashboard(title)
        .uid(uid)
        .tags(["omdml"])
        .refresh("10s")
        .time("now-3h", "now")
        .link(other.include_vars(True).keep_time(True))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(several(choice("namespace", 'label_values(up{job=~"omdml-.*"}, namespace)')))
        .with_variable(several(choice("instance", f"label_values({processes}, instance)")))
        .with_variable(model)
        .annotation(dashboard.AnnotationQuery().name("Drift").datasource(SOURCE).expr(drift).icon_color("orange"))
    )


MODELS = filled("label_values(omdml_worker_comparisons_total{$installation}, model)")


def board() -> dashboard.Dashboard:
    """The board for whoever is on call."""
    panels = read_panels()
    built = empty_board("omdml", "omdml", several(choice("model", MODELS))).with_row(dashboard.Row("Is it well?"))
    for shown in panels.glance:
        built = built.with_panel(glance(shown, len(panels.glance)))
    return with_rows(built, panels.rows)


def model_board() -> dashboard.Dashboard:
    """The board for whoever owns a model."""
    rows = [Row(row.title, [shown for shown in row.panels if shown.of_models]) for row in read_panels().rows]
    return with_rows(
        empty_board("omdml: one model", "omdml-model", choice("model", MODELS)), [row for row in rows if row.panels]
    )


def with_rows(built: dashboard.Dashboard, rows: list[Row]) -> dashboard.Dashboard:
    """A board with these rows at its end."""
    for row in rows:
        built = built.with_row(dashboard.Row(row.title))
        for shown in row.panels:
            built = built.with_panel(graph(shown))
    return built


def read_panels() -> Panels:
    return msgspec.toml.decode(PANELS.read_bytes(), type=Panels)


def texts() -> dict[Path, str]:
    """The boards as Grafana imports them, by their files."""
    boards = {BOARD: board(), MODEL_BOARD: model_board()}
    return {file: JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n" for file, built in boards.items()}


if __name__ == "__main__":
    for file, text in texts().items():
        file.write_text(text)
