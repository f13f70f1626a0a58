"""``omdml doctor``: what is wrong, and what to do about it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from workers.commands.options import cell, configured, wide_console

if TYPE_CHECKING:
    from workers.configuration import config


@click.command()
@click.option("--strict", is_flag=True, help="End with 1 for warnings too.")
@click.option("--audit", is_flag=True, help="Read the whole log, and hold every event against what was learned.")
@configured
def doctor(configuration: config.Configuration, strict: bool, audit: bool) -> None:
    """Check configuration, connections, catalogues, models and letters; say what to do. Ends with 1 for an error."""
    from rich.table import Table

    from workers.commands.audit import run
    from workers.doctor.findings import Level
    from workers.doctor.installation import examine

    colours = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}
    table, levels = Table("check", "", "what was seen, or what to do"), set()
    for check, level, text in examine(configuration):
        table.add_row(cell(check), f"[{colours[level]}]{level}[/]", cell(text))
        levels.add(level)
    wide_console().print(table)
    adds_up = run(configuration) if audit else True
    sys.exit(1 if Level.ERROR in levels or (strict and Level.WARNING in levels) or not adds_up else 0)
