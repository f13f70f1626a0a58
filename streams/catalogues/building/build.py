"""Building a catalogue, and adding items to one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from omdml.coordinates import MAPPED, CoordinateMap
from omdml.errors import CatalogueError
from omdml.formats import CATALOGUE
from omdml.streams.catalogues.building.scan import Advance, Scan
from omdml.streams.catalogues.building.writing import (
    append_coordinates,
    append_part,
    put_in_place,
    unfinished,
    write_describer,
    write_manifest,
    write_map,
)
from omdml.streams.catalogues.changes.journal import locked
from omdml.streams.catalogues.folder import MANIFEST, THUMBNAILS, FolderPictures, MappedCatalogue, read_manifest
from omdml.streams.catalogues.manifest import CataloguePart, FolderManifest, MapEntry, Modality, generation_of
from omdml.streams.catalogues.matrix import DTYPE, map_rows
from omdml.streams.catalogues.progress import progress
from omdml.streams.catalogues.redis.place import elsewhere
from omdml.streams.catalogues.sets import ItemSet, Sets, open_sets
from omdml.streams.catalogues.tables.inputs import Inputs, open_tables
from omdml.streams.catalogues.tables.table import Columns, Table
from omdml.streams.describers.describer import Describer
from omdml.streams.describers.inputs import (
    describe_inputs,
    describer_for_more,
    write_left_out,
)
from omdml.streams.describers.sources import Sources
from omdml.streams.describers.thumbnails import AtlasWriter
from omdml.streams.disk import scratch_folder

NOTHING = Sources()

log = structlog.get_logger(__name__)


class KeptMap(NamedTuple):
    """The map of an older generation, and how the items were scaled that it was made from.

    A map gives an item the same coordinates only if the item is scaled in the same way. So whoever keeps a map keeps
    the scaling too.
    """

    map: CoordinateMap
    modalities: Mapping[str, Modality]

    def fits(self, modalities: Mapping[str, Modality]) -> bool:
        """Whether items of these modalities can be scaled as its items were, and mapped by it."""
        ours, theirs = (
            {name: (modality.dim, type(modality.scaling)) for name, modality in table.items()}
            for table in (self.modalities, modalities)
        )
        return ours == theirs


def build_catalogue(
    target: str | Path,
    inputs: Inputs,
    *,
    scaling: str | Mapping[str, str] = "minmax",
    ids: str | Path | Sequence[str] | None = None,
    id_column: str = "id",
    columns: Columns | None = None,
    sets: str | Path | Sets | None = None,
    replace: bool = False,
    mapped: bool | KeptMap = False,
    sources: Sources = NOTHING,
    describer: Describer | None = None,
) -> MappedCatalogue:
    """Make a catalogue in the folder ``target``.

    The inputs are read twice, 4,096 rows at a time: once to check the items and to fit the scaling, once to write. The
    same items in the same order give the same generation, whatever kind of file they come from.

    Parameters
    ----------
    target
        The folder. The work goes on beside it, and takes its place when everything is on the disk.
    inputs
        Files, ``.npz``, ``.csv``, ``.parquet``, ``modality=file.npy`` (or ``modality.npy``), which are joined by id;
        the first gives the order. Or arrays (n, d) by modality.
    scaling
        ``"minmax"``, ``"unit"`` or ``"none"``, for all modalities or by modality (those not named: ``"minmax"``).
    ids
        For arrays, ``.npy`` and ``.npz`` without an array ``ids``: a text file with one id a line, or a list. Without
        it, row numbers are the ids.
    id_column, columns
        For CSV and Parquet: the column of the ids; modality to columns, if their names do not tell.
    sets
        Item ids by set id, or a file: CSV with columns ``set`` and ``item``, one element a line, or JSON lines
        ``{"set": "photo-5", "items": ["face-1", "face-2"]}``.
    replace
        Replace a catalogue of another generation, or a damaged one; the old one is kept as ``<target>.previous``.
    mapped
        Make a map of coordinates (:mod:`omdml.coordinates`) from the items, or keep the one of an older generation if
        it fits, and keep every item's coordinates. The last digits of a map depend on the processor, so another
        machine may make another generation of the same items: build on one, and copy.
    sources
        Pictures and columns of text that become modalities too. The first table, if there is one, says which items
        there are; otherwise each picture is an item. Files that give no picture are listed in ``left-out.jsonl``.
    describer
        That of an older generation, to describe in the same way. What was learned on described modalities means the
        same only if they are described alike.

    Raises
    ------
    CatalogueError
        What is wrong with the inputs, in which item, modality and column; a set without elements, of unknown items, or
        named like an item; the target holds another generation, or something that is no catalogue; the disk is full.
    """
    _refuse_url(target)
    target = Path(target).resolve()
    _refuse_foreign(target)
    item_sets = open_sets(sets)
    tables = open_tables(inputs, ids=ids, id_column=id_column, columns=columns, described=bool(sources))
    with _writing(target), unfinished(target) as folder, ExitStack() as stack:
        if sources:
            thumbnails = AtlasWriter(FolderPictures(folder / THUMBNAILS))
            scratch = stack.enter_context(_scratch(folder))
            described = describe_inputs(sources, inputs, tables, id_column, describer, scratch, thumbnails)
            tables, describer = [described.items, *tables], described.describer
            write_left_out(folder, described.left_out)
        advance = stack.enter_context(progress(f"building {target.name}", _count(tables)))
        step = _items_done(advance, tables, bool(mapped))
        part, generation = _write(
            folder, Scan(scaling), tables, item_sets, step, mapped, describer if sources else None
        )
        stack.close()
        if replace or _is_new(target, generation):
            put_in_place(folder, target)
            log.info("catalogue_built", path=str(target), generation=generation, items=part.count)
        else:
            shutil.rmtree(folder)
            log.info("catalogue_unchanged", path=str(target), generation=generation)
    return MappedCatalogue(target)


def add_items(
    target: str | Path,
    inputs: Inputs,
    *,
    ids: str | Path | Sequence[str] | None = None,
    id_column: str = "id",
    columns: Columns | None = None,
    sets: str | Path | Sets | None = None,
    sources: Sources = NOTHING,
) -> MappedCatalogue:
    """Add items to the catalogue in ``target``, within its generation: they are scaled as its first ones were.

    Running processes see them after a ``refresh()``. The parameters are those of :func:`build_catalogue`; ``sets`` may
    hold older items too. A crash before the last step leaves bytes that no manifest names; the next call writes over
    them.

    Raises
    ------
    CatalogueError
        As :func:`build_catalogue`; an item that is there already; other modalities or dimensions.
    """
    target = Path(target).resolve()
    before, item_sets = MappedCatalogue(target), open_sets(sets)
    tables = open_tables(inputs, ids=ids, id_column=id_column, columns=columns, described=bool(sources))
    with _writing(target), locked(target), ExitStack() as stack:
        before.refresh()
        if sources:
            thumbnails = AtlasWriter(before.pictures, len(before.ids))
            scratch = stack.enter_context(scratch_folder())
            described = describe_inputs(
                sources, inputs, tables, id_column, describer_for_more(before, sources), scratch, thumbnails
            )
            tables = [described.items, *tables]
            write_left_out(target, described.left_out)
        advance = stack.enter_context(progress(f"adding to {target.name}", _count(tables)))
        scan = Scan("none", before, before.sets)
        step = _items_done(advance, tables, before.map is not None)
        scan.read_like(before.dims, tables, step)
        scan.take(item_sets)
        manifest = read_manifest(target)
        first = len(before.ids)
        part = append_part(target, manifest.parts, manifest.modalities, scan, tables, step, first)
        if before.map:
            part = append_coordinates(target, part, scan.row_of, before.map, step, first)
        part = msgspec.structs.replace(part, after=before.offset)
        write_manifest(
            target, msgspec.structs.replace(manifest, format=CATALOGUE.number, parts=(*manifest.parts, part))
        )
    log.info("items_added", path=str(target), generation=manifest.generation, items=part.count)
    return MappedCatalogue(target)


def _refuse_url(target: str | Path) -> None:
    if "://" in str(target):
        raise elsewhere(str(target))


def _refuse_foreign(target: Path) -> None:
    """Never move aside what is no catalogue."""
    if target.exists() and not (target / MANIFEST).exists() and not (target.is_dir() and not any(target.iterdir())):
        raise CatalogueError(f"{target} holds something that is no catalogue: name another folder, or an empty one")


def _is_new(target: Path, generation: str) -> bool:
    if not (target / MANIFEST).exists():
        return True
    present_generation = read_manifest(target).generation
    if present_generation != generation:
        raise CatalogueError(
            f"{target} holds generation {present_generation}, these inputs make {generation}. Replace it "
            "(--replace), and restart the workers, then the nodes. Or name another folder"
        )
    return False


def _count(tables: Sequence[Table]) -> int | None:
    return max((table.count for table in tables if table.count is not None), default=None)


def _write(
    folder: Path,
    scan: Scan,
    tables: Sequence[Table],
    sets: list[ItemSet],
    step: Advance,
    mapped: bool | KeptMap,
    describer: Describer | None,
) -> tuple[CataloguePart, str]:
    """Check the items, fit scaling and map, and write; returns the catalogue's only part and its generation."""
    scan.read(tables, step)
    scan.take(sets)
    fixed_map = mapped if isinstance(mapped, KeptMap) and mapped.fits(scan.modalities) else None
    modalities = dict(sorted((fixed_map or scan).modalities.items()))
    part, entry = append_part(folder, (), modalities, scan, tables, step), None
    if mapped:
        part, entry = _map_items(folder, part, scan, step, fixed_map)
    describer_entry = write_describer(folder, describer) if describer else None
    generation = generation_of(modalities, part, entry, describer_entry)
    manifest = FolderManifest(
        generation=generation, modalities=modalities, map=entry, describer=describer_entry, parts=(part,)
    )
    write_manifest(folder, manifest)
    return part, generation


