"""``omdml catalogue``: the items' vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omdml.workers.commands.options import say

if TYPE_CHECKING:
    pass


@click.group()
def catalogue() -> None:
    """The items' vectors."""


@catalogue.command("build")
@click.argument("target", type=click.Path(file_okay=False))
@click.argument("inputs", nargs=-1, required=True)
@click.option("--ids", type=click.Path(exists=True, dir_okay=False), help="Text file, one id a line, for npy and npz.")
@click.option("--id-column", default="id", show_default=True, help="Column of the ids, for CSV and Parquet.")
@click.option("--scaling", show_default="minmax", type=click.Choice(["minmax", "unit", "none"]))
@click.option("--sets", type=click.Path(exists=True, dir_okay=False), help="Sets: CSV (set, item) or JSON lines.")
@click.option("--map/--no-map", "mapped", default=None, help="Map coordinates; default: if nothing unmapped is there.")
@click.option("--replace", is_flag=True, help="Take the place of a catalogue of another generation.")
@click.option("--add", is_flag=True, help="Add items to the catalogue there, scaled as its first ones were.")
def build(
    target: str,
    inputs: tuple[str, ...],
    scaling: str | None,
    mapped: bool | None,
    replace: bool,
    add: bool,
    **options: Any,
) -> None:
    """Make the catalogue TARGET from INPUTS: npz, csv, parquet, or modality=file.npy.

    TARGET is a folder, or redis://HOST:PORT/0#NAME (also rediss://, valkey://).

    Columns of CSV and Parquet named color.0, color.1, ... or color_0, color_1, ... are the modality color, and so is a
    Parquet column of lists; an npz has an array a modality, and ids in an array of that name. Several inputs are joined
    by id: each holds other modalities of the same items.

    A map makes coordinates out of all modalities that models with coordinates = "mapped" learn on.
    """
    from omdml.streams.addresses import masked
    from omdml.streams.catalogues.targets import add_at, build_at
    from omdml.workers.configuration import process
    from omdml.workers.configuration.wording import amount

    process.configure_log()
    if add and (replace or scaling or mapped is not None):
        raise click.UsageError(
            "--add keeps the catalogue's generation, scaling and map: leave out --replace, --scaling and --[no-]map"
        )
    if add:
        built = add_at(target, list(inputs), **options)
    else:
        built = build_at(target, list(inputs), scaling=scaling or "minmax", replace=replace, mapped=mapped, **options)
    modalities = ", ".join(f"{name} {size}" for name, size in built.dims.items())
    sets = f", {amount(len(built.sets), 'set')}" if built.sets else ""
    coordinates = f", {amount(built.map.dim, 'mapped coordinate')}" if built.map else ""
    told = f"{amount(len(built.ids), 'item')}{sets}, {modalities}{coordinates}, generation {built.generation[:12]}"
    say(f"{masked(target)}: {told}")
