"""``omdml history``, ``inspect``, ``diff``, ``rollback``, ``pin``, ``unpin``: the versions of a model."""

from __future__ import annotations

import getpass
import json
import os
import time
from os.path import isfile
from typing import TYPE_CHECKING, Any

import click

from omdml.errors import CatalogueError, ConfigurationError, OmdmlError, StoreError
from omdml.workers.commands.options import print_table, say, stored
from omdml.workers.configuration.wording import amount, when

if TYPE_CHECKING:
    from omdml.snapshot import Snapshot
    from omdml.streams.protocols.store import Pointer, Store, Why
    from omdml.workers.configuration import config
    from omdml.workers.versions.targets import Kind


def open_known(configuration: config.Configuration, model: str) -> Store:
    """Open the store; raises StoreError if no version of the model was published."""
    from omdml.messages.suggestion import suggestion
    from omdml.workers.wiring.stores import open_stores

    store = open_stores(configuration)
    if store.current(model) is None:
        known = [name for name in store.models() if store.current(name)]
        hint_if_empty = ": check store.url, and that omdml worker runs"
        hint = suggestion(model, known) if known else hint_if_empty
        raise StoreError(f"model {model!r}: nothing is published in {store}{hint}")
    return store


def kind_here(configuration: config.Configuration, model: str) -> Kind | None:
    """What kind of catalogue the model has now. If it cannot be opened here, says so to the operator; returns None."""
    from omdml.workers.versions.serving import catalogue_kinds

    why = "no configured model covers this name"
    try:
        if kind := catalogue_kinds(configuration)(model):
            return kind
    except CatalogueError as error:
        why = str(error)
    say(f"cannot check here whether nodes can serve a version: {why}", err=True)
    return None


def loaded(store: Store, model: str, version: int | None) -> tuple[Pointer, Snapshot]:
    """Load a kept snapshot. If it is not kept, raises StoreError, which names the kept versions."""
    loaded_version = store.load(model, version)
    if loaded_version is None:
        versions = sorted(
            {entry["version"] for entry in store.history(model) if entry["what"] in ("published", "held")}
        )
        raise StoreError(f"model {model!r}: version {version} is not kept; kept are {', '.join(map(str, versions))}")
    return loaded_version


@click.command()
@click.argument("model")
@click.option("--last", type=click.IntRange(min=1), help="Number of the newest lines to show.")
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object.")
@stored
def history(configuration: config.Configuration, model: str, last: int | None, as_json: bool) -> None:
    """Show the history of MODEL, oldest first. It shows what went live, what was withheld, rollbacks, pins and drift.

    It also shows which versions nodes can load. In a line about drift, the version is the live one, and the reason says
    at which version the drift was noticed.
    """
    from omdml.workers.versions.judgement import judgement, stored_snapshot
    from omdml.workers.versions.serving import catalogue_kinds, loadable, standing

    store = open_known(configuration, model)
    every = store.history(model)
    lines = every[-(last or 0) :]
    if model in configuration.in_parts:
        lines = [with_vector(store, model, line) for line in lines]
    if as_json:
        for line in lines:
            click.echo(json.dumps(line))
        return
    kinds = catalogue_kinds(configuration)
    answers = loadable(store, model, lines, every, kinds)
    lines = [{**line, "reason": line["reason"] or line.get("vector", "")} for line in lines]
    rows = [(when(line["at"]), line["what"], f"{line['version']:,}", line["serial"], "yes" if line["pinned"] else "",
             line["actor"], line["reason"], loads) for line, loads in zip(lines, answers, strict=True)]  # fmt: skip
    print_table(("at", "what", "version", "serial", "pinned", "who", "why", "can nodes load it"), rows)
    if live := standing(store, model, kinds):
        say(f"live: version {live.pointer.version:,}; can nodes load it: {live.in_words(time.time())}")
        say(f"guard: {judgement(store, model, lambda: stored_snapshot(store, model, None)).in_a_line}")


def with_vector(store: Store, model: str, line: dict[str, Any]) -> dict[str, Any]:
    """A line of the history of a model in parts, with the positions that this version was made of, if it is kept."""
    if line["what"] not in ("published", "held"):
        return line
    try:
        stored = store.load(model, line["version"])
    except OmdmlError:
        return line
    same = stored is not None and stored[1].digest == line["digest"]
    return {**line, "vector": stored[1].vector} if stored and same else line


