"""``omdml archive``: writes a log as Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omdml.workers.commands.options import accept_gap, say, stored

if TYPE_CHECKING:
    from omdml.workers.configuration import config


@click.command()
@click.option("--to", "folder", required=True, type=click.Path(file_okay=False), help="Folder of the archive.")
@accept_gap
@stored
def archive(configuration: config.Configuration, folder: str, accept_gap: bool) -> None:
    """Copy the feedback log into Parquet files. It writes the records that the archive does not have yet. Workers may
    run meanwhile.
    """
    from pathlib import Path

    from omdml.workers.operate.history import archive
    from omdml.workers.wiring.feedback_log import log_extents, open_ungrouped

    log = configuration.log
    count = archive.archive(lambda: open_ungrouped(log), log_extents(log), Path(folder), accept_gap)
    say(f"{count:,} records archived in {folder}")
