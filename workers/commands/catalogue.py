"""``omdml catalogue``: builds catalogues of items, changes items, and verifies what is stored."""

from __future__ import annotations

import shlex
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omdml.workers.commands.options import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from omdml.streams.catalogues.changes.change import Change
    from omdml.streams.catalogues.manifest import Manifest
    from omdml.streams.catalogues.tables.attributes import CellKind
    from omdml.streams.describers.sources import LeftOutFile

# The most files without a usable picture that are listed on the terminal.
SHOWN = 20
# How many items are looked at to see which of their columns hold text.
ROWS_WITH_TEXT = 1000


@click.group()
def catalogue() -> None:
    """Build, change and verify catalogues of items."""


@catalogue.command("build")
@click.argument("target", type=click.Path())
@click.argument("inputs", nargs=-1)
@click.option(
    "--pictures",
    type=click.Path(exists=True, file_okay=False),
    help="Folder with a picture of each item: ID.jpg, png, webp or gif.",
)
@click.option(
    "--text", "texts", multiple=True, metavar="COLUMN", help="Column of text that becomes a modality. May be repeated."
)
@click.option("--onnx", type=click.Path(exists=True, dir_okay=False), help="Your own model of pictures, an ONNX file.")
@click.option(
    "--onnx-size",
    type=click.IntRange(1, 512),
    help="Side of the model's input in pixels, if the model leaves it open. [default: 224]",
)
@click.option(
    "--onnx-normalize",
    show_default="imagenet",
    type=click.Choice(["imagenet", "unit", "signed", "none"]),
    help="Values that the model expects (deploy/PICTURES.md).",
)
@click.option("--ids", type=click.Path(exists=True, dir_okay=False), help="Text file with an id on each line, for npy.")
@click.option("--id-column", default="id", show_default=True, help="Column of the ids, for CSV and Parquet.")
@click.option(
    "--scaling",
    show_default="minmax",
    type=click.Choice(["minmax", "unit", "none"]),
    help="Scaling of each modality. minmax: each number to 0..1. unit: each vector to length 1. none: as it is.",
)
@click.option(
    "--attributes",
    default="all",
    show_default=True,
    metavar="all|none|NAME,...",
    help="Columns of CSV and Parquet to keep as attributes of items, by which searches filter. With all, these are the "
    "columns that are neither ids nor vectors and that --text does not name.",
)
@click.option(
    "--sets",
    type=click.Path(exists=True, dir_okay=False),
    help="File that says which items each set has: CSV (set, item) or JSON lines.",
)
@click.option(
    "--map/--no-map",
    "mapped",
    default=None,
    help="Make mapped coordinates, or not. [default: yes, unless TARGET exists without them]",
)
@click.option("--replace", is_flag=True, help="Replace the catalogue, even by one of another generation.")
@click.option("--yes", is_flag=True, help="With --replace: drop changes of items since the last build without asking.")
@click.option("--add", is_flag=True, help="Add items to the existing catalogue, scaled as its first items.")
def build(
    target: str,
    inputs: tuple[str, ...],
    pictures: str | None,
    texts: tuple[str, ...],
    onnx: str | None,
    onnx_size: int | None,
    onnx_normalize: str | None,
    scaling: str | None,
    mapped: bool | None,
    replace: bool,
    yes: bool,
    add: bool,
    attributes: str,
    **options: Any,
) -> None:
    """Make the catalogue TARGET from INPUTS.

    INPUTS are files of npz, CSV or Parquet, or modality=file.npy. TARGET is a folder, or redis://HOST:PORT/0#NAME (also
    rediss://, valkey://).

    Columns of CSV and Parquet named color.0, color.1, ... or color_0, color_1, ... are the modality color. A Parquet
    column of lists is a modality too. An npz file has an array for each modality, and may have an array named
    ids. Other columns become attributes: numbers, true or false, texts, dates (ISO 8601), and lists of texts (JSON,
    such as ["red", "blue"]).

    Several inputs are joined by id. Each has all items, in any order, and modalities of its own. A CSV or Parquet file
    beside one with vectors may have attributes alone. The first input gives the order of the items.

    With --pictures and --text, pictures and texts become modalities: the colors, edges and textures of a picture, the
    words of a text. If INPUTS has tables, the first one says which items there are.

    A map makes mapped coordinates out of all modalities. Models with coordinates = "mapped" learn on them.
    """
    from omdml.streams.addresses import masked
    from omdml.streams.catalogues.building.destinations import add_at, build_at
    from omdml.streams.catalogues.redis.place import is_redis_url
    from omdml.streams.describers.onnx_model import Preparation
    from omdml.streams.describers.sources import Sources
    from omdml.workers.configuration import process
    from omdml.workers.configuration.wording import amount

    process.configure_log()
    _refuse_input_as_target(target, inputs)
    if not inputs and not pictures:
        raise click.UsageError("nothing to build from: name an input, or a folder with --pictures")
    if (onnx_size or onnx_normalize) and not onnx:
        raise click.UsageError("--onnx-size and --onnx-normalize need --onnx: name a model too")
    preparation = Preparation(onnx_size or 0, onnx_normalize or "imagenet")
    options["sources"] = Sources(Path(pictures) if pictures else None, texts, Path(onnx) if onnx else None, preparation)
    options["say_left_out"], options["say_kinds"] = _say_left_out, _say_kinds
    if add and (replace or scaling or mapped is not None):
        raise click.UsageError(
            "--add keeps the catalogue's generation, scaling and map: leave out --replace, --scaling and --[no-]map"
        )
    before = _manifest_at(target) if replace else None
    lost = _confirmed_loss(target, yes) if before else ""
    options["attributes"] = {"all": None, "none": ()}.get(attributes, attributes.split(","))
    if add:
        built = add_at(target, list(inputs), **options)
    else:
        built = build_at(target, list(inputs), scaling=scaling or "minmax", replace=replace, mapped=mapped, **options)
    modalities = ", ".join(f"{name} {size}" for name, size in built.dims.items())
    sets = f", {amount(len(built.sets), 'set')}" if built.sets else ""
    coordinates = f", {amount(built.map.dim, 'mapped coordinate')}" if built.map else ""
    summary = (
        f"{amount(built.shown.items, 'item')}{sets}, {modalities}{coordinates}, generation {built.generation[:12]}"
    )
    say(f"{masked(target)}: {summary}")
    if not add:
        _warn_of_one_number(built.dims, built.attributes.values())
    if not (add or replace) and (later := _later_changes(*built.later)):
        say(
            f"It was built from the same vectors before, and got {later} since: items that were put stay, and deleted "
            "ones stay deleted. To have only what the inputs have, add --replace."
        )
    if before and (before.generation != built.generation or not is_redis_url(target)):
        _say_what_to_do_next(target, before)
        if lost:
            say(f"What came after the previous build is not in the new one, unless the inputs have it: {lost}.")


