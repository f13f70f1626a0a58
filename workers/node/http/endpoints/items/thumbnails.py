"""Thumbnails of a catalogue's items: atlases for pages with many items, and the picture of one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from omdml.streams.describers import pictures as files
from omdml.streams.describers.thumbnails import MEDIA, AtlasIndex, Cell, cut, own_name, read_index
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.node.pictures import Picture

# Catalogues whose index is kept, and atlases that are kept decoded, of 3 MB each.
INDICES, ATLASES = 64, 4


class ThumbnailReader:
    """Reads what the build of a catalogue and later changes made; any number of threads may ask."""

    def __init__(self) -> None:
        # The index by catalogue, for its rows so far: added items may bring atlases.
        self._indices: OrderedDict[tuple[str, int], AtlasIndex] = OrderedDict()
        self._decoded = lru_cache(ATLASES)(files.decoded)

    def places(self, catalogue: Catalogue, items: Sequence[str]) -> dict[str, Any]:
        """Where the thumbnails of these items lie, as an answer says it; empty if the catalogue has none.

        ``atlas``: pixels of a thumbnail, and cells of a line of an atlas. ``cells``: atlas and cell of each item, None
        if it has none.
        """
        index = self._index(catalogue)
        if not index.atlases:
            return {}
        cells = [index.cell(row) if row >= 0 else None for row in catalogue.rows(items).tolist()]
        return {"atlas": {"side": index.side, "cells": index.cells}, "cells": cells}

    def atlas(self, catalogue: Catalogue, first: int) -> Picture | None:
        """The atlas that begins with this row."""
        entry = next((atlas for atlas in self._index(catalogue).atlases if atlas.first == first), None)
        data = catalogue.pictures.read(entry.name) if entry else None
        return Picture(data, MEDIA) if data else None

    def find(self, catalogue: Catalogue, item: str) -> Picture | None:
        """The thumbnail of one item; None if it has none."""
        row = int(catalogue.rows([item])[0])
        if row < 0 or catalogue.describer is None:
            return None
        if (picture := catalogue.pictures.read(own_name(item))) is not None:
            return Picture(picture, MEDIA)
        cell = self._index(catalogue).cell(row)
        return self._cut(catalogue, cell) if cell else None

    def _cut(self, catalogue: Catalogue, cell: Cell) -> Picture | None:
        atlas = self.atlas(catalogue, cell.atlas)
        return Picture(files.encoded(cut(self._decoded(atlas.data), cell.cell)), MEDIA) if atlas else None

    def _index(self, catalogue: Catalogue) -> AtlasIndex:
        key = catalogue.generation, catalogue.shown.rows
        index = self._indices.get(key)
        if index is None:
            index = read_index(catalogue.pictures)
            self._indices[key] = index
            if len(self._indices) > INDICES:
                self._indices.popitem(last=False)
        return index
