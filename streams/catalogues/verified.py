"""The map and the describer of a catalogue, if they are the ones that its manifest names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from omdml.coordinates import CoordinateMap
from omdml.errors import CatalogueError, CorruptError
from omdml.streams.catalogues.manifest import Manifest
from omdml.streams.describers.describer import Describer


def checked_map(manifest: Manifest, where: str, data: bytes | None) -> CoordinateMap | None:
    """The map in these bytes; CatalogueError if they are not those that the manifest names."""
    if manifest.map is None:
        return None
    if data is None or hashlib.sha256(data).hexdigest() != manifest.map.sha256:
        what = "is missing" if data is None else "has another sha256 than the manifest says"
        raise CatalogueError(f"catalogue {where}: its map of coordinates {what}: restore it, or build it again")
    try:
        coordinate_map = CoordinateMap.from_bytes(data)
    except CorruptError as error:
        raise CatalogueError(f"catalogue {where}: {error}") from error
    if (coordinate_map.dims, coordinate_map.dim) != (manifest.dims, manifest.map.dim):
        raise CatalogueError(
            f"catalogue {where}: its map takes {coordinate_map.dims} to {coordinate_map.dim} coordinates, the "
            f"manifest says {manifest.dims} and {manifest.map.dim}: restore it, or build it again"
        )
    return coordinate_map


def checked_describer(manifest: Manifest, where: str, read: Callable[[], bytes | None]) -> Describer | None:
    """The describer that the manifest names, out of what ``read`` gives; raises CatalogueError if it is another."""
    if manifest.describer is None:
        return None
    data = read()
    if data is None or hashlib.sha256(data).hexdigest() != manifest.describer.sha256:
        what = "is missing" if data is None else "has another sha256 than the manifest says"
        raise CatalogueError(
            f"catalogue {where}: what describes its pictures and texts {what}: restore it, or build it again"
        )
    try:
        return Describer.from_bytes(data)
    except CorruptError as error:
        raise CatalogueError(f"catalogue {where}: {error}") from error
