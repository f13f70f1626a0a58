"""``omdml sync``: keeps an index in a vector database up to date."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from omdml.workers.commands.options import say, stored
from omdml.workers.commands.store.snapshots import open_known
from omdml.workers.commands.vectors.items import attributes_now, items_now

if TYPE_CHECKING:
    from omdml.workers.configuration import config


@click.command()
@click.argument("model")
@click.option(
    "--to",
    "address",
    required=True,
    envvar="OMDML_SYNC_TO",
    metavar="ADDRESS",
    help="postgresql://USER@HOST/DATABASE or lancedb:FOLDER. Set an address with a password in OMDML_SYNC_TO instead.",
)
@click.option("--name", help="Name of the index. [default: omdml_ and the model's name]")
@click.option("--task", help="Task in whose sense to index, if the model has tasks.")
@click.option(
    "--index",
    "searched",
    type=click.Choice(["approximate", "none"]),
    default="approximate",
    show_default=True,
    help="Index for searches. approximate: it may miss a near item. none: each search is an exact scan.",
)
@click.option("--follow", is_flag=True, help="Follow new versions until Ctrl-C or SIGTERM.")
@click.option(
    "--moved",
    default=0.01,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Write items that moved further than this share of the items' spread.",
)
@click.option(
    "--rows-per-second",
    type=click.FloatRange(min=0, min_open=True),
    help="Largest number of rows to write per second. [default: as fast as the database takes them]",
)
@click.option("--bind", default="", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz here.")
@stored
def sync(
    configuration: config.Configuration,
    model: str,
    address: str,
    name: str | None,
    task: str | None,
    searched: str,
    follow: bool,
    moved: float,
    rows_per_second: float | None,
    bind: str,
) -> None:
    """Keep a vector database's index of MODEL's items up to date. It holds the version that nodes answer with.

    Readers see one version at a time, even while it is written, and even if this process is killed. deploy/VECTORS.md
    says how to search it.
    """
    import threading

    import structlog

    from omdml.workers.configuration import process
    from omdml.workers.operate.export.source import LiveItems
    from omdml.workers.operate.sync.metrics import SyncMetrics, SyncState
    from omdml.workers.operate.sync.syncing import Syncer, sentence
    from omdml.workers.operate.sync.throttle import Throttle
    from omdml.workers.telemetry.condition import Messenger
    from omdml.workers.telemetry.registry import new_registry
    from omdml.workers.wiring.indexes import open_index

    stop, registry = threading.Event(), new_registry()
    state, metrics = SyncState(stop), SyncMetrics(registry)
    process.serve_metrics(bind, registry, "--bind", state)
    store, items = open_known(configuration, model), items_now(configuration, model)
    source = LiveItems(store, items, attributes_now(configuration, model, items), model, task)
    log = structlog.get_logger(__name__)
    process.on_signals(stop.set)
    with closing(open_index(address, name, model, searched == "approximate")) as index, Messenger(state):
        syncer = Syncer(index, source, moved, Throttle(rows_per_second, stop), metrics, state, task)
        log.info("sync_started", model=model, index=str(index), follow=follow, metrics=bind)
        if follow:
            syncer.follow(stop)
        elif synced := syncer.step():
            say(f"{index}: {sentence(synced)}")
        log.info("sync_stopped", model=model, index=str(index))
