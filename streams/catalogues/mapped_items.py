"""A catalogue by the mapped coordinates of its items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from omdml.coordinates import MAPPED, CoordinateMap
from omdml.errors import CatalogueError
from omdml.streams.catalogues.changes.change import (
    Change,
    Changed,
    ChangeError,
    Prepared,
    ShownRows,
    Value,
)
from omdml.streams.catalogues.scaling import not_finite
from omdml.streams.describers.describer import Describer
from omdml.streams.describers.thumbnails import ThumbnailFiles
from omdml.streams.protocols.catalogue import Catalogue

if TYPE_CHECKING:
    from omdml.streams.catalogues.items import Items


class MappedItems:
    """A catalogue as models on mapped coordinates see it: one modality, whatever the items are described by.

    Everything else is the catalogue's own, so items that are added to it are in here too.
    """

    def __init__(self, items: Items, coordinate_map: CoordinateMap) -> None:
        self._items, self._map = items, coordinate_map
        self.dims: Mapping[str, int] = items.manifest.mapped_dims
        self.raw_dims = items.dims
        self.generation = items.generation
        self.ids = items.ids

    @property
    def first(self) -> int:
        """How many items the generation began with."""
        return self._items.first

    @property
    def describer(self) -> Describer | None:
        """The describer of pictures and texts; None if the catalogue has none."""
        return self._items.describer

    @property
    def pictures(self) -> ThumbnailFiles:
        return self._items.pictures

    @property
    def sets(self) -> Mapping[str, NDArray[np.int64]]:
        """Row numbers of a set's elements by its id."""
        return self._items.sets

    @property
    def features(self) -> Mapping[str, NDArray[np.float32]]:
        """The coordinates (n, d) of all items."""
        return dict.fromkeys(self.dims, self._items.mapped)

    def in_coordinates(self, coordinates: str) -> Catalogue:
        """The catalogue itself for ``features``, this view for ``mapped``."""
        return self._items.in_coordinates(coordinates)

    def rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Row numbers of these ids, -1 for an unknown one."""
        return self._items.rows(ids)

    @property
    def shown(self) -> ShownRows:
        """Which rows are items now; the others were replaced or deleted."""
        return self._items.shown

    @property
    def refreshed_at(self) -> float:
        """When somebody last looked for changes."""
        return self._items.refreshed_at

    @property
    def attributes(self) -> Mapping[str, Mapping[str, Value]]:
        """The attributes of the items whose attributes were changed, by item."""
        return self._items.attributes

    def attributed_since(self, count: int) -> set[str] | None:
        """Items whose attributes may have changed since ``shown.attributed`` was ``count``."""
        return self._items.attributed_since(count)

    def refresh(self) -> int:
        """Take in what was added and changed since; returns how many rows."""
        return self._items.refresh()

    def prepare(self, changes: Iterable[Change]) -> Prepared:
        """Changes of one request, ready to be made; raises ChangeError."""
        return self._items.prepare(changes)

    def change(self, batches: Sequence[Prepared]) -> list[Changed | ChangeError]:
        """Make the changes of some requests, as the catalogue does."""
        return self._items.change(batches)

    def scale(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """Coordinates of raw vectors (n, d) of each modality; raises CatalogueError as the catalogue does."""
        return self._mapped(self._items.scale(vectors))

    def scale_some(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """Coordinates of raw vectors of some modalities, the others filled in; raises CatalogueError."""
        return self._mapped(self._items.scale_some(vectors))

    def _mapped(self, features: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
        return dict.fromkeys(self.dims, mapped_rows(self._map, features))


def mapped_rows(coordinate_map: CoordinateMap, vectors: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """Coordinates (n, d) of scaled vectors; CatalogueError if one is not finite."""
    coordinates = coordinate_map.apply(vectors)
    if place := not_finite(coordinates):
        raise CatalogueError(
            f"{'it' if len(coordinates) == 1 else f'row {place[0]}'} lies so far out that its coordinate {place[1]} is "
            f"{coordinates[place]}, which makes no finite float32"
        )
    return coordinates


def no_map(where: str) -> CatalogueError:
    """The error for a catalogue whose items have no mapped coordinates."""
    return CatalogueError(
        f"catalogue {where} has no map, which coordinates = {MAPPED!r} needs: build it again with "
        'omdml catalogue build --map --replace, or set coordinates = "features"'
    )