@click.command()
@click.argument("model")
@click.option("--version", type=click.IntRange(min=0), help="A version that is still stored; default: the live one.")
@stored
def inspect(configuration: config.Configuration, model: str, version: int | None) -> None:
    """Show what a snapshot of MODEL holds. MODEL may also be a file with a snapshot."""
    from omdml.snapshot import Snapshot
    from omdml.streams.bounded_files import STATE_BYTES, read_regular
    from omdml.workers.versions.inspection import parts, weight_owner, weights

    # If no file can have such a name, isfile returns False, but a Path would raise.
    if isfile(model):
        try:
            data = read_regular(model, STATE_BYTES)
        except OSError as error:
            raise ConfigurationError(
                f"{model}: cannot be read ({error.strerror}): name a file with a snapshot, or a model"
            ) from error
        pointer, snapshot, order = None, Snapshot.from_bytes(data), ""
    else:
        store = open_known(configuration, model)
        pointer, snapshot = loaded(store, model, version)
        order = order_in_words(configuration, store, snapshot)
    print_table(("", snapshot.model), about(pointer, snapshot, order).items())
    if shares := weights(snapshot.metric):
        print_table(
            (weight_owner(snapshot.metric), "weight"), [(name, f"{weight:.3f}") for name, weight in shares.items()]
        )
    rows = [(part.name, " x ".join(map(str, part.shape)) or "one number", f"{part.norm:.4g}", f"{part.largest:.4g}",
             f"{part.smallest:.4g}", "" if part.directions is None else f"{part.directions:.1f}")
            for part in parts(snapshot.metric)]  # fmt: skip
    print_table(("tensor", "shape", "norm", "largest", "smallest", "directions"), rows)


def order_in_words(configuration: config.Configuration, store: Store, snapshot: Snapshot) -> str:
    """The share of held-out events that a snapshot orders rightly, beside that of two metrics that learned nothing.

    If that cannot be computed, the text says why.
    """
    from omdml.workers.model.judging.held_out_accuracy import order_right, plain_metric
    from omdml.workers.model.progress import Progress
    from omdml.workers.wiring.models import open_specs

    if configuration.match(snapshot.model) is None:
        return "not known: no configured model covers this name"
    try:
        spec, checkpoint = open_specs(configuration).find(snapshot.model), store.peek(snapshot.model)
        if spec is None or checkpoint is None:
            return "not known: nothing is saved yet"
        catalogue = spec.catalogue
        if {snapshot.generation, checkpoint.generation} != {catalogue.generation}:
            return "not known: the snapshot, the checkpoint and the catalogue are not of one generation"
        hold_out, start = Progress.of(checkpoint).hold_out, spec.fresh().metric
        learned, plain, before = (
            order_right(hold_out, metric, catalogue.features)
            for metric in (snapshot.metric, plain_metric(start, catalogue), start)
        )
    except OmdmlError as error:
        return f"not known: {error}"
    if learned is None:
        return "not known: no event is held out yet"
    return f"{learned} of {amount(learned.events, 'event')} (plain distance: {plain}, the learner's start: {before})"


def about(pointer: Pointer | None, snapshot: Snapshot, order: str) -> dict[str, Any]:
    """Facts about a snapshot, as text for an operator: learner, version, catalogue, size and so on."""
    from omdml.workers.versions.judgement import FIGURE, compared, sentence

    metric, size = snapshot.metric, len(snapshot.to_bytes())
    fields: dict[str, Any] = {
        "learner": snapshot.learner,
        "version": f"{snapshot.version:,} comparisons learned",
        "metric": f"{metric.kind}, {', '.join(f'{name} {d}' for name, d in metric.dims.items())}",
        "tasks": ", ".join(metric.tasks),
        "catalogue generation": snapshot.generation,
        "newest event": when(snapshot.event_time),
        **{
            name.replace("_", " "): progress_figure(name, value)
            for name, value in snapshot.progress.items()
            if not name.startswith(FIGURE)
        },
        "guard": sentence(compared(snapshot.progress)),
        "vector of its parts": snapshot.vector,
        "held-out events in order": order,
        "size": f"{size:,} bytes",
        "digest": snapshot.digest,
    }
    if pointer is not None:
        fields["published"] = when(pointer.published_at)
        fields["pinned"] = "yes" if pointer.pinned else ""
    return {name: value for name, value in fields.items() if value != ""}


