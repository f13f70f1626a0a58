"""``omdml demo`` and ``omdml simulate``: people who search and click."""

from __future__ import annotations

import sys
from typing import Any

import click

from omdml import DEFAULT_LEARNER
from omdml.workers.commands.options import LEARNER


@click.command()
@click.option("--learner", default=DEFAULT_LEARNER, show_default=True, type=LEARNER)
@click.option("--comparisons", default=10_000, show_default=True, type=click.IntRange(min=1))
@click.option("--rate", default=400.0, show_default=True, type=click.FloatRange(min=0, min_open=True), help="A second.")
@click.option("--wrong", default=0.05, show_default=True, type=click.FloatRange(0, 1), help="Share of wrong marks.")
@click.option("--seed", default=0, show_default=True)
@click.option("--kafka", metavar="HOST:PORT", help="A broker to use instead of a file.")
@click.option("--redis", metavar="URL", help="A server to use instead of an embedded Valkey.")
@click.option("--keep", metavar="DIR", type=click.Path(file_okay=False), help="Keep everything that is written, here.")
@click.option("--pictures", is_flag=True, help="Show 1,200 drawn products, described by their pictures and words.")
@click.option("--console", is_flag=True, help="Nobody clicks but you, in a browser, until Ctrl-C.")
def demo(**options: Any) -> None:
    """Show on this machine how answers get better while people click."""
    from omdml.workers.configuration import process
    from omdml.workers.demo import run_demo

    process.configure_log()
    sys.exit(run_demo(**options))


@click.command()
@click.argument("labels", type=click.Path(exists=True, dir_okay=False))
@click.option("--node", default="http://127.0.0.1:8080", show_default=True, metavar="URL")
@click.option("--model", help="May be left out if the node has one.")
@click.option("--comparisons", default=1000, show_default=True, type=click.IntRange(min=1))
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Comparisons a second; default: no limit.")
@click.option("--wrong", default=0.05, show_default=True, type=click.FloatRange(0, 1), help="Share of wrong marks.")
@click.option("--seed", default=0, show_default=True)
@click.option("--token", default="", envvar="OMDML_NODE__TOKEN", help="The node's, if it has one.", show_envvar=True)
@click.option("--people", default=8, show_default=True, type=click.IntRange(min=1), help="How many search at once.")
def simulate(node: str, labels: str, **options: Any) -> None:
    """Let simulated people search at a node and click; LABELS is a CSV file with columns id and label (or a column a
    task, if the model learns several; numbers, if it learns an order).
    """
    from omdml.workers.configuration import process
    from omdml.workers.demo import run_simulation

    process.configure_log()
    sys.exit(run_simulation(node, labels, **options))
