"""``omdml backup`` and ``omdml restore``: a store in a folder becomes one file, and comes back from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from omdml.errors import ConfigurationError
from omdml.workers.commands.options import say, stored

if TYPE_CHECKING:
    from omdml.streams.stores.folder.store import DirectoryStore
    from omdml.workers.configuration import config

file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


def open_folder(configuration: config.Configuration) -> DirectoryStore:
    """Open the store; raises ConfigurationError if it is not in a folder."""
    from omdml.streams.stores.folder.store import DirectoryStore
    from omdml.workers.wiring.stores import open_stores

    store = open_stores(configuration)
    if not isinstance(store, DirectoryStore):
        raise ConfigurationError(
            f"store.url: this command is for a store in a folder, but the store is {store}: back up Redis and Valkey "
            "with their own tools (an RDB file)"
        )
    return store


@click.command()
@file_argument
@stored
def backup(configuration: config.Configuration, file: Path) -> None:
    """Write everything in the store into FILE, as of one moment. Only for a store in a folder.

    Workers and nodes may run. FILE holds the secret of the store, so only its owner may read it.
    """
    from omdml.streams.stores.folder.backups import back_up

    store = open_folder(configuration)
    back_up(store, file)
    say(f"{file}: {len(store.models())} models of {store}, {file.stat().st_size / 1e6:,.1f} MB")


@click.command()
@file_argument
@stored
def restore(configuration: config.Configuration, file: Path) -> None:
    """Replace the store by the backup in FILE. Only for a store in a folder.

    Stop the workers first. What they learned since the backup is learned again from the log when they start.
    """
    from omdml.streams.stores.folder.backups import put_back

    store = open_folder(configuration)
    put_back(store, file)
    models = len(store.models())
    say(f"{store}: {models} models as they were in {file}; start the workers: they learn what has come since")
