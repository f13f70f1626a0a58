"""``omdml demo`` and ``omdml simulate``: simulated people who search and click."""

from __future__ import annotations

import sys
from typing import Any

import click

from omdml import DEFAULT_LEARNER
from omdml.workers.commands.options import LEARNER, asking_node
from omdml.workers.demo.people.habits import WRONG


@click.command()
@click.option("--learner", default=DEFAULT_LEARNER, show_default=True, type=LEARNER, help="Learner of the model.")
@click.option(
    "--comparisons",
    default=10_000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of comparisons that people make.",
)
@click.option(
    "--rate",
    # Two cores still answer quickly at this rate.
    default=400.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Comparisons per second.",
)
@click.option("--wrong", default=WRONG, show_default=True, type=click.FloatRange(0, 1), help="Share of wrong marks.")
@click.option("--seed", default=0, show_default=True, help="Seed of the people's choices.")
@click.option("--kafka", metavar="HOST:PORT", help="Kafka broker to use instead of a file.")
@click.option("--redis", metavar="URL", help="Redis or Valkey server to use instead of the demo's own Valkey.")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Folder for everything that the demo writes. It is kept afterwards.",
)
@click.option("--pictures", is_flag=True, help="Show 1,200 drawn products, with pictures and words, not digits.")
@click.option("--console", is_flag=True, help="Simulate nobody: you search and click in a browser, until Ctrl-C.")
def demo(**options: Any) -> None:
    """Show how answers get better while people click."""
    from omdml.workers.configuration import process
    from omdml.workers.demo.run import run_demo

    process.configure_log()
    sys.exit(run_demo(**options))


@click.command()
@click.argument("labels", type=click.Path(exists=True, dir_okay=False))
@asking_node
@click.option("--model", help="Name of the model; may be left out if the node has only one.")
@click.option(
    "--comparisons",
    default=1000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of comparisons that people make.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Comparisons per second. [default: no limit]")
@click.option("--wrong", default=WRONG, show_default=True, type=click.FloatRange(0, 1), help="Share of wrong marks.")
@click.option("--seed", default=0, show_default=True, help="Seed of the people's choices.")
@click.option(
    "--token", default="", envvar="OMDML_NODE__TOKEN", help="Token of the node, if it asks for one.", show_envvar=True
)
@click.option(
    "--people", default=8, show_default=True, type=click.IntRange(min=1), help="People who search at the same time."
)
def simulate(node: str, labels: str, **options: Any) -> None:
    """Let simulated people search at a node and click.

    LABELS is a CSV file with columns id and label: items with the same label fit each other. If the model has several
    tasks, the file has a column for each task instead. If it learns an order, the labels are numbers.
    """
    from omdml.workers.configuration import process
    from omdml.workers.demo.simulation import run_simulation

    process.configure_log()
    sys.exit(run_simulation(node, labels, **options))
