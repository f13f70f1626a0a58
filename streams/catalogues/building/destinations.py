"""Making a catalogue where the user says, in a folder or in Redis, and adding items to it there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from omdml.errors import CatalogueError
from omdml.streams.addresses import masked
from omdml.streams.catalogues.building.build import NOTHING, KeptMap, add_items, build_catalogue
from omdml.streams.catalogues.building.scan import Scan
from omdml.streams.catalogues.building.writing import (
    append_coordinates,
    append_part,
    write_describer,
    write_manifest,
    write_map,
)
from omdml.streams.catalogues.changes.change import Change, Changed, ChangeError
from omdml.streams.catalogues.folder import (
    MANIFEST,
    THUMBNAILS,
    FolderPictures,
    MappedCatalogue,
    bytes_of,
    read_manifest,
    read_map,
)
from omdml.streams.catalogues.items import Items
from omdml.streams.catalogues.manifest import DESCRIBER, FolderManifest, Manifest
from omdml.streams.catalogues.opening import open_catalogue
from omdml.streams.catalogues.redis.catalogue import RedisCatalogue
from omdml.streams.catalogues.redis.current import (
    current_generation,
    read_redis_describer,
    read_redis_manifest,
    read_redis_map,
)
from omdml.streams.catalogues.redis.place import is_redis_url
from omdml.streams.catalogues.redis.upload import upload_catalogue
from omdml.streams.catalogues.sets import ItemSet, Sets, open_sets
from omdml.streams.catalogues.tables.attributes import CellKind, InputAttributes, attributes_in
from omdml.streams.catalogues.tables.inputs import Inputs, open_tables, tables_with_attributes
from omdml.streams.catalogues.verified import checked_describer
from omdml.streams.describers.describer import Describer
from omdml.streams.describers.inputs import describe_inputs, describer_for_more, read_left_out, write_left_out
from omdml.streams.describers.sources import LeftOutFile, Sources
from omdml.streams.describers.thumbnails import SingleWriter
from omdml.streams.disk import scratch_folder

log = structlog.get_logger(__name__)

# Changes in one write to the disk or to Redis.
CHANGES_TOGETHER = 1000
Ids = str | Path | Sequence[str]


def build_at(
    target: str,
    inputs: Inputs,
    *,
    scaling: str | Mapping[str, str] = "minmax",
    ids: Ids | None = None,
    id_column: str = "id",
    sets: str | Path | Sets | None = None,
    replace: bool = False,
    mapped: bool | None = None,
    sources: Sources = NOTHING,
    say_left_out: Callable[[list[LeftOutFile]], None] = lambda _: None,
    attributes: Sequence[str] | None = None,
    say_kinds: Callable[[Mapping[str, CellKind]], None] = lambda _: None,
) -> Items:
    """Make a catalogue in a folder, or in Redis at ``redis://host:6379/0#shop``, by way of a temporary folder.

    If Redis holds another generation, that one stays for whoever has it open. Further parameters, and errors, are
    those of :func:`omdml.streams.catalogues.building.build.build_catalogue`. Attributes are written after the items: if
    that is interrupted, build again.

    Parameters
    ----------
    mapped
        Whether to make mapped coordinates; None: see :func:`_map_for`.
    say_left_out
        Called with the files that gave no picture.
    attributes
        Columns that become attributes of the items; None: all that are neither vectors nor described.
    say_kinds
        Called with the kinds of the attributes that come from CSV.
    """
    attribute_inputs = _attributes_in(inputs, id_column, attributes, sources)
    options: dict[str, Any] = {"scaling": scaling, "ids": ids, "id_column": id_column, "sets": sets, "sources": sources}
    built = _build_at(target, inputs, replace, mapped, say_left_out, options)
    return _with_attributes(target, built, attribute_inputs, say_kinds)


def _build_at(
    target: str,
    inputs: Inputs,
    replace: bool,
    mapped: bool | None,
    say_left_out: Callable[[list[LeftOutFile]], None],
    options: dict[str, Any],
) -> Items:
    sources = options["sources"]
    options["describer"] = _describer_for(target, replace) if sources and mapped is None else None
    options["mapped"] = _map_for(target, replace) if mapped is None else mapped
    if sources and isinstance(options["mapped"], KeptMap) and not _describes(options["describer"], sources):
        # What the map says of an item holds only if the item is described in the same way.
        options["mapped"] = True
    if not is_redis_url(target):
        built = build_catalogue(target, inputs, replace=replace, **options)
        say_left_out(read_left_out(built.path))
        return built
    present_generation = current_generation(target)
    with scratch_folder() as folder:
        built = build_catalogue(folder / "catalogue", inputs, **options)
        say_left_out(read_left_out(built.path))
        if present_generation not in (None, built.generation) and not replace:
            raise CatalogueError(
                f"{masked(target)} holds generation {present_generation}, these inputs make "
                f"{built.generation}. Replace it (--replace), and restart the workers, then the nodes. Or choose "
                "another name"
            )
        upload_catalogue(built, target)
    return RedisCatalogue(target)


def add_at(
    target: str,
    inputs: Inputs,
    *,
    ids: Ids | None = None,
    id_column: str = "id",
    sets: str | Path | Sets | None = None,
    sources: Sources = NOTHING,
    say_left_out: Callable[[list[LeftOutFile]], None] = lambda _: None,
    attributes: Sequence[str] | None = None,
    say_kinds: Callable[[Mapping[str, CellKind]], None] = lambda _: None,
) -> Items:
    """Add items to the catalogue in a folder or in Redis, within its generation.

    Parameters and errors are those of :func:`omdml.streams.catalogues.building.build.add_items`; ``attributes`` and
    ``say_kinds`` as for :func:`build_at`.
    """
    attribute_inputs = _attributes_in(inputs, id_column, attributes, sources)
    added = _add_at(target, inputs, ids, id_column, sets, sources, say_left_out)
    return _with_attributes(target, added, attribute_inputs, say_kinds)


def _add_at(
    target: str,
    inputs: Inputs,
    ids: Ids | None,
    id_column: str,
    sets: str | Path | Sets | None,
    sources: Sources,
    say_left_out: Callable[[list[LeftOutFile]], None],
) -> Items:
    if not is_redis_url(target):
        added_to = add_items(target, inputs, ids=ids, id_column=id_column, sets=sets, sources=sources)
        say_left_out(read_left_out(added_to.path))
        return added_to
    before, item_sets = RedisCatalogue(target), open_sets(sets)
    with scratch_folder() as folder:
        added = _catalogue_of_additions(before, folder, inputs, item_sets, ids, id_column, sources)
        say_left_out(read_left_out(added.path))
        upload_catalogue(added, target, sets=item_sets)
    return RedisCatalogue(target)


def _attributes_in(inputs: Inputs, id_column: str, wanted: Sequence[str] | None, sources: Sources) -> InputAttributes:
    """The attributes that the inputs bring. A column that is described is one only if ``wanted`` names it.

    Arrays bring none. All are checked here, although they are written after the items: a catalogue is built with its
    attributes or not at all. Raises CatalogueError.
    """
    if isinstance(inputs, Mapping):
        return InputAttributes([])
    attributes = attributes_in(tables_with_attributes(inputs, id_column), wanted, sources.texts)
    attributes.check()
    return attributes


def _with_attributes(
    target: str,
    built: Items,
    attribute_inputs: InputAttributes,
    say_kinds: Callable[[Mapping[str, CellKind]], None],
) -> Items:
    """Give the items these attributes; returns the catalogue. Items deleted since the build are passed over."""
    if not attribute_inputs.names:
        return built
    changes = (change for change in attribute_inputs.changes() if change.id in built)
    changed = change_at(target, changes, built=True)[0]
    say_kinds(attribute_inputs.kinds)
    return changed


def change_at(target: str, changes: Iterable[Change], *, built: bool = False) -> tuple[Items, Changed]:
    """Change items of the catalogue in a folder or in Redis, CHANGES_TOGETHER at a time; returns what became of all.

    ``built`` says that the changes come from the inputs of a build. Raises CatalogueError, which says how many changes
    were made before; making them again does no harm.
    """
    catalogue, total = open_catalogue(target), Changed(0, 0, 0, 0, [])
    remaining, changes_made = iter(changes), 0
    try:
        while batch := list(itertools.islice(remaining, CHANGES_TOGETHER)):
            prepared = catalogue.prepare(batch)
            (result,) = catalogue.change([prepared.as_built() if built else prepared])
            if isinstance(result, ChangeError):
                raise result
            changes_made += len(batch)
            counts = (total.put + result.put, total.attributes + result.attributes, total.deleted + result.deleted)
            total = Changed(result.position, *counts, [*total.unknown, *result.unknown])
    except CatalogueError as error:
        raise CatalogueError(
            f"{error} (before it, {changes_made} changes were made; making them again is harmless)"
        ) from error
    return catalogue, total


def _catalogue_of_additions(
    before: Items,
    folder: Path,
    inputs: Inputs,
    sets: list[ItemSet],
    ids: Ids | None,
    id_column: str,
    sources: Sources,
) -> MappedCatalogue:
    """The items to add as a catalogue in a folder: scaled as those ``before`` are, and of their generation."""
    tables = open_tables(inputs, ids=ids, id_column=id_column, columns=None, described=bool(sources))
    if before.describer:
        write_describer(folder, before.describer)
    if sources:
        describer = describer_for_more(before, sources)
        scratch = folder / "described"
        scratch.mkdir()
        thumbnails = SingleWriter(FolderPictures(folder / THUMBNAILS))
        described = describe_inputs(sources, inputs, tables, id_column, describer, scratch, thumbnails)
        tables = [described.items, *tables]
        write_left_out(folder, described.left_out)
    scan = Scan("none", before, before.sets)
    scan.read_like(before.dims, tables, _without_progress)
    scan.take(sets)
    # The items of these sets may not be in this folder.
    scan.sets = []
    modalities = before.manifest.modalities
    part, entry = append_part(folder, (), modalities, scan, tables, _without_progress), None
    if before.map:
        entry = write_map(folder, before.map)
        part = append_coordinates(folder, part, scan.row_of, before.map, _without_progress)
    describer_entry = before.manifest.describer
    manifest = FolderManifest(
        generation=before.generation, modalities=modalities, map=entry, describer=describer_entry, parts=(part,)
    )
    write_manifest(folder, manifest)
    return MappedCatalogue(folder)


def _map_for(target: str, replace: bool) -> bool | KeptMap:
    """The default of ``mapped``: True for a new map, the map of the catalogue that is there, or False for none.

    A map is kept, so that building a catalogue again changes nothing, and models on mapped coordinates go on if it is
    replaced. If the kept map does not fit the items (:meth:`KeptMap.fits`), the build makes a new one. If the catalogue
    has no map, one is made only if the catalogue is replaced.
    """
    try:
        present_manifest = manifest_if_any(target)
        if present_manifest is None or present_manifest.map is None:
            return present_manifest is None or replace
        present_map = read_redis_map(target) if is_redis_url(target) else read_map(Path(target))
        return KeptMap(present_map, present_manifest.modalities) if present_map else True
    except CatalogueError as error:
        if not replace:
            raise
        log.warning(
            "map_not_kept", reason=str(error), hint="a new map is made: reset the models that learned with the old one"
        )
        return True


def _describer_for(target: str, replace: bool) -> Describer | None:
    """The describer of the catalogue that is there, if it has one. With it, described modalities keep their meaning."""
    try:
        return open_describer(target)
    except CatalogueError as error:
        if not replace:
            raise
        log.warning(
            "describer_not_kept",
            reason=str(error),
            hint="a new one is made: reset the models that learned with the old one",
        )
        return None


def open_describer(target: str) -> Describer | None:
    """The describer of the catalogue at ``target``; None if it has none, or is not there. Raises CatalogueError."""
    present_manifest = manifest_if_any(target)
    if present_manifest is None or present_manifest.describer is None:
        return None
    of_folder = partial(bytes_of, Path(target) / DESCRIBER)
    read = partial(read_redis_describer, target) if is_redis_url(target) else of_folder
    return checked_describer(present_manifest, masked(target), read)


def _describes(describer: Describer | None, sources: Sources) -> bool:
    return describer is not None and describer.serves(sources)


def manifest_if_any(target: str) -> Manifest | None:
    """The manifest of the catalogue at ``target``; None if there is none. Raises CatalogueError."""
    if is_redis_url(target):
        return read_redis_manifest(target) if current_generation(target) else None
    return read_manifest(Path(target)) if (Path(target) / MANIFEST).exists() else None


def _without_progress(rows: int) -> None:
    """Show no progress, because the upload has a bar of its own."""
