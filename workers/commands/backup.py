"""``omdml backup`` and ``omdml restore``: a store in a folder becomes one file, and comes back from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from omdml.errors import ConfigurationError, OmdmlError
from omdml.workers.commands.models import confirm
from omdml.workers.commands.options import say, stored
from omdml.workers.configuration.wording import amount, when

if TYPE_CHECKING:
    from omdml.streams.stores.folder.store import DirectoryStore
    from omdml.workers.configuration import config

# At most so many models are read for the generation that they were learned on.
LOOKED = 100
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


class Held(NamedTuple):
    """What a store holds, as far as it can be read."""

    models: int
    newest: str
    logs: frozenset[str]
    generations: frozenset[str]

    @classmethod
    def of(cls, store: DirectoryStore) -> Held:
        """Look at a store, of which some models may be damaged."""
        names = store.models() if store.store_id else []
        live = [(pointer, name) for name, pointer in zip(names, store.current_all(names), strict=True) if pointer]
        newest, name = max(live, key=lambda entry: entry[0].published_at, default=(None, ""))
        positions = store.positions(names)
        generations = set()
        for model in names[:LOOKED]:
            with suppress(OmdmlError):
                if snapshot := store.load(model):
                    generations.add(snapshot[1].generation)
        return cls(
            len(names),
            f", newest {name} version {newest.version:,} of {when(newest.published_at)}" if newest else "",
            frozenset(position.home.topic_id for position in positions.values()),
            frozenset(generations),
        )

    def __str__(self) -> str:
        return f"{amount(self.models, 'model')}{self.newest}"

    def differences(self, comes: Held) -> Iterator[str]:
        """Why the other one may not be meant for this place."""
        pairs = (
            ("learned from another log", self.logs, comes.logs, "events of this log are not what its models learned"),
            ("learned on another generation of the catalogue", self.generations, comes.generations,
             "its models may not fit the catalogue of now"),
        )  # fmt: skip
        for what, now, then, consequence in pairs:
            if now and then and not now & then:
                yield (
                    f"the backup was {what} ({', '.join(sorted(then))}) than the store that it replaces "
                    f"({', '.join(sorted(now))}): {consequence}. Is it the backup of this store?"
                )


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
@click.option("--yes", is_flag=True, help="Do not ask.")
@stored
def restore(configuration: config.Configuration, file: Path, yes: bool) -> None:
    """Replace the store by the backup in FILE. Only for a store in a folder.

    Stop the workers first. What they learned since the backup is learned again from the log when they start.
    """
    from omdml.streams.stores.folder.backups import opened_backup, put_back

    store = open_folder(configuration)
    with opened_backup(file) as comes:
        there = Held.of(store)
        if there.models:
            brought = Held.of(comes)
            say(f"there now: {there}")
            say(f"the backup: {brought}")
            for warning in there.differences(brought):
                say(f"warning: {warning}", err=True)
            confirm(f"Replace {store} by {file}? What is there now is lost", yes)
    put_back(store, file)
    models = len(store.models())
    say(f"{store}: {models} models as they were in {file}; start the workers: they learn what has come since")
