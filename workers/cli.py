"""The command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from omdml.errors import CatalogueError, ConfigurationError, OmdmlError
from workers.commands import backup, letters, models, route, snapshots, topics
from workers.commands.options import LEARNER, accept_gap, cell, configured, from_file, say, wide_console

if TYPE_CHECKING:
    from workers import config


class Omdml(click.Group):
    """Errors of ours end the process with one sentence, not with a traceback."""

    def invoke(self, context: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(context)
        except (ConfigurationError, CatalogueError) as error:
            say(f"omdml: {error}", err=True)
            sys.exit(2)
        except OmdmlError as error:
            say(f"omdml: {error}", err=True)
            sys.exit(1)

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        """Find the command; a mistyped one is answered with the nearest there is."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from workers import config

            raise click.UsageError(f"no command {args[0]!r}{config.suggestion(args[0], self.commands)}", context)
        return super().resolve_command(context, args)


@click.group(cls=Omdml, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="omdml")
def main() -> None:
    """Learns what similar means from what people click, while they click."""


@main.command()
@accept_gap
@configured
def worker(configuration: config.Configuration, accept_gap: bool) -> None:
    """Learn from the feedback log, publish snapshots, save checkpoints."""
    import structlog
    from prometheus_client import CollectorRegistry

    from workers import lifecycle, wiring
    from workers.warm_up import announce_compiling, warm_up

    announce_compiling()
    lifecycle.one_thread()
    registry = CollectorRegistry()
    lifecycle.serve_metrics(configuration.worker.bind, registry)
    log = structlog.get_logger(__name__)
    log.info("worker_started", metrics=configuration.worker.bind, **wiring.names(configuration.log))
    models = configuration.models.values()
    warm_up((model.learner, str(model.parameters.get("dtype", "float32"))) for model in models)
    learner = wiring.build_worker(configuration, registry, accept_gap)
    lifecycle.on_signals(learner.stop)
    learner.run()


@main.command()
@configured
def node(configuration: config.Configuration) -> None:
    """Answer searches with the newest metric, over HTTP."""
    from workers import lifecycle, wiring
    from workers.warm_up import announce_compiling

    announce_compiling()
    lifecycle.one_thread()
    wiring.serve_node(configuration)


@main.command()
@click.argument("files", nargs=-1, type=click.File("rb"))
@click.option("--dry-run", is_flag=True, help="Validate only, send nothing.")
@configured
def feed(configuration: config.Configuration, files: tuple[BinaryIO, ...], dry_run: bool) -> None:
    """Validate events (JSON lines, from FILES or standard input) and send them to the feedback log."""
    from workers import wiring
    from workers.feed import bounded_lines, send_events

    specs = wiring.specs(configuration)
    sink = None if dry_run else wiring.open_sink(configuration.log)
    refused = 0
    sources: tuple[BinaryIO, ...] = files or (sys.stdin.buffer,)
    for file in sources:
        fed = send_events(bounded_lines(file), specs, sink)
        say(f"{file.name}: {'would send' if dry_run else 'sent'} {fed.kinds}, refused {fed.total_refused}")
        for line, error in fed.refused:
            say(f"  line {line}: {error.reason}: {error}", err=True)
        refused += fed.total_refused
    if sink is not None:
        sink.close()
    sys.exit(1 if refused else 0)


@main.command()
@click.option("--catalogue", help="Folder of the one catalogue (or redis://...#NAME), instead of [catalogues].")
@click.option("--model", required=True, help="Whose events to learn; a name that a pattern covers will do.")
@click.option("--learner", "learners", multiple=True, type=LEARNER, help="Instead; repeatable.")
@click.option("--fit", "fitting", is_flag=True, help="Fit diagonal, omdml, qwise or signed on the log's first part.")
@click.option("--fit-on", default=5000, show_default=True, type=click.IntRange(1), help="Comparisons; or half the log.")
@click.option("--save", type=click.Path(dir_okay=False), help="Write the learner's state here.")
@click.option("--publish", is_flag=True, help="Begin the model in the store: workers go on from here.")
@click.option("--replace", is_flag=True, help="With --publish: delete what the store has of the model.")
@accept_gap
@from_file
def replay(load: Callable[..., config.Configuration], catalogue: str | None, model: str, **options: Any) -> None:
    """Learn the feedback log again from its beginning, offline, and show how mistakes went; workers notice nothing."""
    from workers import replaying
    from workers.warm_up import announce_compiling

    announce_compiling()
    overrides: dict[str, Any] = {"catalogues": {"default": {"path": catalogue}}} if catalogue else {}
    if catalogue:
        overrides["models"] = {model: {"catalogue": "default"}}
    replaying.run(load(overrides), model, replaying.Options(**options), wide_console())


