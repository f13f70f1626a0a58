"""Small pictures of items, many in one file: a page shows 10,000 items with 40 requests.

An atlas is a square of 16 x 16 cells in one WebP file, and ``index.json`` lists the atlases. A cell belongs to a row of
the catalogue. An item that is put again later is in no row: its picture, if it brought one, is a file of its own.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.streams.describers.pictures import encoded

# Side in pixels of the small pictures that lists of items show.
THUMBNAIL_SIDE = 64
# Cells along each side of an atlas.
CELLS = 16
CELLS_OF_ATLAS = CELLS * CELLS
INDEX = "index.json"
MEDIA = "image/webp"

Pixels = NDArray[np.uint8]


class ThumbnailFiles(Protocol):
    """The place where a catalogue stores thumbnails, by file name."""

    def read(self, name: str) -> bytes | None:
        """The bytes of this name; None if there are none. Raises CatalogueError if they are out of reach."""

    def write(self, name: str, data: bytes) -> None:
        """Store these bytes durably; raises CatalogueError if that fails."""

    def remove(self, name: str) -> None:
        """Delete the thumbnail of this name, if there is one."""

    def names(self) -> list[str]:
        """The names of all files that are stored."""


class AtlasEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One atlas. Its first cell is row ``first``, and its cells are ``rows`` consecutive rows.

    ``without`` lists the rows without a picture. ``sha256`` is the hash of the file.
    """

    first: int
    rows: int
    sha256: str
    without: list[int] = []

    @property
    def name(self) -> str:
        """The name of the atlas's file."""
        return f"{self.first}.webp"


class AtlasIndex(msgspec.Struct, frozen=True):
    """What ``index.json`` holds; the atlases by rising ``first``."""

    side: int = THUMBNAIL_SIDE
    cells: int = CELLS
    atlases: list[AtlasEntry] = []

    def cell(self, row: int) -> Cell | None:
        """The atlas and the place in it that hold the picture of a row; None if the item has no picture."""
        place = bisect_right(self.atlases, row, key=lambda atlas: atlas.first) - 1
        if place < 0:
            return None
        atlas = self.atlases[place]
        if row >= atlas.first + atlas.rows or row in atlas.without:
            return None
        return Cell(atlas.first, row - atlas.first)

    def encode(self) -> bytes:
        """The index as JSON, in UTF-8."""
        return msgspec.json.encode(self)


class Cell(NamedTuple):
    """An atlas, by its first row, and the number of a cell in it, counted line by line."""

    atlas: int
    cell: int


class Thumbnails(Protocol):
    """Takes the pictures of items, in the order of their rows."""

    def add(self, item: str, thumbnail: Pixels | None) -> None:
        """Add the picture of the next row's item; None if it has none."""

    def close(self) -> None:
        """Write the last atlas, which may be incomplete."""


class SingleWriter:
    """Writes each picture as a file of its own, for items whose rows are not known yet."""

    def __init__(self, pictures: ThumbnailFiles) -> None:
        self._pictures = pictures

    def add(self, item: str, thumbnail: Pixels | None) -> None:
        """Write this picture at once, under a name made from its item."""
        if thumbnail is not None:
            self._pictures.write(own_name(item), encoded(thumbnail))

    def close(self) -> None:
        """Leave all as it is: each picture was written when it came, and there is no index."""


class AtlasWriter:
    """Writes the pictures of consecutive rows into atlases. Only one atlas is in memory at a time.

    Parameters
    ----------
    pictures
        Where to write.
    first
        The row of the first picture.
    """

    def __init__(self, pictures: ThumbnailFiles, first: int = 0) -> None:
        self._pictures, self._first = pictures, first
        self._waiting: list[Pixels | None] = []
        self._entries = list(read_index(pictures).atlases) if first else []

    def add(self, item: str, thumbnail: Pixels | None) -> None:
        """Keep this picture, or the gap of a row without one, until an atlas is full."""
        self._waiting.append(thumbnail)
        if len(self._waiting) == CELLS_OF_ATLAS:
            self._write()

    def close(self) -> None:
        """Write what is left, and the index."""
        self._write()
        self._pictures.write(INDEX, AtlasIndex(atlases=self._entries).encode())

    def _write(self) -> None:
        part, self._waiting = self._waiting, []
        first = self._first
        self._first += len(part)
        if any(thumbnail is not None for thumbnail in part):
            data = encoded(_square(part))
            without = [first + cell for cell, thumbnail in enumerate(part) if thumbnail is None]
            self._entries.append(AtlasEntry(first, len(part), hashlib.sha256(data).hexdigest(), without))
            self._pictures.write(self._entries[-1].name, data)


def own_name(item: str) -> str:
    """The name of the file for the picture of an item that came after the build."""
    return f"own-{hashlib.sha256(item.encode()).hexdigest()[:40]}.webp"


def read_index(pictures: ThumbnailFiles) -> AtlasIndex:
    """Read the index; it is empty if none was written."""
    data = pictures.read(INDEX)
    return msgspec.json.decode(data, type=AtlasIndex) if data else AtlasIndex()


def cut(atlas: Pixels, cell: int) -> Pixels:
    """The picture (side, side, 3) in one cell of an atlas; a view, not a copy."""
    y, x = (THUMBNAIL_SIDE * place for place in divmod(cell, CELLS))
    return atlas[y : y + THUMBNAIL_SIDE, x : x + THUMBNAIL_SIDE]


def _square(part: Sequence[Pixels | None]) -> Pixels:
    atlas = np.full((CELLS * THUMBNAIL_SIDE, CELLS * THUMBNAIL_SIDE, 3), 255, np.uint8)
    for cell, thumbnail in enumerate(part):
        if thumbnail is not None:
            cut(atlas, cell)[:] = thumbnail
    return atlas
