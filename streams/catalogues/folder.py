"""The items' vectors in a folder, memory-mapped: every process of a machine shares the same pages.

===========================  ====================================================================
``catalogue.json``           generation, modalities with dimensions and fitted scaling, digests
``ids.txt``                  UTF-8, one id a line, in the order of the rows
``<modality>.npy``           float32 (n, d), C order, scaled
``mapped.npy``               if there is a map: float32 (n, d), mapped coordinates
``map.safetensors``          the map (omdml/coordinates.py)
``describer.safetensors``    what describes pictures and texts (streams/describers/describer.py)
``thumbnails/``              small pictures of the items (streams/describers/thumbnails.py)
``left-out.jsonl``           files that gave no picture at the build, and why
``sets.jsonl``               if there are sets: ``{"set": "photo-5", "items": ["face-1", "face-2"]}`` a line
``changes.log``              if items were changed: a line for those changed together
                             (changes/journal.py)
===========================  ====================================================================

Added parts and changes put their rows into the same matrices, one after the other. The field ``after`` of a part and
``row`` of a line tell their order.

:mod:`omdml.streams.catalogues.building.build` makes one and adds items to it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.coordinates import MAPPED, CoordinateMap
from omdml.errors import CatalogueError
from omdml.formats import CATALOGUE
from omdml.streams.bounded_files import DOCUMENT_BYTES, STATE_BYTES, opened, read_regular
from omdml.streams.catalogues.changes.change import ChangeEntry, Vectors
from omdml.streams.catalogues.changes.journal import CHANGES, JournalLine, append, locked, read
from omdml.streams.catalogues.items import Items
from omdml.streams.catalogues.manifest import (
    DESCRIBER,
    IDS,
    MAP,
    SETS,
    CataloguePart,
    FolderManifest,
    decode_manifest,
    encode_manifest,
)
from omdml.streams.catalogues.matrix import extend, map_rows, row_chunks
from omdml.streams.catalogues.sets import decode_sets
from omdml.streams.catalogues.verified import checked_map
from omdml.streams.disk import Stamp, put, stamp, sync

MANIFEST = "catalogue.json"
THUMBNAILS = "thumbnails"
# A file with a line of JSON for each file that gave no picture at the newest build.
LEFT_OUT = "left-out.jsonl"
# The suffix of the catalogue that the newest build replaced.
PREVIOUS = ".previous"
DIGEST_ROWS = 4096
# Seconds that changes wait for another writer, such as one that adds many items.
LOCK_S = 5.0


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
        # How many bytes of the journal were read.
        self.offset = 0
        self._parts: tuple[CataloguePart, ...] = ()
        self._digests: list[Digests] = []
        self._stamp: Stamp = ()
        # Whether the journal has changes that came after a part which the manifest did not name yet.
        self._waiting = False
        manifest = read_manifest(self.path)
        super().__init__(manifest, str(path), bytes_of(self.path / MAP) if manifest.map else None)
        self.first = manifest.parts[0].count
        self.refresh()

    def _describer_bytes(self) -> bytes | None:
        return bytes_of(self.path / DESCRIBER)

    @property
    def pictures(self) -> FolderPictures:
        return FolderPictures(self.path / THUMBNAILS)

    def verify(self) -> None:
        """Read every vector and compare the digests; CatalogueError names the file that is damaged."""
        for first, count, sha256 in self._digests:
            for name, matrix in self.stored.items():
                if digest_of(matrix[first : first + count]) != sha256[name]:
                    last = first + count - 1
                    raise CatalogueError(
                        f"{self.path / name}.npy: rows {first} to {last} have another sha256 than {MANIFEST} says, so "
                        f"they are damaged: restore the file, or build the catalogue again"
                    )

    def _take_in_all(self) -> None:
        """Take in new parts and changes in their order.

        Raises CatalogueError if the folder holds another generation now.
        """
        while not self._take_in(self._new_manifest()):
            # New changes come after a part that was added since the manifest was read. Read the manifest again.
            pass

    def _new_manifest(self) -> FolderManifest | None:
        """The manifest, if it is not the one that was read last."""
        seen = stamp(self.path / MANIFEST)
        if seen and seen == self._stamp:
            return None
        manifest = read_manifest(self.path)
        part_count = len(self._parts)
        if manifest.generation != self.generation or manifest.parts[:part_count] != self._parts:
            raise CatalogueError(
                f"catalogue {self.path} was opened as generation {self.generation} and now holds generation "
                f"{manifest.generation}: restart the workers, then the nodes, to open the new one"
            )
        self._stamp = seen
        self.manifest = manifest
        return manifest

    def _take_in(self, manifest: FolderManifest | None) -> bool:
        """Take in what is new; False if a later manifest must be read first."""
        added = manifest.parts[len(self._parts) :] if manifest else ()
        try:
            steps, offset = self._steps(added)
            rows = len(self._ids) + sum(
                entry.count if isinstance(entry, CataloguePart) else entry.rows for entry in steps
            )
            if rows > len(self._ids):
                self._map_rows(rows)
            ids = self._ids_of(added) if added else []
            sets = decode_sets(read_lines(self.path / SETS, self._parts, added), str(self.path / SETS))
        except CatalogueError:
            # The next call reads the manifest again, because somebody may have restored files in the meantime.
            self._stamp = ()
            raise
        for step in steps:
            self._take_step(step, ids)
        self._know_sets(sets)
        self._parts, self.offset = (*self._parts, *added), offset
        self._show()
        return not (self._waiting and stamp(self.path / MANIFEST) != self._stamp)

    def _ids_of(self, added: Sequence[CataloguePart]) -> list[str]:
        """Ids of the items of these parts."""
        lines = read_lines(self.path / IDS, self._parts, added)
        # A part may hold nothing but sets.
        ids = _decoded(self.path / IDS, lines) if lines else []
        if len(ids) != (expected := sum(part.count for part in added)):
            raise CatalogueError(
                f"{self.path / IDS} has {len(ids)} ids, expected {expected}: restore it, or build the catalogue again"
            )
        return ids

    def _steps(self, added: Sequence[CataloguePart]) -> tuple[list[CataloguePart | JournalLine], int]:
        """Parts and lines that are new, in the order of their rows, and where the journal is read from next."""
        lines, ends = read(self.path, self.offset)
        steps: list[CataloguePart | JournalLine] = []
        rows, offset, place = len(self._ids), self.offset, 0
        # First the lines that were written before each part, then the part. At the end come the lines after all parts.
        for part in [*added, None]:
            while place < len(lines) and (part is None or ends[place] <= part.after):
                if lines[place].row != rows:
                    # The rows before this line belong to a part that the manifest did not name yet.
                    break
                rows, offset = rows + lines[place].rows, ends[place]
                steps.append(lines[place])
                place += 1
            if part is None:
                break
            if offset != part.after:
                raise CatalogueError(
                    f"{self.path / CHANGES}: items were added after byte {part.after}, but the changes end at byte "
                    f"{offset}: restore the file, or build the catalogue again"
                )
            rows += part.count
            steps.append(part)
        self._waiting = place < len(lines)
        return steps, offset

    def _take_step(self, step: CataloguePart | JournalLine, ids: list[str]) -> None:
        first = len(self._ids)
        if isinstance(step, CataloguePart):
            self._know(ids[: step.count])
            del ids[: step.count]
        else:
            self._apply(step.entries)
        if count := len(self._ids) - first:
            self._digests.append(Digests(first, count, step.sha256))

    def _map_rows(self, rows: int) -> None:
        self.features = {name: map_rows(self.path / f"{name}.npy", rows, dim) for name, dim in self.dims.items()}
        if self.manifest.map:
            self.mapped = map_rows(self.path / f"{MAPPED}.npy", rows, self.manifest.map.dim)

    def _exclusively(self) -> AbstractContextManager[None]:
        return locked(self.path, for_s=LOCK_S)

    def _append(self, entries: Sequence[ChangeEntry], vectors: Vectors) -> None:
        """Write changes in three steps.

        1. The vectors, into the matrices. 2. The current format's number, into the manifest: older releases know no
        journal. 3. A line, into the journal.

        A crash before the last step leaves bytes that nothing names; the next writer overwrites them.
        """
        rows = len(self._ids)
        # Step 1.
        for name, matrix in vectors.items():
            path = self.path / f"{name}.npy"
            extend(path, rows, *matrix.shape)[:] = matrix
            sync(path)
        manifest = read_manifest(self.path)
        # Step 2.
        if manifest.format != CATALOGUE.number:
            manifest = msgspec.structs.replace(manifest, format=CATALOGUE.number)
            put(self.path / MANIFEST, encode_manifest(manifest) + b"\n")
        digests = {name: digest_of(matrix) for name, matrix in vectors.items()}
        # Step 3.
        append(self.path, self.offset, JournalLine(rows, list(entries), digests))


class Digests(NamedTuple):
    """Rows that were written together, and the sha256 of these rows in each matrix."""

    first: int
    rows: int
    sha256: Mapping[str, str]


def read_manifest(folder: Path) -> FolderManifest:
    """The manifest of the catalogue in this folder; raises CatalogueError if there is none."""
    path = folder / MANIFEST
    try:
        data = read_regular(path, DOCUMENT_BYTES)
    except OSError as error:
        advice = "give this user the right to read it" if isinstance(error, PermissionError) else _advice(folder)
        raise CatalogueError(f"{path}: there is no catalogue that can be read ({error.strerror}): {advice}") from error
    return decode_manifest(data, FolderManifest, str(path))


def read_map(folder: Path) -> CoordinateMap | None:
    """The map of the catalogue in this folder, None if it has none; raises CatalogueError."""
    manifest = read_manifest(folder)
    return checked_map(manifest, str(folder), bytes_of(folder / MAP) if manifest.map else None)


def bytes_of(path: Path) -> bytes | None:
    """The bytes of a catalogue's map or describer; None if it is not there. Raises CatalogueError."""
    try:
        return read_regular(path, STATE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CatalogueError(f"{path}: cannot be read ({error}): restore it, or build the catalogue again") from error


class FolderPictures:
    """The thumbnails of a catalogue, files in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        try:
            return read_regular(self._folder / name, DOCUMENT_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CatalogueError(
                f"{self._folder / name}: cannot be read ({error}): give this user the right to read it"
            ) from error

    def write(self, name: str, data: bytes) -> None:
        try:
            self._folder.mkdir(exist_ok=True)
            put(self._folder / name, data)
        except OSError as error:
            raise CatalogueError(
                f"{self._folder / name}: cannot be written ({error}): make room on the disk, or give this user "
                "the right to write there"
            ) from error

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """The names of all stored thumbnails."""
        return sorted(path.name for path in self._folder.iterdir()) if self._folder.is_dir() else []


def read_lines(path: Path, known: Sequence[CataloguePart], added: Sequence[CataloguePart]) -> bytes:
    """The bytes of ``added`` parts in ``ids.txt`` or ``sets.jsonl``, which lie behind those of ``known`` ones."""
    written = [part for part in added if part.size(path.name)]
    lines = []
    try:
        if not written:
            return b""
        with opened(path) as file:
            file.seek(sum(part.size(path.name) for part in known))
            for part in written:
                unread = os.fstat(file.fileno()).st_size - file.tell()
                # ``read`` takes the memory for what it is asked for before it reads.
                if not 0 <= part.size(path.name) <= unread:
                    raise CatalogueError(
                        f"{path}: {unread} bytes follow the part before, expected {part.size(path.name)}: restore it, "
                        "or build the catalogue again"
                    )
                lines.append(file.read(part.size(path.name)))
                if hashlib.sha256(lines[-1]).hexdigest() != part.sha256[path.name]:
                    raise CatalogueError(
                        f"{path} has another sha256 than {MANIFEST} says: restore it, or build the catalogue again"
                    )
    except OSError as error:
        raise CatalogueError(f"{path}: {error.strerror}: restore it, or build the catalogue again") from error
    return b"".join(lines)


def _decoded(path: Path, lines: bytes) -> list[str]:
    try:
        return lines.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CatalogueError(f"{path} is not UTF-8 ({error}): restore it, or build the catalogue again") from error


def digest_of(matrix: NDArray[np.float32]) -> str:
    """Sha256 of a matrix's bytes, read a few rows at a time."""
    total = hashlib.sha256()
    for chunk in row_chunks(matrix, DIGEST_ROWS):
        total.update(chunk.data)
    return total.hexdigest()


def _advice(folder: Path) -> str:
    # Not ``with_name``, which raises if the path has no name, such as the root.
    previous = folder.parent / f"{folder.name}{PREVIOUS}"
    # Unlike ``Path.exists``, this returns False for a name that is too long.
    if not os.path.exists(folder) and os.path.exists(previous / MANIFEST):
        return f"a build was killed while it replaced it; rename {previous} back, or build again"
    return "make one with `omdml catalogue build`"
