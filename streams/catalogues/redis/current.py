"""What the current generation of a catalogue in Redis consists of, without its items."""

from __future__ import annotations

from omdml.coordinates import CoordinateMap
from omdml.errors import CatalogueError
from omdml.streams.catalogues.manifest import Manifest, decode_manifest
from omdml.streams.catalogues.redis.place import Keys, connect, current_key, reaching, text
from omdml.streams.catalogues.verified import checked_map


def current_generation(url: str) -> str | None:
    """Which generation opens at ``redis://host:6379/0#shop``; None if none is there. Raises CatalogueError."""
    client, name, where = connect(url, None)
    with reaching(where):
        return text(client.get(current_key(name))) or None


def read_redis_manifest(url: str) -> Manifest:
    """The manifest of the current generation of a catalogue; raises CatalogueError."""
    client, name, where = connect(url, None)
    with reaching(where):
        generation = text(client.get(current_key(name)))
        data = client.get(Keys(name, generation).manifest)
    if data is None:
        advice = "make one with `omdml catalogue build`, or correct the name"
        raise CatalogueError(f"{where}: no catalogue {name!r}: {advice}")
    return decode_manifest(data, Manifest, where)


def read_redis_map(url: str) -> CoordinateMap | None:
    """The map of the current generation of a catalogue, None if it has none; raises CatalogueError."""
    manifest, (client, name, where) = read_redis_manifest(url), connect(url, None)
    with reaching(where):
        return checked_map(manifest, where, client.get(Keys(name, manifest.generation).map))


def read_redis_describer(url: str) -> bytes | None:
    """The stored bytes of the current generation's describer; None if they are gone. Raises CatalogueError."""
    manifest, (client, name, where) = read_redis_manifest(url), connect(url, None)
    with reaching(where):
        data: bytes | None = client.get(Keys(name, manifest.generation).describer)
    return data
