"""``omdml export``: writes a model's items as vectors into files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omdml.errors import ConfigurationError
from omdml.workers.commands.options import say, stored
from omdml.workers.commands.store.snapshots import open_known
from omdml.workers.commands.vectors.items import attributes_now, items_now

if TYPE_CHECKING:
    from omdml.workers.configuration import config
    from omdml.workers.operate.export.manifest import Format


@click.command()
@click.argument("model")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--format",
    "kind",
    type=click.Choice(["npy", "parquet"]),
    default="npy",
    show_default=True,
    help="Format of the vectors.",
)
@click.option("--version", type=click.IntRange(min=0), help="A version that is still stored; default: the live one.")
@click.option("--task", help="Task in whose sense to export, if the model has tasks.")
@click.option("--follow", is_flag=True,
              help="Go on with what DIR holds, and follow new versions until Ctrl-C or SIGTERM.")  # fmt: skip
@click.option(
    "--moved",
    default=0.01,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="With --follow: write items that moved further than this share of the items' spread.",
)
@stored
def export(configuration: config.Configuration, model: str, folder: Path, kind: Format, **options: Any) -> None:
    """Write MODEL's items into DIR, as learned vectors. Euclidean distances between them are the learned ones.
    Attributes are written, too.

    DIR/manifest.json lists the parts in DIR. It is replaced as the last step, so readers never see half of a version.
    deploy/EXPORT.md says how to read them.
    """
    import threading

    from omdml.workers.configuration import process
    from omdml.workers.operate.export.exporter import Exporter, ExportOptions, in_words

    if options["follow"] and options["version"] is not None:
        raise ConfigurationError("--follow takes what is live: leave out --version")
    wanted = ExportOptions(model, options["task"], kind, options["moved"], options["version"], options["follow"])
    store, items = open_known(configuration, model), items_now(configuration, model)
    exporter = Exporter(folder, wanted, store, items, attributes_now(configuration, model, items))
    with exporter.held():
        if not options["follow"]:
            written = exporter.step()
            assert written is not None
            say(f"{folder}: {in_words(written)}")
            return
        stop = threading.Event()
        process.on_signals(stop.set)
        if exported := exporter.resume():
            say(f"{folder}: goes on from version {exported.version:,}, serial {exported.serial}")
        exporter.follow(stop, lambda text: say(f"{folder}: {text}"))
