"""``omdml models``: lists, resets, deletes and copies the models in the store."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from omdml.errors import OmdmlError
from omdml.workers.commands.options import print_table, say, stored
from omdml.workers.configuration.wording import span

if TYPE_CHECKING:
    from omdml.streams.protocols.store import Store
    from omdml.workers.configuration import config
    from omdml.workers.versions.serving import KindOf


@click.group()
def models() -> None:
    """List, reset, delete and copy the models in the store."""


@models.command("list")
@stored
def list_models(configuration: config.Configuration) -> None:
    """Show every model in the store, and every configured one."""
    from omdml.workers.configuration.config import is_pattern
    from omdml.workers.versions.serving import catalogue_kinds
    from omdml.workers.wiring.stores import open_stores

    store, kinds = open_stores(configuration), catalogue_kinds(configuration)
    names = store.models()
    never_learned = [name for name in configuration.models if not is_pattern(name) and name not in names]
    print_table(
        (
            "model",
            "configured as",
            "learner",
            "comparisons learned",
            "read up to",
            "live",
            "since",
            "can nodes load it",
        ),
        [row(configuration, store, kinds, name) for name in (*names, *never_learned)],
    )


def row(configuration: config.Configuration, store: Store, kinds: KindOf, name: str) -> tuple[str, ...]:
    """A model's line in the list. If it cannot be read, the line says why."""
    from omdml.streams.part_names import part_of
    from omdml.workers.versions.serving import standing

    matched = configuration.match(name)
    label, learner = (matched[0], matched[1].learner) if matched else ("nothing", "")
    if part := part_of(name):
        label = f"a part of {part.model}"
    try:
        checkpoint, live = store.peek(name), standing(store, name, kinds)
    except OmdmlError as error:
        return name, label, learner, str(error), "", "", "", ""
    learned = f"{checkpoint.version:,}" if checkpoint else ""
    home = f"partition {checkpoint.home[1]}, offset {checkpoint.next:,}" if checkpoint else ""
    if checkpoint is None and (store.positions([name]) or store.fell_back(name) or (live and live.pointer.version)):
        learned, home = "waits: no checkpoint can be read, see omdml doctor", ""
    if live is None:
        return name, label, learner, learned, home, "nothing", "", ""
    now = time.time()
    age = f"{span(now - live.pointer.published_at)} ago"
    return name, label, learner, learned, home, f"{live.pointer.version:,}", age, live.in_words(now)


@models.command()
@click.argument("model")
@click.option("--yes", is_flag=True, help="Do not ask.")
@stored
def reset(configuration: config.Configuration, model: str, yes: bool) -> None:
    """Forget what MODEL learned. It begins again at version 0, and goes on with the events it has not read yet."""
    from omdml.workers.configuration import process
    from omdml.workers.operate import models, parts
    from omdml.workers.wiring.models import open_specs
    from omdml.workers.wiring.stores import open_stores

    process.one_thread()
    parts.require_whole(model, "reset")
    spec = models.configured_spec(open_specs(configuration), model)
    store = open_stores(configuration)
    models.require(store, model)
    confirm(f"Forget what model {model} learned?", yes)
    if spec.parts:
        count = parts.reset(store, spec, model, process.platform())
        say(f"{model}: each of its parts ({count}) is at its start, version 0")
        return
    offset = models.reset(store, spec, model, process.platform())
    place = "its first waiting event, because no checkpoint could be read" if offset is None else f"offset {offset:,}"
    say(f"{model}: at its start, version 0; it goes on from {place}")


@models.command()
@click.argument("model")
@click.option("--yes", is_flag=True, help="Do not ask.")
@stored
def delete(configuration: config.Configuration, model: str, yes: bool) -> None:
    """Remove MODEL from the store. Its checkpoints, snapshots and history are deleted.

    If the configuration still covers its name, nodes then answer with what a new model begins with, and a later event
    begins the model again.
    """
    from omdml.workers.operate import models, parts
    from omdml.workers.wiring.stores import open_stores

    store = open_stores(configuration)
    models.finish_deletion(store, model)
    models.require(store, model)
    parts.require_whole(model, "delete")
    confirm(f"Delete model {model} from {store}?", yes)
    if parts.parts_in(store, model):
        parts.delete(store, model)
    else:
        store.delete(model)
    say(f"{model}: deleted")


@models.command()
@click.argument("source")
@click.argument("target")
@stored
def copy(configuration: config.Configuration, source: str, target: str) -> None:
    """Begin model TARGET with what model SOURCE learned. TARGET must be configured like SOURCE, and must not exist."""
    from omdml.workers.configuration import process
    from omdml.workers.operate import models
    from omdml.workers.wiring.feedback_log import placement_of
    from omdml.workers.wiring.models import open_specs
    from omdml.workers.wiring.stores import open_stores

    process.one_thread()
    spec = models.configured_spec(open_specs(configuration), target)
    store = open_stores(configuration)
    topic_id, placement = placement_of(configuration.log, store)
    version = models.copy(store, source, target, spec, topic_id, placement, process.platform())
    live = "goes live with the next worker" if spec.parts else "is live"
    say(f"{target}: begun as a copy of {source}, version {version:,} {live}")


def confirm(question: str, yes: bool) -> None:
    """Ask the question unless ``yes`` answers it already. If the answer is no, the command ends.

    `kubectl exec` without `-it` and cron give a command nothing to read an answer from.
    """
    if yes:
        return
    try:
        agreed = click.confirm(question)
    except click.Abort as error:
        if sys.stdin.isatty():
            raise
        # The question has left the cursor in its line.
        click.echo()
        raise click.UsageError("nobody is there to answer: pass --yes if the answer is yes") from error
    if not agreed:
        raise click.Abort
