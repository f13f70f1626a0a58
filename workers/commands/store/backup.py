"""``omdml backup`` and ``omdml restore``: a store in a folder becomes one file, and comes back from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from omdml.errors import ConfigurationError, OmdmlError
from omdml.workers.commands.options import say, stored
from omdml.workers.commands.store.models import confirm
from omdml.workers.configuration.wording import amount, when

if TYPE_CHECKING:
    from omdml.streams.stores.folder.store import DirectoryStore
    from omdml.workers.configuration import config

# At most this many models are read for the generation that they were learned on.
LOOKED = 100
NOTHING = "nothing"


def open_folder(configuration: config.Configuration) -> DirectoryStore:
    """Open the store; raises ConfigurationError if it is not in a folder."""
    from omdml.streams.stores.folder.store import DirectoryStore
    from omdml.workers.wiring.stores import open_stores

    store = open_stores(configuration)
    if not isinstance(store, DirectoryStore):
        raise ConfigurationError(
            f"store.url: this command is for a store in a folder, but the store is {store}: back it up with the tools "
            "of that database (of Redis and Valkey: an RDB file)"
        )
    return store


class StoreContents(NamedTuple):
    """What a store holds, as far as it can be read."""

    text: str
    logs: frozenset[str] = frozenset()
    generations: frozenset[str] = frozenset()

    @classmethod
    def of(cls, store: DirectoryStore) -> StoreContents:
        """Look at a store. One that is damaged may be the reason for a restore, so it is no error here."""
        try:
            names = store.models()
            if not names:
                return cls(NOTHING)
            live = [(name, pointer) for name, pointer in zip(names, store.current_all(names), strict=True) if pointer]
            positions = store.positions(names)
        except OmdmlError as error:
            return cls(f"it cannot be read ({error})")
        text = amount(len(names), "model")
        if live:
            name, newest = max(live, key=lambda entry: entry[1].published_at)
            text += f", newest {name} version {newest.version:,} of {when(newest.published_at)}"
        generations = set()
        for name in names[:LOOKED]:
            with suppress(OmdmlError):
                if loaded := store.load(name):
                    generations.add(loaded[1].generation)
        return cls(text, frozenset(position.home.topic_id for position in positions.values()), frozenset(generations))

    def differences(self, backup: StoreContents) -> Iterator[str]:
        """Reasons to doubt that ``backup``, the contents of a backup, should replace these."""
        pairs = (
            ("learned from another log", self.logs, backup.logs, "events of this log are not what its models learned"),
            ("learned on another generation of the catalogue", self.generations, backup.generations,
             "its models may not fit today's catalogue"),
        )  # fmt: skip
        for difference, present, in_backup, consequence in pairs:
            if present and in_backup and not present & in_backup:
                yield (
                    f"the backup was {difference} ({', '.join(sorted(in_backup))}) than the store that it replaces "
                    f"({', '.join(sorted(present))}): {consequence}. Is it the backup of this store?"
                )


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@stored
def backup(configuration: config.Configuration, file: Path) -> None:
    """Write everything in the store into FILE, as of one moment. Only for a store in a folder.

    Workers and nodes may run meanwhile. FILE holds the secret of the store, so only its owner may read it.
    """
    from omdml.streams.stores.folder.backups import back_up

    store = open_folder(configuration)
    back_up(store, file)
    say(f"{file}: {amount(len(store.models()), 'model')} of {store}, {file.stat().st_size / 1e6:,.1f} MB")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--yes", is_flag=True, help="Do not ask.")
@stored
def restore(configuration: config.Configuration, file: Path, yes: bool) -> None:
    """Replace the store by the backup in FILE. Only for a store in a folder.

    Stop the workers first. What they learned since the backup is learned again from the log when they start.
    """
    from omdml.streams.stores.folder.backups import opened_backup, put_back

    store = open_folder(configuration)
    present = StoreContents.of(store)
    if present.text != NOTHING:
        with opened_backup(file, store) as unpacked:
            replacement = StoreContents.of(unpacked)
        say(f"there now: {present.text}")
        say(f"the backup: {replacement.text}")
        for warning in present.differences(replacement):
            say(f"warning: {warning}", err=True)
        confirm(f"Replace {store} by {file}? What is there now is lost", yes)
    put_back(store, file)
    models = len(store.models())
    say(f"{store}: {amount(models, 'model')} as in {file}. Start the workers: they learn what has come since")
