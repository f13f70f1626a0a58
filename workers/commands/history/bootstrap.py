"""``omdml bootstrap``: begins a model from an archive of years of its log."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from omdml.workers.commands.options import accept_gap, from_file, say
from omdml.workers.configuration.wording import amount

if TYPE_CHECKING:
    from omdml.workers.configuration import config
    from omdml.workers.operate.history.engines import HistoryEngine


@click.command()
@click.option("--input", "inputs", required=True, multiple=True, type=click.Path(), help="Parquet file, or a folder of "
              "such files. May be repeated.")  # fmt: skip
@click.option("--model", required=True, help="Model whose events to learn; a pattern may cover its name.")
@click.option("--engine", type=click.Choice(("local", "spark", "dask")), default="local", show_default=True,
              help="Engine that makes the sums: processes on this machine, Spark, or Dask.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1),
              help="Number of processes of the engine local. [default: one for each processor]")  # fmt: skip
@click.option("--master", default="",
              help="Master of the engine spark, such as local[4]. [default: Spark's configuration]")  # fmt: skip
@click.option("--scheduler", default="",
              help="Scheduler of the engine dask, such as tcp://host:8786.")  # fmt: skip
@click.option("--topic-id", help="Identity of the log, for files without a column topic_id.")
@click.option("--replace", is_flag=True, help="Replace the checkpoint of the model in the store.")
@accept_gap
@from_file
def bootstrap(load: Callable[..., config.Configuration], model: str, **options: Any) -> None:
    """Begin a dca model from an archive of its log. Workers then go on from the end of the archive.

    Stop the workers first. The sums over the archive are made in parts, so any number of machines can share the work.
    """
    configuration = load({})

    from omdml.workers.configuration.warm_up import announce_compiling

    announce_compiling()
    _bootstrap(configuration, model, **options)


def _bootstrap(
    configuration: config.Configuration, model: str, inputs: tuple[str, ...], engine: str, processes: int | None,
    master: str, scheduler: str, topic_id: str | None, replace: bool, accept_gap: bool,
) -> None:  # fmt: skip
    from contextlib import closing

    from omdml.workers.configuration import process
    from omdml.workers.configuration.config import FileLog
    from omdml.workers.operate.history import bootstrap as history
    from omdml.workers.operate.history.archived import find_records
    from omdml.workers.operate.models import configured_spec
    from omdml.workers.wiring.dead_letters import open_letters
    from omdml.workers.wiring.feedback_log import log_extents, placement_of, require_stopped
    from omdml.workers.wiring.models import open_specs
    from omdml.workers.wiring.stores import open_stores

    process.one_thread()
    sum_up_with = _engine(engine, processes, master, scheduler)
    log, in_files = configuration.log, isinstance(configuration.log, FileLog)
    store = open_stores(configuration)
    require_stopped(log, store)
    spec = configured_spec(open_specs(configuration), model)
    _, placement = placement_of(log, store)
    history.check_model(model, spec, placement)
    if not replace:
        history.check_absent(store, model)
    home = placement.home(model)
    archive = find_records(inputs, home, topic_id)
    (extent,) = (extent for extent in log_extents(log) if extent.partition.number == home)
    history.check_range(archive, extent, model, accept_gap)
    span = history.SPAN_BYTES if in_files else history.SPAN
    job = history.job_of(model, spec, configuration, open_specs, placement, store.secret(), span)
    learned = history.learned(job, spec, archive, sum_up_with, accept_gap, not in_files)
    with closing(open_letters(log)) as letters:
        withheld = history.adopt(learned.model, store, placement, letters, process.platform(), replace)
    refused = f"; {amount(len(learned.model.refused), 'event')} became dead letters" if learned.model.refused else ""
    state = f"version {learned.model.learner.version:,}, from {amount(learned.records, 'record')}{refused}"
    say(f"{model}: {state}; a worker goes on from offset {learned.model.next}")
    if withheld:
        say(f"{model}: nodes do not get this version, because the guard withholds it: {withheld}", err=True)


def _engine(name: str, processes: int | None, master: str, scheduler: str) -> HistoryEngine:
    from omdml.workers.operate.history.engines import Dask, Processes, Spark

    owners = {"--processes": ("local", processes), "--master": ("spark", master), "--scheduler": ("dask", scheduler)}
    for option, (owner, value) in owners.items():
        if value and owner != name:
            # Spark's own master can be processes of this machine.
            instead = "--master 'local[N]'" if (option, name) == ("--processes", "spark") else f"--engine {owner}"
            raise click.UsageError(f"{option} is about the engine {owner}: pass {instead}")
    if name == "spark":
        return Spark(master=master)
    if name == "dask":
        if not scheduler:
            raise click.UsageError("--engine dask needs the address of a scheduler: pass --scheduler tcp://HOST:8786")
        return Dask(scheduler)
    return Processes(processes or os.cpu_count() or 1)