@main.command()
@click.option("--strict", is_flag=True, help="End with 1 for warnings too.")
@click.option("--audit", is_flag=True, help="Read the whole log, and hold every event against what was learned.")
@configured
def doctor(configuration: config.Configuration, strict: bool, audit: bool) -> None:
    """Check configuration, connections, catalogues, models and letters; say what to do. Ends with 1 for an error."""
    from rich.table import Table

    from workers.commands.audit import run
    from workers.doctor import examine
    from workers.findings import Level

    colours = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}
    table, levels = Table("check", "", "what was seen, or what to do"), set()
    for check, level, text in examine(configuration):
        table.add_row(cell(check), f"[{colours[level]}]{level}[/]", cell(text))
        levels.add(level)
    wide_console().print(table)
    adds_up = run(configuration) if audit else True
    sys.exit(1 if Level.ERROR in levels or (strict and Level.WARNING in levels) or not adds_up else 0)


@main.group()
def catalogue() -> None:
    """The items' vectors."""


@catalogue.command("build")
@click.argument("target", type=click.Path(file_okay=False))
@click.argument("inputs", nargs=-1, required=True)
@click.option("--ids", type=click.Path(exists=True, dir_okay=False), help="Text file, one id a line, for npy and npz.")
@click.option("--id-column", default="id", show_default=True, help="Column of the ids, for CSV and Parquet.")
@click.option("--scaling", show_default="minmax", type=click.Choice(["minmax", "unit", "none"]))
@click.option("--sets", type=click.Path(exists=True, dir_okay=False), help="Sets: CSV (set, item) or JSON lines.")
@click.option("--replace", is_flag=True, help="Take the place of a catalogue of another generation.")
@click.option("--add", is_flag=True, help="Add items to the catalogue there, scaled as its first ones were.")
def build(target: str, inputs: tuple[str, ...], scaling: str | None, replace: bool, add: bool, **options: Any) -> None:
    """Make the catalogue TARGET from INPUTS: npz, csv, parquet, or modality=file.npy.

    TARGET is a folder, or redis://HOST:PORT/0#NAME (also rediss://, valkey://).

    Columns of CSV and Parquet named color.0, color.1, ... or color_0, color_1, ... are the modality color, and so is a
    Parquet column of lists; an npz has an array a modality, and ids in an array of that name. Several inputs are joined
    by id: each holds other modalities of the same items.
    """
    from streams.catalogues.targets import add_at, build_at
    from streams.stores.addresses import masked
    from workers import lifecycle
    from workers.times import amount

    lifecycle.configure_log()
    if add and (replace or scaling):
        raise click.UsageError("--add keeps the catalogue's generation and scaling: leave out --replace and --scaling")
    if add:
        built = add_at(target, list(inputs), **options)
    else:
        built = build_at(target, list(inputs), scaling=scaling or "minmax", replace=replace, **options)
    modalities = ", ".join(f"{name} {size}" for name, size in built.dims.items())
    sets = f", {amount(len(built.sets), 'set')}" if built.sets else ""
    told = f"{amount(len(built.ids), 'item')}{sets}, {modalities}, generation {built.generation[:12]}"
    say(f"{masked(target)}: {told}")


@main.command()
@click.option("--learner", default="lomdml", show_default=True, type=LEARNER)
@click.option("--comparisons", default=10_000, show_default=True, type=click.IntRange(min=1))
@click.option("--rate", default=400.0, show_default=True, type=click.FloatRange(min=0, min_open=True), help="A second.")
@click.option("--wrong", default=0.05, show_default=True, type=click.FloatRange(0, 1), help="Share of wrong marks.")
@click.option("--seed", default=0, show_default=True)
@click.option("--kafka", metavar="HOST:PORT", help="A broker to use instead of a file.")
@click.option("--redis", metavar="URL", help="A server to use instead of an embedded Valkey.")
@click.option("--keep", metavar="DIR", type=click.Path(file_okay=False), help="Keep everything that is written, here.")
def demo(**options: Any) -> None:
    """Show on this machine how answers get better while people click."""
    from workers import lifecycle
    from workers.demo import run_demo

    lifecycle.configure_log()
    sys.exit(run_demo(**options))


@main.command()
@click.argument("labels", type=click.Path(exists=True, dir_okay=False))
@click.option("--node", default="http://127.0.0.1:8080", show_default=True, metavar="URL")
@click.option("--model", help="May be left out where the node has one.")
@click.option("--comparisons", default=1000, show_default=True, type=click.IntRange(min=1))
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Comparisons a second; default: no limit.")
@click.option("--wrong", default=0.05, show_default=True, type=click.FloatRange(0, 1), help="Share of wrong marks.")
@click.option("--seed", default=0, show_default=True)
@click.option("--people", default=8, show_default=True, type=click.IntRange(min=1), help="How many search at once.")
def simulate(node: str, labels: str, **options: Any) -> None:
    """Let simulated people search at a node and click; LABELS is a CSV file with columns id and label (or a column a
    task, where the model learns several; numbers, where it learns an order).
    """
    from workers import lifecycle
    from workers.demo import run_simulation

    lifecycle.configure_log()
    sys.exit(run_simulation(node, labels, **options))


OPERATORS = (models.models, letters.letters, topics.topics, route.route, backup.backup, backup.restore)

for operators in (*snapshots.COMMANDS, *OPERATORS):
    main.add_command(operators)

if __name__ == "__main__":
    main()
