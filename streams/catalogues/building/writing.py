"""The folder of a catalogue, written so that a process killed at any moment leaves a whole catalogue or none."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.coordinates import MAPPED, CoordinateMap
from omdml.errors import CatalogueError
from omdml.streams.bounded_files import opened
from omdml.streams.catalogues.building.scan import Advance, Scan, raw_vectors
from omdml.streams.catalogues.changes.journal import locked
from omdml.streams.catalogues.folder import MANIFEST, PREVIOUS, digest_of
from omdml.streams.catalogues.manifest import (
    DESCRIBER,
    IDS,
    MAP,
    SETS,
    CataloguePart,
    DescriberEntry,
    FolderManifest,
    MapEntry,
    Modality,
    encode_manifest,
)
from omdml.streams.catalogues.matrix import extend, map_rows
from omdml.streams.catalogues.scaling import not_finite, scaled
from omdml.streams.catalogues.sets import encode_sets
from omdml.streams.catalogues.tables.table import CHUNK_ROWS, Table, chunks_of
from omdml.streams.describers.describer import Describer
from omdml.streams.disk import put, sync

UNFINISHED = ".unfinished"


def append_part(
    folder: Path,
    known: Sequence[CataloguePart],
    modalities: Mapping[str, Modality],
    scan: Scan,
    tables: Sequence[Table],
    advance: Advance,
    rows: int = 0,
) -> CataloguePart:
    """Write the scanned items and sets to the disk, behind ``rows`` rows and the lines of the ``known`` parts.

    No manifest names them yet.
    """
    count = len(scan.row_of)
    matrices = {
        name: extend(folder / f"{name}.npy", rows, count, modality.dim) for name, modality in modalities.items()
    }
    for table in tables:
        _write_table(table, scan.row_of, modalities, matrices, advance)
    ids = "".join(f"{item}\n" for item in scan.row_of).encode()
    lines = {IDS: ids, SETS: encode_sets(scan.sets)} if scan.sets else {IDS: ids}
    for name, data in lines.items():
        _write_lines(folder / name, sum(part.size(name) for part in known), data)
    digests = {name: digest_of(matrix) for name, matrix in matrices.items()}
    digests |= {name: hashlib.sha256(data).hexdigest() for name, data in lines.items()}
    for name in modalities:
        sync(folder / f"{name}.npy")
    return CataloguePart(count, len(ids), digests, len(lines.get(SETS, b"")))


def write_map(folder: Path, coordinate_map: CoordinateMap) -> MapEntry:
    """Write the map of a catalogue to the disk; returns the manifest's entry for it."""
    data = coordinate_map.to_bytes()
    put(folder / MAP, data)
    return MapEntry(coordinate_map.dim, hashlib.sha256(data).hexdigest())


def write_describer(folder: Path, describer: Describer) -> DescriberEntry:
    """Write the describer of a catalogue to the disk; returns the manifest's entry for it."""
    data = describer.to_bytes()
    put(folder / DESCRIBER, data)
    return DescriberEntry(describer.modalities, hashlib.sha256(data).hexdigest())


def append_coordinates(
    folder: Path,
    part: CataloguePart,
    ids: Mapping[str, int],
    coordinate_map: CoordinateMap,
    advance: Advance,
    first: int = 0,
) -> CataloguePart:
    """Write the mapped coordinates of a part's items, whose vectors are written; returns the part with their digest.

    ``ids`` are the items, in the order of their rows from the ``first`` on.
    """
    features = {
        name: map_rows(folder / f"{name}.npy", first + part.count, dim)[first:]
        for name, dim in coordinate_map.dims.items()
    }
    matrix = extend(folder / f"{MAPPED}.npy", first, part.count, coordinate_map.dim)
    for start in range(0, part.count, CHUNK_ROWS):
        coordinates = coordinate_map.apply({name: x[start : start + CHUNK_ROWS] for name, x in features.items()})
        if place := not_finite(coordinates):
            raise CatalogueError(
                f"item {list(ids)[start + place[0]]!r} lies so far out that its mapped coordinate {place[1]} is "
                f"{coordinates[place]}, which float32 cannot hold: correct it, or build the catalogue without a map"
            )
        matrix[start : start + len(coordinates)] = coordinates
        advance(len(coordinates))
    sync(folder / f"{MAPPED}.npy")
    return msgspec.structs.replace(part, sha256={**part.sha256, MAPPED: digest_of(matrix)})


def write_manifest(folder: Path, manifest: FolderManifest) -> None:
    """Commit: whoever opens the folder from now on sees what this manifest names."""
    put(folder / MANIFEST, encode_manifest(manifest) + b"\n")


def put_in_place(folder: Path, target: Path) -> None:
    """Move a finished folder to its place; what was there is kept as ``<target>.previous``.

    1. Remove the ``<target>.previous`` of an earlier build. A crash up to here leaves the target as it was.
    2. Move the target aside. A crash after it leaves no target; opening it says how to move it back.
    3. Move the folder to its place. A crash after it: done.
    """
    if target.exists() and any(target.iterdir()):
        previous = target.with_name(target.name + PREVIOUS)
        # Step 1.
        shutil.rmtree(previous, ignore_errors=True)
        # Step 2.
        target.rename(previous)
    # Step 3.
    folder.rename(target)
    sync(target.parent)


@contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """An empty folder beside the target, for one builder at a time; gone if the block fails.

    The folder that a killed builder left is used again.
    """
    folder = target.with_name(f".{target.name}{UNFINISHED}")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        try:
            for leftover in folder.iterdir():
                if leftover.is_dir():
                    shutil.rmtree(leftover)
                else:
                    leftover.unlink()
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _write_table(
    table: Table,
    row_of: Mapping[str, int],
    modalities: Mapping[str, Modality],
    matrices: Mapping[str, NDArray[np.float32]],
    advance: Advance,
) -> None:
    written = 0
    for chunk in chunks_of(table):
        rows = [row_of.get(item, -1) for item in chunk.ids]
        if -1 in rows:
            raise CatalogueError(f"{table.name}: the file changed while it was read: try again")
        for name in chunk.vectors:
            vectors = raw_vectors(table, chunk, name)
            scaled_vectors = scaled(modalities[name].scaling, vectors)
            if place := not_finite(scaled_vectors):
                raise CatalogueError(
                    f"{table.name}: item {chunk.ids[place[0]]!r}, modality {name!r}, column {place[1]} is "
                    f"{vectors[place]}, which float32 cannot hold once it is scaled: correct it"
                )
            matrices[name][rows] = scaled_vectors
        written += len(rows)
        advance(len(rows))
    if written != len(row_of):
        raise CatalogueError(f"{table.name}: the file changed while it was read: try again")


def _write_lines(path: Path, start: int, data: bytes) -> None:
    with opened(path, "r+b" if start else "wb") as file:
        file.truncate(start)
        file.seek(start)
        file.write(data)
    sync(path)