def progress_figure(name: str, value: float) -> str:
    """A count, a share in per cent, or the loss of Hedge, which is a sum."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if name.startswith("hedge_loss") else f"{value:.2%}"


@click.command()
@click.argument("model")
@click.argument("before", type=click.IntRange(min=0))
@click.argument("after", type=click.IntRange(min=0), required=False)
@stored
def diff(configuration: config.Configuration, model: str, before: int, after: int | None) -> None:
    """Show what changed in MODEL between two versions.

    It compares version BEFORE with version AFTER (default: the live one).
    """
    from omdml.workers.versions.inspection import NEAREST, changes, neighbours_kept, weight_owner, weights
    from omdml.workers.wiring.models import open_specs

    store = open_known(configuration, model)
    old, new = loaded(store, model, before)[1], loaded(store, model, after)[1]
    rows = [(change.name, f"{change.relative:.2%}") for change in changes(old, new)]
    print_table(("tensor", "changed by"), rows, title=f"{model}: version {old.version:,} -> {new.version:,}")
    was = weights(old.metric)
    now = weights(new.metric)
    moved = [(name, f"{was.get(name, 0.0):.3f}", f"{now.get(name, 0.0):.3f}") for name in {**was, **now}]
    if moved:
        print_table((weight_owner(new.metric), "weight before", "after"), moved)
    spec = open_specs(configuration).find(model) if configuration.match(model) else None
    if spec is None:
        say("no configured catalogue: cannot show whose neighbours changed")
    elif new.metric.kind != "sets":
        for task in new.metric.tasks or (None,):
            shares = neighbours_kept(old.metric, new.metric, spec.catalogue.features, task)
            say(f"{f'task {task}: ' if task else ''}{shares:.1%} of the {NEAREST} nearest items are the same")


def by_me(reason: str) -> Why:
    """Who moves a version, and why: the user of the operating system, for this reason.

    Raises ConfigurationError if the reason is too long.
    """
    from omdml.streams.protocols.store import Why
    from omdml.workers.versions.moves import MAX_REASON

    if len(reason) > MAX_REASON:
        raise ConfigurationError(f"--reason: {len(reason):,} characters, expected at most {MAX_REASON}")
    try:
        actor = getpass.getuser()
    except (KeyError, OSError):
        # A container's user may have no name.
        actor = f"user {os.getuid()}"
    return Why(actor, reason)


with_reason = click.option(
    "--reason", default="", metavar="TEXT", help="Reason, for the history. The history also records who did it."
)


@click.command()
@click.argument("model")
@click.option("--version", type=click.IntRange(min=0), help="A version that is still stored; default: the one before.")
@with_reason
@stored
def rollback(configuration: config.Configuration, model: str, version: int | None, reason: str) -> None:
    """Have nodes answer with an older version of MODEL. It stays live until you run omdml unpin."""
    from omdml.workers.versions import moves

    store = open_known(configuration, model)
    before = store.current(model)
    pointer = moves.rollback(store, model, version, kind=kind_here(configuration, model), why=by_me(reason))
    say_pinned(model, before, pointer)


@click.command()
@click.argument("model")
@click.option("--version", type=click.IntRange(min=0), help="A version that is still stored; default: the live one.")
@with_reason
@stored
def pin(configuration: config.Configuration, model: str, version: int | None, reason: str) -> None:
    """Keep a version of MODEL live until you run omdml unpin. What is learned meanwhile does not go live."""
    from omdml.workers.versions import moves

    store = open_known(configuration, model)
    before = store.current(model)
    pointer = moves.pin(store, model, version, kind=kind_here(configuration, model), why=by_me(reason))
    say_pinned(model, before, pointer)


def say_pinned(model: str, before: Pointer | None, pointer: Pointer) -> None:
    """Say which version stays live, which was live before, and until when."""
    was = ""
    if before:
        was = " (as before)" if before.digest == pointer.digest else f" (before: version {before.version:,})"
    say(f"{model}: version {pointer.version:,} is live{was}, pinned; what is learned goes live after omdml unpin")


@click.command()
@click.argument("model")
@with_reason
@stored
def unpin(configuration: config.Configuration, model: str, reason: str) -> None:
    """End a pin or rollback of MODEL. What is learned goes live again."""
    from omdml.workers.versions import moves

    store = open_known(configuration, model)
    was = "" if moves.live(store, model).pinned else "was not pinned, "
    pointer = moves.unpin(store, model, why=by_me(reason))
    say(f"{model}: {was}version {pointer.version:,} is live, and what is learned follows")


COMMANDS = (history, inspect, diff, rollback, pin, unpin)
