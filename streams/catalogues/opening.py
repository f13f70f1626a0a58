"""Opens a catalogue by its address: a folder, or a URL of Redis."""

from __future__ import annotations

from pathlib import Path

from omdml.streams.catalogues.folder import MappedCatalogue, read_manifest
from omdml.streams.catalogues.manifest import Manifest
from omdml.streams.catalogues.redis.catalogue import RedisCatalogue
from omdml.streams.catalogues.redis.current import read_redis_manifest
from omdml.streams.catalogues.redis.place import is_redis_url


def open_catalogue(place: str | Path, name: str | None = None) -> MappedCatalogue | RedisCatalogue:
    """The catalogue in a folder, or in Redis: ``redis://host:6379/0#shop`` (also ``rediss://``, ``valkey://``).

    ``name`` is that of a catalogue in Redis whose URL has no ``#name``. Raises CatalogueError.
    """
    if is_redis_url(str(place)):
        return RedisCatalogue(str(place), name)
    return MappedCatalogue(place)


def open_manifest(place: str | Path) -> Manifest:
    """Read the manifest of a catalogue in a folder or in Redis, and none of its items; raises CatalogueError."""
    return read_redis_manifest(str(place)) if is_redis_url(str(place)) else read_manifest(Path(place))