def _refuse_input_as_target(target: str, inputs: Sequence[str]) -> None:
    """Raise UsageError if the first argument is an input: whoever forgets TARGET would get a folder of this name."""
    from omdml.streams.addresses import masked
    from omdml.streams.catalogues.tables.inputs import SUFFIXES

    path = Path(target)
    if path.is_dir() or "://" in target:
        return
    if path.suffix.lower() in SUFFIXES.split(", "):
        arguments = " ".join(shlex.quote(name) for name in (target, *inputs))
        raise click.UsageError(
            f"TARGET is {target}, which looks like an input: name a folder for the catalogue first, then the inputs, "
            f"as in omdml catalogue build items/ {arguments}"
        )
    if path.exists():
        raise click.UsageError(f"TARGET {masked(target)} is a file, expected a folder for the catalogue: name another")


def _manifest_at(target: str) -> Manifest | None:
    """What the catalogue there says of itself; None if there is none, or if it cannot be read."""
    from omdml.errors import CatalogueError
    from omdml.streams.catalogues.building.destinations import manifest_if_any

    try:
        return manifest_if_any(target)
    except CatalogueError:
        return None


def _confirmed_loss(target: str, yes: bool) -> str:
    """What came to the catalogue there after its build, and is lost if it is replaced; empty if nothing came.

    Asks before anything is done, unless ``yes`` is the answer.
    """
    from omdml.errors import CatalogueError
    from omdml.streams.addresses import masked
    from omdml.streams.catalogues.opening import open_catalogue
    from omdml.workers.commands.store.models import confirm

    try:
        lost = _later_changes(*open_catalogue(target).later)
    except CatalogueError as error:
        say(f"{masked(target)} cannot be opened, so its later changes could not be counted: {error}", err=True)
        return ""
    if lost:
        confirm(
            f"{masked(target)} got {lost} after its build: items were put, changed or deleted. The new catalogue has "
            "only what the inputs have. Replace it?",
            yes,
        )
    return lost


