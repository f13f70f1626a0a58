"""``omdml backup`` and ``omdml restore``: a store in a folder as one file, and back."""

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
    """The store, which lies in a folder; raises ConfigurationError if it does not."""
    from omdml.streams.stores.folder.store import DirectoryStore
    from omdml.workers.wiring.stores import open_stores

    store = open_stores(configuration)
    if not isinstance(store, DirectoryStore):
        raise ConfigurationError(
            f"store.url: this command is for a store in a folder, and models are kept in {store}: back up Redis and "
            "Valkey with their own tools (an RDB file)"
        )
    return store


@click.command()
@file_argument
@stored
def backup(configuration: config.Configuration, file: Path) -> None:
    """Write everything in the store into FILE, as of one moment, while workers and nodes run; a store in a folder only.

    FILE holds the secret, and only its owner may read it.
    """
    from omdml.streams.stores.folder.backups import back_up

    store = open_folder(configuration)
    back_up(store, file)
    say(f"{file}: {len(store.models())} models of {store}, {file.stat().st_size / 1e6:,.1f} MB")


@click.command()
@file_argument
@stored
def restore(configuration: config.Configuration, file: Path) -> None:
    """Put a backup in the place of the store; a store in a folder only.

    Stop the workers first. What they learned since the backup is learned again from the log when they are started.
    """
    from omdml.streams.stores.folder.backups import put_back

    store = open_folder(configuration)
    put_back(store, file)
    models = len(store.models())
    say(f"{store}: {models} models as they were in {file}; start the workers: they learn what came since")
