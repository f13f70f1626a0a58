"""The command ``omdml replay``, from options to what is printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from omdml.errors import ConfigurationError
from omdml.streams.protocols import Record
from omdml.workers import wiring
from omdml.workers.configuration import process
from omdml.workers.configuration.config import Configuration
from omdml.workers.configuration.specs import Spec, Specs
from omdml.workers.operate import fit
from omdml.workers.operate.replay import ReplayedModel, first_learner, prequential_table, refusals, replayed_spec


class Options(NamedTuple):
    """What the command line asks for."""

    learners: Sequence[str] = ()
    fitting: bool = False
    fit_on: int = fit.MOST
    save: str | None = None
    publish: bool = False
    replace: bool = False
    accept_gap: bool = False


def run(configuration: Configuration, name: str, options: Options, console: Console) -> None:
    """Replay, print, and keep what is asked for.

    Raises ConfigurationError where options contradict each other; else what reading, learning and storing raise.
    """
    process.one_thread()
    specs = chosen(wiring.specs(configuration), name, options)
    store = wiring.open_stores(configuration)
    _, placement = wiring.placement(configuration.log, store)
    secret = store.secret() if specs[0].guard.every else None
    if options.publish and not options.replace:
        fit.check_absent(store, name)
    log, events = shown(console, wiring.read_log(configuration.log, placement, options.accept_gap)), 0
    if options.fitting:
        first, log, events = fit.cut(log, name, specs[0], options.fit_on)
        with console.status(f"fitting on the first {events:,} events, a minute or more ..."):
            models = [fit.fitted(name, spec, placement, first, secret) for spec in specs]
    else:
        models = [ReplayedModel(name, first_learner(spec, name, store), spec, placement, secret) for spec in specs]
    learn(models, log)
    report(console, models, events)
    if options.save:
        Path(options.save).write_bytes(models[0].learner.to_bytes())
    if options.publish:
        if not options.accept_gap:
            fit.check_whole(models[0])
        with closing(wiring.open_letters(configuration.log)) as letters:
            fit.publish(models[0], store, letters, process.platform(), options.replace)
        version, offset = models[0].learner.version, models[0].next
        told = f"{name}: version {version:,} is live; a worker goes on from offset {offset}"
        console.print(process.visible(told), markup=False)


def chosen(models: Specs, name: str, options: Options) -> list[Spec]:
    """A spec for each learner asked for; raises ConfigurationError where options contradict each other."""
    own = replayed_spec(models, name)
    specs = [replayed_spec(models, name, learner) for learner in dict.fromkeys(options.learners)] or [own]
    if len(specs) > 1 and (options.save or options.publish):
        raise ConfigurationError("--save and --publish take one learner: name it with --learner")
    if options.publish and specs[0].learner is not own.learner:
        raise ConfigurationError(f"model {name!r} is configured with another learner: set models.{name}.learner first")
    if options.replace and not options.publish:
        raise ConfigurationError("--replace goes with --publish")
    return specs


def learn(models: Sequence[ReplayedModel], log: Iterator[list[Record]]) -> None:
    """Take every model through the log."""
    for records in log:
        for model in models:
            model.learn(records)
    for model in models:
        model.finish()


def report(console: Console, models: Sequence[ReplayedModel], fitted: int) -> None:
    """The table, and what was refused."""
    console.print(prequential_table(models, fitted))
    for line in filter(None, map(refusals, models)):
        console.print(process.visible(line), markup=False)


def shown(console: Console, log: Iterator[list[Record]]) -> Iterator[list[Record]]:
    """The same, with a count of what was read where somebody watches."""
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} events read"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("read", total=None)
        for records in log:
            progress.advance(task, len(records))
            yield records