def _later_changes(added: int, changes: int) -> str:
    """How much came to a catalogue after its build; empty if nothing came."""
    from omdml.workers.configuration.wording import amount

    parts = [amount(added, "added item")] * (added > 0) + [amount(changes, "change")] * (changes > 0)
    return " and ".join(parts)


def _say_what_to_do_next(target: str, before: Manifest) -> None:
    """Say where the catalogue is that was replaced, and what becomes of the models that learned on it."""
    from omdml.streams.catalogues.folder import PREVIOUS
    from omdml.streams.catalogues.redis.place import is_redis_url
    from omdml.workers.configuration.wording import learn_again

    replacement = _manifest_at(target)
    old_place = "" if is_redis_url(target) else f" The old catalogue is in {target.rstrip('/')}{PREVIOUS}."
    if replacement and (replacement.dims, replacement.mapped_dims) == (before.dims, before.mapped_dims):
        say(f"It has the same dimensions as the old one: models go on. Restart the workers, then the nodes.{old_place}")
        return
    say(
        f"Its dimensions differ from those of the old one ({_dimensions(before)}).{old_place} What models learned on "
        f"that one does not fit this one. For each of them: {learn_again('NAME')}"
    )


def _dimensions(manifest: Manifest) -> str:
    modalities = ", ".join(f"{name} {size}" for name, size in manifest.dims.items())
    return f"{modalities}, {manifest.map.dim} mapped" if manifest.map else modalities


def _say_kinds(kinds: Mapping[str, CellKind]) -> None:
    if kinds:
        say(f"attributes: {', '.join(f'{name} ({kind})' for name, kind in kinds.items())}")
    for name, kind in kinds.items():
        if kind.doubt:
            say(f"attribute {name}: {kind.doubt}")


def _warn_of_one_number(dims: Mapping[str, int], attributes: Iterable[Mapping[str, Any]]) -> None:
    """Warn if items are compared by a single number although their table has texts.

    A column such as size_1 becomes a modality by its name, and perhaps nobody wanted that.
    """
    if sum(dims.values()) != 1:
        return
    rows = islice(attributes, ROWS_WITH_TEXT)
    texts = dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, str))
    if texts:
        (modality,) = dims
        options = " ".join(f"--text {shlex.quote(name)}" for name in texts)
        say(
            f"warning: each item has only one number as its vector, modality {modality!r} (a column of numbers becomes "
            f"a modality if its name ends with .0 or _1). Texts were left out of the vectors: {', '.join(texts)}. To "
            f"use them, build again with --replace {options}. If {modality!r} should not count, give its column "
            "another name.",
            err=True,
        )


