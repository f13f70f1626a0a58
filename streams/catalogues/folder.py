"""The items' vectors in a folder, memory-mapped: every process of a machine shares the same pages.

=====================  ==========================================================================
``catalogue.json``     generation, modalities with dimensions and fitted scaling, digests
``ids.txt``            UTF-8, one id a line, in the order of the rows
``<modality>.npy``     float32 (n, d), C order, scaled
``mapped.npy``         where there is a map: float32 (n, d), mapped coordinates
``map.safetensors``    the map (omdml/coordinates.py)
``sets.jsonl``         where there are sets: ``{"set": "photo-5", "items": ["face-1", "face-2"]}`` a line
=====================  ==========================================================================

:mod:`omdml.streams.catalogues.build` makes one and adds items to it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omdml.coordinates import MAPPED, CoordinateMap
from omdml.errors import CatalogueError
from omdml.streams.catalogues.items import Items, checked_map
from omdml.streams.catalogues.manifest import IDS, MAP, SETS, FolderManifest, Part, decode_manifest
from omdml.streams.catalogues.matrix import map_rows, row_chunks
from omdml.streams.catalogues.sets import decode_sets
from omdml.streams.regular import DOCUMENT_BYTES, STATE_BYTES, opened, read_regular

MANIFEST = "catalogue.json"
PREVIOUS = ".previous"  # suffix of the catalogue that the newest build took the place of
DIGEST_ROWS = 4096


class MappedCatalogue(Items):
    """A catalogue in a folder. A million items open in about a second; their vectors are read as they are needed.

    Parameters
    ----------
    path
        The folder.

    Raises
    ------
    CatalogueError
        No catalogue there, one of another format, files that are missing, too short or do not fit, damaged ids.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._parts: tuple[Part, ...] = ()
        manifest = read_manifest(self.path)
        super().__init__(manifest, str(path), _map_bytes(self.path) if manifest.map else None)
        self._take_in(manifest)

    def refresh(self) -> int:
        """Take in the items added since; answers how many. Rows that were there keep their numbers.

        Raises CatalogueError where the folder holds another generation by now: open it anew to adopt that.
        """
        return self._take_in(read_manifest(self.path))

    def verify(self) -> None:
        """Read every vector and compare the digests; CatalogueError names the file that is damaged."""
        first = 0
        for part in self._parts:
            for name, matrix in self.stored.items():
                if digest_of(matrix[first : first + part.count]) != part.sha256[name]:
                    last = first + part.count - 1
                    raise CatalogueError(
                        f"{self.path / name}.npy: rows {first} to {last} have another sha256 than {MANIFEST} says: "
                        f"damaged, restore it or build the catalogue again"
                    )
            first += part.count

    def _take_in(self, manifest: FolderManifest) -> int:
        known = len(self._parts)
        if manifest.generation != self.generation or manifest.parts[:known] != self._parts:
            raise CatalogueError(
                f"catalogue {self.path} was opened as generation {self.generation} and now holds "
                f"{manifest.generation}: open it anew to adopt that"
            )
        added = manifest.parts[known:]
        if not added:
            return 0
        ids = _decoded(self.path / IDS, read_lines(self.path / IDS, self._parts, added))
        sets = decode_sets(read_lines(self.path / SETS, self._parts, added), str(self.path / SETS))
        self.features = {
            name: map_rows(self.path / f"{name}.npy", manifest.count, dim) for name, dim in self.dims.items()
        }
        if manifest.map:
            self.mapped = map_rows(self.path / f"{MAPPED}.npy", manifest.count, manifest.map.dim)
        self._know(ids)
        self._know_sets(sets)
        self._parts, self.first = manifest.parts, manifest.parts[0].count
        return len(ids)


def read_manifest(folder: Path) -> FolderManifest:
    """What the catalogue in this folder says of itself; CatalogueError where there is none."""
    path = folder / MANIFEST
    try:
        data = read_regular(path, DOCUMENT_BYTES)
    except OSError as error:
        raise CatalogueError(f"{path}: no catalogue to read ({error.strerror}): {_advice(folder)}") from error
    return decode_manifest(data, FolderManifest, str(path))


def read_map(folder: Path) -> CoordinateMap | None:
    """The map of the catalogue in this folder, None where it has none; raises CatalogueError."""
    manifest = read_manifest(folder)
    return checked_map(manifest, str(folder), _map_bytes(folder) if manifest.map else None)


def _map_bytes(folder: Path) -> bytes | None:
    try:
        return read_regular(folder / MAP, STATE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CatalogueError(f"{folder / MAP}: cannot be read ({error}): restore or build again") from error


def read_lines(path: Path, known: Sequence[Part], added: Sequence[Part]) -> bytes:
    """The bytes of ``added`` parts in ``ids.txt`` or ``sets.jsonl``, which lie behind those of ``known`` ones."""
    written = [part for part in added if part.size(path.name)]
    lines = []
    try:
        if not written:
            return b""
        with opened(path) as file:
            file.seek(sum(part.size(path.name) for part in known))
            for part in written:
                left = os.fstat(file.fileno()).st_size - file.tell()
                if not 0 <= part.size(path.name) <= left:  # what is asked for is taken from memory before it is read
                    raise CatalogueError(
                        f"{path}: {left} bytes left, expected {part.size(path.name)}: restore or build again"
                    )
                lines.append(file.read(part.size(path.name)))
                if hashlib.sha256(lines[-1]).hexdigest() != part.sha256[path.name]:
                    raise CatalogueError(f"{path}: another sha256 than {MANIFEST} says: restore or build again")
    except OSError as error:
        raise CatalogueError(f"{path}: {error.strerror}: restore or build the catalogue again") from error
    return b"".join(lines)


def _decoded(path: Path, lines: bytes) -> list[str]:
    try:
        return lines.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CatalogueError(f"{path}: not UTF-8 ({error}): restore or build the catalogue again") from error


def digest_of(matrix: NDArray[np.float32]) -> str:
    """Sha256 of a matrix's bytes, read a few rows at a time."""
    total = hashlib.sha256()
    for chunk in row_chunks(matrix, DIGEST_ROWS):
        total.update(chunk.data)
    return total.hexdigest()


def _advice(folder: Path) -> str:
    previous = folder.with_name(folder.name + PREVIOUS)
    if not folder.exists() and (previous / MANIFEST).exists():
        return f"a build was killed while it replaced it; rename {previous} back, or build again"
    return "make one with `omdml catalogue build`"
