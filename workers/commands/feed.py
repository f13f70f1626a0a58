"""``omdml feed``: events from files or standard input into the feedback log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, BinaryIO

import click

from omdml.workers.commands.options import configured, say

if TYPE_CHECKING:
    from omdml.workers.configuration import config


@click.command()
@click.argument("files", nargs=-1, type=click.File("rb"))
@click.option("--dry-run", is_flag=True, help="Validate only, send nothing.")
@configured
def feed(configuration: config.Configuration, files: tuple[BinaryIO, ...], dry_run: bool) -> None:
    """Validate events (JSON lines, from FILES or standard input) and send them to the feedback log."""
    from omdml.workers import wiring
    from omdml.workers.events.validation import bounded_lines, send_events

    specs = wiring.specs(configuration)
    sink = None if dry_run else wiring.open_sink(configuration.log)
    refused = 0
    sources: tuple[BinaryIO, ...] = files or (sys.stdin.buffer,)
    for file in sources:
        fed = send_events(bounded_lines(file), specs, sink, file.name)
        say(f"{file.name}: {'would send' if dry_run else 'sent'} {fed.kinds}, refused {fed.total_refused}")
        for line, error in fed.refused:
            say(f"  line {line}: {error.reason}: {error}", err=True)
        refused += fed.total_refused
    if sink is not None:
        sink.close()
    sys.exit(1 if refused else 0)