def _say_left_out(left_out: list[LeftOutFile]) -> None:
    from omdml.streams.catalogues.folder import LEFT_OUT
    from omdml.workers.configuration.wording import amount

    for entry in left_out[:SHOWN]:
        say(f"left out: {entry.file}: {entry.reason}")
    if len(left_out) > SHOWN:
        say(f"left out: {len(left_out) - SHOWN:,} more; the catalogue's {LEFT_OUT} lists them all")
    if left_out:
        say(f"{amount(len(left_out), 'file')} left out")


@catalogue.command("put")
@click.argument("target", type=click.Path(file_okay=False))
@click.argument("lines", type=click.File("rb"), default="-")
def put(target: str, lines: Iterable[bytes]) -> None:
    """Put and change items of the catalogue TARGET. They are JSON lines in the file LINES, or on standard input.

    {"id": "17", "features": {"color": [0.9, 0.1]}, "attributes": {"price": 9.5}} puts an item, and replaces an item
    with the same id. Without features, only the attributes of the item change. With "delete": true it is deleted.
    Features are raw vectors, one for each modality. If the catalogue was built from pictures or texts, "text":
    {"COLUMN": "words"} and "picture": "BASE64" are described in the same way. TARGET is a folder, or
    redis://HOST:PORT/0#NAME.

    Running nodes and workers know the changes within about a second.
    """
    _change(target, _decoded(lines))


@catalogue.command("delete")
@click.argument("target", type=click.Path(file_okay=False))
@click.argument("ids", nargs=-1)
@click.option("--from", "lines", type=click.File("rb"), help="File with an id on each line; - for standard input.")
def delete(target: str, ids: tuple[str, ...], lines: Iterable[bytes] | None) -> None:
    """Delete the items IDS from the catalogue TARGET.

    TARGET is a folder, or redis://HOST:PORT/0#NAME. Ids that do not exist are listed, but are no error: deleting an
    item twice does no harm.
    """
    if not ids and lines is None:
        raise click.UsageError("name ids to delete, or a file of them with --from")
    _change(target, _deletions(ids, lines or ()))


@catalogue.command("verify")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def verify(folder: Path) -> None:
    """Check the vectors of the catalogue in FOLDER. Each is compared with the checksum that was written with it.

    Run this after a restore, or if you doubt a disk. Workers and nodes map the files without reading all of them.
    """
    from omdml.streams.catalogues.folder import MappedCatalogue
    from omdml.workers.configuration import process
    from omdml.workers.configuration.wording import amount

    process.configure_log()
    opened = MappedCatalogue(folder)
    opened.verify()
    say(f"{folder}: {amount(opened.shown.items, 'item')}, generation {opened.generation[:12]}: all vectors are intact")


def _decoded(lines: Iterable[bytes]) -> Iterator[Change]:
    from omdml.streams.catalogues.changes.change import decode_change

    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield decode_change(line, f"line {number}")


def _deletions(ids: Iterable[str], lines: Iterable[bytes]) -> Iterator[Change]:
    from omdml.streams.catalogues.changes.change import decode_change

    for item in ids:
        yield decode_change({"id": item, "delete": True}, "IDS")
    for number, line in enumerate(lines, start=1):
        if item := line.decode(errors="surrogateescape").rstrip("\r\n"):
            yield decode_change({"id": item, "delete": True}, f"line {number}")


def _change(target: str, changes: Iterable[Change]) -> None:
    from omdml.streams.addresses import masked
    from omdml.streams.catalogues.building.destinations import change_at
    from omdml.workers.configuration import process
    from omdml.workers.configuration.wording import amount

    process.configure_log()
    changed, total = change_at(target, changes)
    summary = f"{total.put:,} put, {total.attributes:,} with other attributes, {total.deleted:,} deleted"
    say(f"{masked(target)}: {summary}, {amount(changed.shown.items, 'item')}, position {changed.shown.position:,}")
    if total.unknown:
        more = f" and {len(total.unknown) - 10:,} more" if len(total.unknown) > 10 else ""
        say(f"no such items: {', '.join(total.unknown[:10])}{more}")
