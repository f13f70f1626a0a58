"""What every catalogue does with the items in this process: number them, scale raw vectors as theirs were."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.coordinates import MAPPED, CoordinateMap
from omdml.errors import CatalogueError, CorruptError
from omdml.retrieval.filling import Filling
from omdml.streams.catalogues.manifest import Manifest, Modality
from omdml.streams.catalogues.scaling import not_finite, scaled
from omdml.streams.catalogues.sets import ItemSet
from omdml.streams.protocols import Catalogue


class Items:
    """Base of the catalogues: ids in the order of their rows, the matrices, and sets of items.

    About 150 bytes an item beside its vectors: a million take 0.15 GB. Items are only ever added, by one thread: their
    vectors are there before their ids are known, so whoever asks for rows first and for ``features`` then finds them.

    ``map_bytes`` are those of the map that the manifest names, None where it names none.
    """

    def __init__(self, manifest: Manifest, where: str, map_bytes: bytes | None) -> None:
        self.manifest = manifest
        self.where = where
        self.map = checked_map(manifest, where, map_bytes)
        self.generation = manifest.generation
        self.dims: Mapping[str, int] = manifest.dims
        self.raw_dims = self.dims
        self.first = 0
        self.features: Mapping[str, NDArray[np.float32]] = {}
        self.mapped = np.empty((0, 0), np.float32)  # coordinates (n, d), where there is a map
        self._ids: list[str] = []
        self._row_of: dict[str, int] = {}
        self.ids: Sequence[str] = self._ids
        self.sets: Mapping[str, NDArray[np.int64]] = {}

    def __contains__(self, one: object) -> bool:
        """Whether an item of this id is known."""
        return one in self._row_of

    def refresh(self) -> int:
        """Take in the items added since; answers how many. Rows that were there keep their numbers."""
        raise NotImplementedError

    @property
    def stored(self) -> Mapping[str, NDArray[np.float32]]:
        """All matrices, by the names of what they are kept in."""
        return {**self.features, MAPPED: self.mapped} if self.map else self.features

    def in_coordinates(self, coordinates: str) -> Catalogue:
        """The same items by their ``features``, or by what the map makes of them, ``mapped``.

        Raises CatalogueError where there is no map.
        """
        if coordinates != MAPPED:
            return self
        if self.map is None:
            raise no_map(self.where)
        return MappedItems(self, self.map)

    def rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Row numbers of these ids, -1 for an unknown one."""
        return np.fromiter(map(self._row_of.get, ids, repeat(-1)), np.int64, len(ids))

    def scale_some(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """The same for raw vectors of some modalities, one at least: the others get their conditional means.

        These are learned on the items that the generation began with, so that added items change none. Raises
        CatalogueError as ``scale`` does, but for a missing modality.
        """
        if not vectors or not vectors.keys() <= self.dims.keys():
            return self.scale(vectors)
        made = {name: _scaled(name, self.manifest.modalities[name], x) for name, x in vectors.items()}
        if len(made) < len(self.dims):
            made = self._filling(made)
        if lost := [name for name, x in made.items() if not_finite(x)]:
            raise CatalogueError(f"modality {lost[0]!r} is missing, and what is there lies too far out to guess it")
        return made

    @cached_property
    def _filling(self) -> Filling:
        return Filling({name: self.features[name][: self.first] for name in self.dims})

    def scale(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """Raw vectors (n, d) a modality, scaled as the catalogue's own were.

        Raises
        ------
        CatalogueError
            A missing or unknown modality, a wrong dimension, a value that is not finite or that float32 cannot hold.
        """
        if vectors.keys() != self.dims.keys():
            raise CatalogueError(
                f"vectors of {', '.join(sorted(vectors)) or 'no modality'}, catalogue {self.where} has "
                f"{', '.join(sorted(self.dims))}: bring one of each"
            )
        return {name: _scaled(name, self.manifest.modalities[name], vectors[name]) for name in self.dims}

    def _know(self, ids: Iterable[str]) -> None:
        """Number these ids on from the last one; their vectors are in ``features``."""
        first = len(self._ids)
        self._ids.extend(ids)
        self._row_of.update(zip(self._ids[first:], range(first, len(self._ids)), strict=True))
        if len(self._row_of) != len(self._ids):
            raise CatalogueError(f"catalogue {self.where} names an id twice: build it again")

    def _know_sets(self, sets: Sequence[ItemSet]) -> None:
        """Look up the elements of these sets, whose items are known. Whoever reads goes on with the mapping it has."""
        if not sets:
            return
        rows = self.rows([item for one in sets for item in one.items])
        if rows.min(initial=0) < 0:
            raise CatalogueError(f"catalogue {self.where}: a set names an item that is not there: build it again")
        rows.flags.writeable = False
        ends = np.cumsum([len(one.items) for one in sets])
        added = {one.set: rows[end - len(one.items) : end] for one, end in zip(sets, ends, strict=True)}
        self.sets = {**self.sets, **added}


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
    def sets(self) -> Mapping[str, NDArray[np.int64]]:
        """Row numbers of a set's elements by its id."""
        return self._items.sets

    @property
    def features(self) -> Mapping[str, NDArray[np.float32]]:
        """The coordinates (n, d) of all items."""
        return dict.fromkeys(self.dims, self._items.mapped)

    def in_coordinates(self, coordinates: str) -> Catalogue:
        """The catalogue itself, or this."""
        return self._items.in_coordinates(coordinates)

    def rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Row numbers of these ids, -1 for an unknown one."""
        return self._items.rows(ids)

    def refresh(self) -> int:
        """Take in the items added since; answers how many."""
        return self._items.refresh()

    def scale(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """Coordinates of raw vectors (n, d) a modality; raises CatalogueError as the catalogue does."""
        return self._mapped(self._items.scale(vectors))

    def scale_some(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """The same for vectors of some modalities; raises CatalogueError as the catalogue does."""
        return self._mapped(self._items.scale_some(vectors))

    def _mapped(self, features: Mapping[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
        made = self._map.apply(features)
        if at := not_finite(made):
            raise CatalogueError(
                f"row {at[0]} lies so far out that its coordinate {at[1]} is {made[at]}, which makes no finite float32"
            )
        return dict.fromkeys(self.dims, made)


def no_map(where: str) -> CatalogueError:
    """The error for a catalogue whose items have no mapped coordinates."""
    return CatalogueError(
        f"catalogue {where} has no map, which coordinates = {MAPPED!r} needs: build it again with "
        'omdml catalogue build --map --replace, or set coordinates = "features"'
    )


def checked_map(manifest: Manifest, where: str, data: bytes | None) -> CoordinateMap | None:
    """The map in these bytes; CatalogueError where they are not those that the manifest names."""
    if manifest.map is None:
        return None
    if data is None or hashlib.sha256(data).hexdigest() != manifest.map.sha256:
        what = "is missing" if data is None else "has another sha256 than the manifest says"
        raise CatalogueError(f"catalogue {where}: its map of coordinates {what}: restore it, or build it again")
    try:
        found = CoordinateMap.from_bytes(data)
    except CorruptError as error:
        raise CatalogueError(f"catalogue {where}: {error}") from error
    if (found.dims, found.dim) != (manifest.dims, manifest.map.dim):
        raise CatalogueError(
            f"catalogue {where}: its map takes {found.dims} to {found.dim} coordinates, the manifest says "
            f"{manifest.dims} and {manifest.map.dim}: restore it, or build it again"
        )
    return found


def _scaled(name: str, modality: Modality, raw: NDArray[Any]) -> NDArray[np.float32]:
    try:
        vectors = np.asarray(raw, np.float64)
    except (TypeError, ValueError) as error:
        raise CatalogueError(f"modality {name!r}: not numbers (n, {modality.dim}): {error}") from error
    if vectors.ndim != 2 or vectors.shape[1] != modality.dim:
        raise CatalogueError(f"modality {name!r}: shape {vectors.shape}, expected (n, {modality.dim})")
    made = scaled(modality.scaling, vectors)
    if at := not_finite(vectors) or not_finite(made):
        raise CatalogueError(
            f"modality {name!r}: row {at[0]}, column {at[1]} is {vectors[at]}, which makes no finite float32"
        )
    return made
