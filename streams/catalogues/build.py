"""Building a catalogue, and adding items to one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from omdml.errors import CatalogueError
from streams.catalogues.folder import MANIFEST, MappedCatalogue, read_manifest
from streams.catalogues.manifest import FolderManifest, Part, generation_of
from streams.catalogues.progress import progress
from streams.catalogues.redis import elsewhere
from streams.catalogues.scan import Advance, Scan
from streams.catalogues.sets import ItemSet, Sets, open_sets
from streams.catalogues.tables.inputs import Inputs, open_tables
from streams.catalogues.tables.table import Columns, Table
from streams.catalogues.writing import append_part, locked, put_in_place, unfinished, write_manifest

log = structlog.get_logger(__name__)


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
        For CSV and Parquet: the column of the ids; modality to columns, where their names do not tell.
    sets
        Item ids by set id, or a file: CSV with columns ``set`` and ``item``, one element a line, or JSON lines
        ``{"set": "photo-5", "items": ["face-1", "face-2"]}``.
    replace
        Take the place of a catalogue of another generation, or of a damaged one; it is kept as ``<target>.previous``.

    Raises
    ------
    CatalogueError
        What is wrong with the inputs, in which item, modality and column; a set without elements, of unknown items, or
        named like an item; the target holds another generation, or what is no catalogue; the disk is full.
    """
    _refuse_url(target)
    target = Path(target).resolve()
    _refuse_foreign(target)
    listed = open_sets(sets)
    tables = open_tables(inputs, ids=ids, id_column=id_column, columns=columns)
    with _writing(target), progress(f"building {target.name}", _count(tables)) as advance, unfinished(target) as folder:
        part, generation = _write(folder, Scan(scaling), tables, listed, _items_done(advance, tables))
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
    before, listed = MappedCatalogue(target), open_sets(sets)
    tables = open_tables(inputs, ids=ids, id_column=id_column, columns=columns)
    with _writing(target), progress(f"adding to {target.name}", _count(tables)) as advance, locked(target):
        before.refresh()
        scan = Scan("none", before, before.sets)
        step = _items_done(advance, tables)
        scan.read_like(before.dims, tables, step)
        scan.take(listed)
        manifest = read_manifest(target)
        part = append_part(target, manifest.parts, manifest.modalities, scan, tables, step)
        parts = (*manifest.parts, part)
        write_manifest(
            target, FolderManifest(generation=manifest.generation, modalities=manifest.modalities, parts=parts)
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
    there = read_manifest(target).generation
    if there != generation:
        raise CatalogueError(
            f"{target} holds generation {there}, these inputs make {generation}: replace it (--replace), which running "
            f"processes adopt when they open it anew, or name another folder"
        )
    return False


def _count(tables: Sequence[Table]) -> int | None:
    return max((table.count for table in tables if table.count is not None), default=None)


def _write(folder: Path, scan: Scan, tables: Sequence[Table], sets: list[ItemSet], step: Advance) -> tuple[Part, str]:
    """Check the items, fit the scaling and write; answers the catalogue's only part and its generation."""
    scan.read(tables, step)
    scan.take(sets)
    modalities = dict(sorted(scan.modalities.items()))
    part = append_part(folder, (), modalities, scan, tables, step)
    generation = generation_of(modalities, part)
    write_manifest(folder, FolderManifest(generation=generation, modalities=modalities, parts=(part,)))
    return part, generation


def _items_done(advance: Callable[[float], None], tables: Sequence[Table]) -> Advance:
    """An item is done when each of its inputs was read twice."""
    return lambda rows: advance(rows / (2 * len(tables)))


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CatalogueError(f"{target}: cannot be written ({error})") from error
