"""``omdml topics``: the feedback log's topic in Kafka."""

from __future__ import annotations

import sys

import click

from workers import config
from workers.commands.options import configured, print_table, stored
from workers.feed import amount


@click.group()
def topics() -> None:
    """The feedback log's topic in Kafka."""


@topics.command("create")
@click.option("--partitions", default=4, show_default=True, type=click.IntRange(min=1), help="Fixed from then on.")
@configured
def create(configuration: config.Configuration, partitions: int) -> None:
    """Create the configured topic, its events kept for ever."""
    from workers import wiring

    made = wiring.create_log(configuration.log, partitions)
    click.echo(f"topic {made} created, {partitions} partitions" if made else "the topic is there already")


@topics.command("status")
@stored
def status(configuration: config.Configuration) -> None:
    """Show every partition: what it holds, how far it is learned, and what is wrong; ends with 1 where something is."""
    from workers import wiring
    from workers.topics import survey

    extents, home = wiring.look_at_topic(configuration.log)
    lines = survey(extents, wiring.open_stores(configuration), home)
    columns = ("partition", "begin", "end", "commit", "mark", "lag", "models", "wrong")
    print_table(columns, [
        (extent.partition.number, extent.begin, extent.end, none(extent.committed), none(mark), line.lag, models, wrong)
        for line in lines for extent, mark, models, wrong in (line,)
    ])  # fmt: skip
    sys.exit(1 if any(line.wrong for line in lines) else 0)


def none(offset: int | None) -> str:
    """An offset, or that there is none."""
    return "-" if offset is None else str(offset)


@topics.command("rewind")
@click.option("--to", default="beginning", show_default=True, metavar="beginning|OFFSET", help="Where to begin.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@stored
def rewind(configuration: config.Configuration, to: str, yes: bool) -> None:
    """Learn every model anew from the log. Stop the workers first.

    The models are deleted from the store with their snapshots: nodes have nothing new until they are learned again.
    """
    from workers import topics, wiring

    if to != "beginning" and not to.isdigit():
        raise click.BadParameter(f"{to!r} is neither 'beginning' nor an offset", param_hint="--to")
    extents, _ = wiring.look_at_topic(configuration.log)
    wiring.require_stopped(configuration.log)
    if not yes:
        click.confirm(f"Delete the models of {len(extents)} partitions, to learn them anew?", abort=True)
    learned = topics.rewind(extents, wiring.open_stores(configuration), None if to == "beginning" else int(to))
    begin = f"{'the ' * (to == 'beginning')}{to}"
    click.echo(f"{amount(len(learned), 'model')} deleted; workers begin at {begin}")


@topics.command("rehome")
@stored
def rehome(configuration: config.Configuration) -> None:
    """After partitions were added: have each model learn on where its events come by now."""
    from workers import topics, wiring

    extents, home = wiring.look_at_topic(configuration.log)
    moved = topics.rehome(extents, wiring.open_stores(configuration), home)
    for name, partition in sorted(moved.items()):
        click.echo(f"{name}: goes on in partition {partition.number}")
    click.echo(f"{amount(len(moved), 'model')} moved")