def _map_items(
    folder: Path, part: CataloguePart, scan: Scan, step: Advance, fixed_map: KeptMap | None
) -> tuple[CataloguePart, MapEntry]:
    """Make a map of the items, unless an older one is kept; write it, and the coordinates of the only part's items.

    The vectors of these items are written already.
    """
    if MAPPED in scan.modalities:
        raise CatalogueError(
            f"modality {MAPPED!r} has the name of mapped coordinates: rename it, or build without a map (--no-map)"
        )
    began = time.perf_counter()
    if fixed_map:
        coordinate_map = fixed_map.map
    else:
        dims = {name: modality.dim for name, modality in scan.modalities.items()}
        coordinate_map = CoordinateMap.fit(
            {name: map_rows(folder / f"{name}.npy", part.count, d) for name, d in dims.items()}
        )
    entry = write_map(folder, coordinate_map)
    part = append_coordinates(folder, part, scan.row_of, coordinate_map, step)
    log.info(
        "coordinates_mapped",
        coordinates=coordinate_map.dim,
        new_map=fixed_map is None,
        map_mb=round(coordinate_map.nbytes / 1e6, 2),
        bytes_an_item=coordinate_map.dim * DTYPE.itemsize,
        seconds=round(time.perf_counter() - began, 2),
    )
    return part, entry


def _items_done(advance: Callable[[float], None], tables: Sequence[Table], mapped: bool) -> Advance:
    """Count an item as done when each of its inputs was read twice, and it was mapped if it has to be."""
    return lambda rows: advance(rows / (2 * len(tables) + mapped))


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder for what is needed only until the catalogue is written."""
    scratch = folder / ".described"
    scratch.mkdir()
    yield scratch
    shutil.rmtree(scratch)


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CatalogueError(
            f"{target}: cannot be written ({error}): make room on the disk, or give this user the right to write there"
        ) from error
