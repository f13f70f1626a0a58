"""``omdml history``, ``inspect``, ``diff``, ``rollback``, ``pin``, ``unpin``: what is live, and what was."""

from __future__ import annotations

import json
from os.path import isfile
from pathlib import Path
from typing import Any

import click

from omdml.errors import StoreError
from omdml.snapshot import Snapshot
from streams.protocols import Pointer, Store
from workers import config, moves
from workers.commands.options import print_table, stored, when
from workers.config import suggestion


def open_known(configuration: config.Configuration, model: str) -> Store:
    """The store, which knows the model; raises StoreError where it does not."""
    from workers import wiring

    store = wiring.open_stores(configuration)
    if store.current(model) is None:
        known = [name for name in store.models() if store.current(name)]
        raise StoreError(f"model {model!r}: nothing is published in {store}{suggestion(model, known)}")
    return store


def loaded(store: Store, model: str, version: int | None) -> tuple[Pointer, Snapshot]:
    """A kept snapshot; raises StoreError naming those that are kept."""
    found = store.load(model, version)
    if found is None:
        kept = sorted({entry["version"] for entry in store.history(model) if entry["what"] in ("published", "held")})
        raise StoreError(f"model {model!r}: version {version} is not kept; kept are {', '.join(map(str, kept))}")
    return found


@click.command()
@click.argument("model")
@click.option("--last", type=click.IntRange(min=1), help="So many lines only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@stored
def history(configuration: config.Configuration, model: str, last: int | None, as_json: bool) -> None:
    """What went live of MODEL and what was withheld, rollbacks, pins and drift, oldest first."""
    lines = open_known(configuration, model).history(model)[-(last or 0) :]
    if as_json:
        for line in lines:
            click.echo(json.dumps(line))
        return
    rows = [(when(line["at"]), line["what"], f"{line['version']:,}", line["serial"], "pinned" if line["pinned"] else "",
             line["reason"]) for line in lines]  # fmt: skip
    print_table(("at", "what", "version", "serial", "fixed", "why"), rows)


@click.command()
@click.argument("model")
@click.option("--version", type=click.IntRange(min=0), help="A kept version; default: the live one.")
@stored
def inspect(configuration: config.Configuration, model: str, version: int | None) -> None:
    """What a snapshot of MODEL holds; MODEL may be a file that holds one."""
    from workers.inspection import parts, weights

    if isfile(model):  # also for a name that no file can have
        pointer, snapshot = None, Snapshot.from_bytes(Path(model).read_bytes())
    else:
        pointer, snapshot = loaded(open_known(configuration, model), model, version)
    print_table(("", snapshot.model), about(pointer, snapshot).items())
    if shares := weights(snapshot.metric):
        print_table(("modality", "weight"), [(name, f"{weight:.3f}") for name, weight in shares.items()])
    rows = [(part.name, " x ".join(map(str, part.shape)) or "one number", f"{part.norm:.4g}", f"{part.largest:.4g}",
             f"{part.smallest:.4g}", "" if part.directions is None else f"{part.directions:.1f}")
            for part in parts(snapshot.metric)]  # fmt: skip
    print_table(("tensor", "shape", "norm", "largest", "smallest", "directions"), rows)


def about(pointer: Pointer | None, snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot's provenance, in words."""
    metric, size = snapshot.metric, len(snapshot.to_bytes())
    told: dict[str, Any] = {
        "learner": snapshot.learner,
        "version": f"{snapshot.version:,} comparisons learned",
        "metric": f"{metric.kind}, {', '.join(f'{name} {d}' for name, d in metric.dims.items())}",
        "tasks": ", ".join(metric.tasks),
        "catalogue generation": snapshot.generation,
        "newest event": when(snapshot.event_time),
        **{name.replace("_", " "): f"{value:.2%}" for name, value in snapshot.progress.items()},
        "size": f"{size:,} bytes",
        "digest": snapshot.digest,
    }
    if pointer is not None:
        told["published"] = when(pointer.published_at)
        told["pinned"] = "yes" if pointer.pinned else ""
    return {name: value for name, value in told.items() if value != ""}


@click.command()
@click.argument("model")
@click.argument("before", type=click.IntRange(min=0))
@click.argument("after", type=click.IntRange(min=0), required=False)
@stored
def diff(configuration: config.Configuration, model: str, before: int, after: int | None) -> None:
    """What changed in MODEL from version BEFORE to AFTER (default: the live one)."""
    from workers import wiring
    from workers.inspection import NEAREST, changes, neighbours_kept, weights

    store = open_known(configuration, model)
    old, new = loaded(store, model, before)[1], loaded(store, model, after)[1]
    rows = [(change.name, f"{change.relative:.2%}") for change in changes(old, new)]
    print_table(("tensor", "changed by"), rows, title=f"{model}: version {old.version:,} -> {new.version:,}")
    was = weights(old.metric)
    moved = [(name, f"{was[name]:.3f}", f"{weight:.3f}") for name, weight in weights(new.metric).items()]
    if moved:
        print_table(("modality", "weight before", "after"), moved)
    found = configuration.match(model)
    catalogue = wiring.open_catalogues(configuration).get(found[1].catalogue) if found else None
    if catalogue is None:
        click.echo("no configured catalogue: whose neighbours changed cannot be told")
    elif new.metric.kind != "sets":
        for task in new.metric.tasks or (None,):
            kept = neighbours_kept(old.metric, new.metric, catalogue.features, task)
            click.echo(f"{f'task {task}: ' if task else ''}{kept:.1%} of the {NEAREST} nearest items are the same")


@click.command()
@click.argument("model")
@click.option("--version", type=click.IntRange(min=0), help="A kept version; default: the one before the live one.")
@stored
def rollback(configuration: config.Configuration, model: str, version: int | None) -> None:
    """Let nodes answer with an older version of MODEL, and keep it so until ``omdml unpin``."""
    pointer = moves.rollback(open_known(configuration, model), model, version)
    click.echo(f"{model}: version {pointer.version:,} is live, pinned; what is learned goes live after omdml unpin")


@click.command()
@click.argument("model")
@click.option("--version", type=click.IntRange(min=0), help="A kept version; default: the live one.")
@stored
def pin(configuration: config.Configuration, model: str, version: int | None) -> None:
    """Keep one version of MODEL live, whatever is learned."""
    pointer = moves.pin(open_known(configuration, model), model, version)
    click.echo(f"{model}: version {pointer.version:,} is live, pinned; what is learned goes live after omdml unpin")


@click.command()
@click.argument("model")
@stored
def unpin(configuration: config.Configuration, model: str) -> None:
    """Let MODEL follow what is learned again."""
    store = open_known(configuration, model)
    was = "" if moves.live(store, model).pinned else "was not pinned, "
    pointer = moves.unpin(store, model)
    click.echo(f"{model}: {was}version {pointer.version:,} is live, and what is learned follows")


COMMANDS = (history, inspect, diff, rollback, pin, unpin)
