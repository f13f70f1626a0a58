"""``omdml topics``: the feedback log's topic in Kafka."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache, partial

import click

from omdml.errors import SourceError, StoreError
from streams.protocols import Position, Store
from workers import config
from workers.commands.options import accept_gap, configured, print_table, stored
from workers.feed import amount


@click.group()
def topics() -> None:
    """The feedback log's topic in Kafka."""


@topics.command("create")
@click.option(
    "--partitions",
    default=4,
    show_default=True,
    type=click.IntRange(min=1),
    help="More can be added, then: omdml topics rehome.",
)
@configured
def create(configuration: config.Configuration, partitions: int) -> None:
    """Create the configured topic, its events kept for ever."""
    from workers import wiring

    made = wiring.create_log(configuration.log, partitions)
    click.echo(f"topic {made} created, {partitions} partitions" if made else "the topic is there already")


@topics.command("status")
@stored
def status(configuration: config.Configuration) -> None:
    """Show every partition: what it holds, how far it is learned, by which worker, and what is wrong; ends with 1 where
    something is."""
    from workers import wiring

    lines = wiring.survey_topic(configuration)
    columns = ("partition", "begin", "end", "commit", "mark", "lag", "models", "worker", "wrong")
    print_table(columns, [
        (extent.partition.number, extent.begin, extent.end, none(extent.committed), none(mark), line.lag, models,
         worker or "-", wrong)
        for line in lines for extent, mark, models, worker, wrong in (line,)
    ])  # fmt: skip
    sys.exit(1 if any(line.wrong for line in lines) else 0)


def none(offset: int | None) -> str:
    """An offset, or that there is none."""
    return "-" if offset is None else str(offset)


@topics.command("rewind")
@click.option("--to", default="beginning", show_default=True, metavar="beginning|OFFSET", help="Where to begin.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@accept_gap
@stored
def rewind(configuration: config.Configuration, to: str, yes: bool, accept_gap: bool) -> None:
    """Learn every model anew from the log. Stop the workers first.

    The models are deleted from the store with their snapshots: nodes answer that they are not ready, until they are
    learned again.
    Dead letters are not looked at: what was sent again is in the log twice, and learned twice.
    Where partitions were added since the log began, workers learn the old ones, then wait for omdml topics rehome.
    """
    from workers import topics, wiring

    if not re.fullmatch("beginning|[0-9]{1,19}", to):
        raise click.BadParameter(f"{to!r} is neither 'beginning' nor an offset", param_hint="--to")
    extents, home = wiring.look_at_topic(configuration.log)
    wiring.require_stopped(configuration.log)
    if not yes:
        told = f"Delete the models of {len(extents)} partitions (nodes cannot search by them), to learn them anew?"
        click.confirm(told, abort=True)
    store = wiring.open_stores(configuration)
    read = partial(wiring.read_from, configuration.log, accept_gap)
    deleted, grown = topics.rewind(extents, store, home, read, None if to == "beginning" else int(to))
    click.echo(f"{amount(len(deleted), 'model')} deleted; workers begin at {'the ' * (to == 'beginning')}{to}")
    if grown:
        click.echo("partitions were added since: models that went on in these wait for omdml topics rehome")


def beginning(configuration: config.Configuration, store: Store) -> Callable[[str, Position], None]:
    """Saves the start of a model that is configured, to learn from a position on; raises CatalogueError.

    Catalogues are opened only where there is need to.
    """
    from workers import lifecycle, upkeep, wiring

    lifecycle.one_thread()
    specs, platform = cache(partial(wiring.specs, configuration)), lifecycle.platform()

    def begin(name: str, at: Position) -> None:
        if configuration.match(name) and (spec := specs().find(name)):
            upkeep.begin(store, spec, name, at, platform)

    return begin


@topics.command("rehome")
@click.option("--astray", is_flag=True, help="Move models, too, whose first event came by another partitioner.")
@accept_gap
@stored
def rehome(configuration: config.Configuration, astray: bool, accept_gap: bool) -> None:
    """After partitions were added: have each model learn on where its events come by now.

    First let all senders hear of the new partitions: five minutes with Kafka's defaults, ten seconds of omdml's own.
    What comes by an old one later is a dead letter, to be sent again. Workers may run, and have to where something is
    not learned yet: then call this again.
    """
    from workers import topics, wiring

    extents, home = wiring.look_at_topic(configuration.log)
    read, store = partial(wiring.read_from, configuration.log, accept_gap), wiring.open_stores(configuration)
    moved, left, damaged = topics.rehome(extents, store, home, read, beginning(configuration, store), astray)
    for name, partition in sorted(moved.items()):
        click.echo(f"{name}: goes on in partition {partition.number}")
    click.echo(f"{amount(len(moved), 'model')} moved")
    for error in damaged.values():
        click.echo(f"not moved: {error}", err=True)
    if left:
        told = ", ".join(f"{name} in partition {partition.number}" for name, partition in sorted(left.items()))
        raise SourceError(f"not learned yet is some of {told}: let a worker learn it, then call this again")
    if damaged:
        raise StoreError(
            f"{amount(len(damaged), 'model')} could not be read, and {'was' if len(damaged) == 1 else 'were'} not moved"
        )
