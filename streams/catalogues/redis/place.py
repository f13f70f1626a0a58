"""A catalogue's place in Redis: its address, its keys, the connection.

=================================================  ===============================================================
``omdml:catalogue:<name>``                         the current generation
``omdml:catalogue:<name>:<generation>``            JSON: generation, modalities with dimensions and fitted scaling
``omdml:catalogue:<name>:<generation>:map``        if there is one: the map of coordinates (omdml/coordinates.py)
``omdml:catalogue:<name>:<generation>:describer``  if there is one: what describes pictures and texts
``omdml:catalogue:<name>:<generation>:thumbnails`` hash: small pictures by the names of their files
``omdml:catalogue:<name>:<generation>:first``      how many items the generation began with
``omdml:catalogue:<name>:<generation>:ids``        list of ids, in the order of the rows
``omdml:item:<name>:<generation>:<id>``            hash, one field a modality: float32, little-endian, scaled; if
                                                   there is a map, ``mapped`` too
``omdml:catalogue:<name>:<generation>:sets``       list of JSON: ``{"set": "photo-5", "items": ["face-1"]}``
``omdml:catalogue:<name>:<generation>:changes``    list of changes that were made together (changes/packed.py)
=================================================  ===============================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from omdml.errors import CatalogueError
from omdml.streams.addresses import SCHEMES, masked

# Items of one pipeline.
BATCH_ITEMS = 500
# Seconds for a batch, which may have many megabytes.
TIMEOUT_S = 10.0
RETRIES = 2
CATALOGUE_NAME = re.compile(r"[^\s:{}]+")


def is_redis_url(place: str) -> bool:
    """Whether this names a server and not a folder; raises CatalogueError for one of another kind."""
    scheme, separator, _ = place.partition("://")
    if separator and scheme.lower() not in SCHEMES:
        raise elsewhere(place)
    return bool(separator)


def elsewhere(place: str) -> CatalogueError:
    """The error for an address where no catalogue can be."""
    return CatalogueError(f"{masked(place)}: a catalogue is made in a folder, or in Redis at redis://host:6379#shop")


def current_key(name: str) -> str:
    """The key that holds the name of the current generation."""
    return f"omdml:catalogue:{name}"


class Keys:
    """The keys of one generation of a catalogue."""

    def __init__(self, name: str, generation: str) -> None:
        self.manifest = f"omdml:catalogue:{name}:{generation}"
        self.map = f"{self.manifest}:map"
        self.describer = f"{self.manifest}:describer"
        self.thumbnails = f"{self.manifest}:thumbnails"
        self.first = f"{self.manifest}:first"
        self.ids = f"{self.manifest}:ids"
        self.sets = f"{self.manifest}:sets"
        self.changes = f"{self.manifest}:changes"
        self.item = f"omdml:item:{name}:{generation}:"


def connect(url: str, name: str | None) -> tuple[Any, str, str]:
    """A client, the name of the catalogue, and what messages call it: the URL without a password."""
    address, _, fragment = url.partition("#")
    scheme, _, rest = address.partition("://")
    chosen = fragment or name or ""
    if not CATALOGUE_NAME.fullmatch(chosen):
        raise CatalogueError(f"catalogue {masked(url)}: expected a name as in redis://host:6379/0#shop")
    retry = Retry(ExponentialBackoff(cap=0.5, base=0.05), RETRIES)
    where = f"{masked(address)}#{chosen}"
    try:
        client = redis.Redis.from_url(
            f"{SCHEMES[scheme.lower()]}://{rest}", socket_timeout=TIMEOUT_S, socket_connect_timeout=2.0, retry=retry
        )
        pool = client.connection_pool
        # Only this call raises for options that the class does not know.
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError):
        # The text of this error may quote a password.
        raise CatalogueError(
            f"{where}: not an address of Redis, expected one such as redis://user:password@host:6379/0#name"
        ) from None
    return client, chosen, where


@contextmanager
def reaching(where: str) -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise CatalogueError(
            f"{where}: {str(error).rstrip('.')}: see that the server is up, can be reached, and has memory left"
        ) from error
    except UnicodeDecodeError as error:
        raise CatalogueError(f"{where}: an id that is not UTF-8 ({error}): remove it from the list of ids") from error


def text(data: bytes | None) -> str:
    return (data or b"").decode()
