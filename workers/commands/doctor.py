"""``omdml doctor``, ``status`` and ``config``: find what is wrong, show the service, check the configuration."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from omdml.errors import ConfigurationError
from omdml.workers.commands.options import cell, configured, exit_code, from_file, wide_console

if TYPE_CHECKING:
    from omdml.workers.configuration.config import Configuration
    from omdml.workers.doctor.findings import Finding, Level

as_json = click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of a table.")


@click.command()
@click.option("--strict", is_flag=True, help="End with exit code 1 for warnings too.")
@click.option("--audit", is_flag=True, help="Read the whole log, and compare every event with what was learned.")
@as_json
@configured
def doctor(configuration: Configuration, strict: bool, audit: bool, as_json: bool) -> None:
    """Say what is wrong with an installation, and what to do. It checks configuration, connections, catalogues, models
    and letters.

    The exit code is 1 if there is an error, or if --audit finds that something does not add up.
    """
    from omdml.workers.commands.audit import run
    from omdml.workers.doctor.checks.installation import examine
    from omdml.workers.doctor.findings import Level

    if audit and as_json:
        raise click.UsageError("--audit prints a table of its own: leave out --json")
    levels = report(examine(configuration), as_json)
    adds_up = run(configuration) if audit else True
    sys.exit(1 if Level.ERROR in levels or (strict and Level.WARNING in levels) or not adds_up else 0)


@click.command()
@as_json
@configured
def status(configuration: Configuration, as_json: bool) -> None:
    """Show the whole service on one screen. It shows log, workers, models, node, dead letters, store and catalogues.

    If a part does not answer, its place on the screen says why. The exit code is then 1, or 3 if an operator must
    correct something.
    """
    import msgspec

    from omdml.workers.doctor.screen import screen
    from omdml.workers.doctor.status import Inspection

    inspection = Inspection(configuration)
    status_now = inspection.status()
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(status_now), indent=2))
    else:
        for line in screen(status_now, shutil.get_terminal_size().columns):
            click.echo(line)
    sys.exit(max(map(exit_code, inspection.problems.values()), default=0))


@click.group()
def config() -> None:
    """Check a configuration, or print its schema. No server is needed."""


@config.command()
@as_json
@from_file
def check(load: Callable[..., Configuration], as_json: bool) -> None:
    """Check the configuration. This is what worker and node do when they start, but it connects to nothing.

    All mistakes are listed, except those that may only follow from others. Catalogues in folders are opened. Those in
    Redis, and models on them, are checked by omdml doctor. The exit code is 2 if anything is wrong.
    """
    from omdml.workers.doctor.findings import Finding, Level

    try:
        configuration = load({}, thorough=True)
    except ConfigurationError as error:
        report([Finding("configuration", Level.ERROR, mistake) for mistake in error.mistakes], as_json)
        sys.exit(2)
    from omdml.workers.doctor.checks.installation import examine_configuration

    sys.exit(2 if Level.ERROR in report(examine_configuration(configuration), as_json) else 0)


@config.command()
def schema() -> None:
    """Print the JSON schema of the configuration. Editors and programs can use it."""
    import json

    from omdml.workers.configuration import schema

    click.echo(json.dumps(schema.schema(), indent=2))


def report(findings: Iterable[Finding], as_json: bool) -> set[Level]:
    """Print findings; returns the levels that occurred."""
    from rich.table import Table

    from omdml.workers.doctor.findings import Level

    if as_json:
        import json

        seen = list(findings)
        click.echo(json.dumps({"findings": [finding._asdict() for finding in seen]}, indent=2))
        return {finding.level for finding in seen}
    colours = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}
    table, levels = Table("check", "", "what was seen, or what to do"), set()
    for check, level, text in findings:
        table.add_row(cell(check), f"[{colours[level]}]{level}[/]", cell(text))
        levels.add(level)
    wide_console().print(table)
    return levels
