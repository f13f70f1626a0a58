"""The items' vectors in Redis, for machines that share no folder; a process that opens it keeps them in memory.

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

Any client may add an item: first its hash, then its id to the list; and a set, when its items are there. What is listed
again counts once, so that adding may be retried. Mapped coordinates may be left out: whoever reads makes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import redis
import structlog
from numpy.typing import NDArray
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from omdml.coordinates import MAPPED, CoordinateMap
from omdml.errors import CatalogueError
from omdml.streams.addresses import masked
from omdml.streams.catalogues.changes.change import Entry, Vectors
from omdml.streams.catalogues.changes.packed import APPEND, pack, unpack
from omdml.streams.catalogues.items import Items, checked_map
from omdml.streams.catalogues.manifest import Manifest, decode_manifest, encode_manifest
from omdml.streams.catalogues.matrix import DTYPE
from omdml.streams.catalogues.progress import progress
from omdml.streams.catalogues.scaling import not_finite
from omdml.streams.catalogues.sets import ItemSet, check_sets, decode_sets, encode_sets

# Our schemes, and what redis-py calls them.
SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
# Items of one pipeline.
BATCH_ITEMS = 500
# Seconds for a batch, which may have many megabytes.
TIMEOUT_S = 10.0
RETRIES = 2
# How many records of the list of changes are read together. Each may have megabytes.
BATCH_RECORDS = 100
CATALOGUE_NAME = re.compile(r"[^\s:{}]+")

log = structlog.get_logger(__name__)


class Keys:
    """Where a generation of a catalogue lies."""

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


class RedisCatalogue(Items):
    """A catalogue in Redis, read whole: every reader numbers the items alike.

    Parameters
    ----------
    url
        ``redis://host:6379/0#shop``; ``rediss://`` with TLS, ``valkey://`` and ``valkeys://`` alike.
    name
        Of the catalogue, if the URL has no ``#name``.
    generation
        By default the current one.

    Raises
    ------
    CatalogueError
        No server, no such catalogue or generation, an item without a modality or with damaged vectors.
    """

    def __init__(self, url: str, name: str | None = None, generation: str | None = None) -> None:
        self._client, self.name, where = _connect(url, name)
        with _reaching(where):
            found = generation or _text(self._client.get(current_key(self.name)))
            self._keys = Keys(self.name, found)
            data, map_bytes = self._client.get(self._keys.manifest), self._client.get(self._keys.map)
        if data is None:
            raise CatalogueError(
                f"{where}: no catalogue {self.name!r} of generation {found or 'any'}: upload one, or correct the name"
            )
        super().__init__(decode_manifest(data, Manifest, where), where, map_bytes)
        # numbers of an item in each field
        self._stored = {**self.dims, MAPPED: self.map.dim} if self.map else self.dims
        # How many entries of each list were read.
        self._listed = self._listed_sets = self._read = 0
        self._room: dict[str, NDArray[np.float32]] = {}
        self.refresh()
        with _reaching(where):
            first = self._client.get(self._keys.first) or b"%d" % len(self.ids)
        if not re.fullmatch(b"[0-9]{1,19}", first):
            raise CatalogueError(
                f"{where}: key {self._keys.first} holds {first[:40]!r}, expected how many items came first"
            )
        self.first = int(first)

    def _describer_bytes(self) -> bytes | None:
        with _reaching(self.where):
            data: bytes | None = self._client.get(self._keys.describer)
        return data

    @property
    def pictures(self) -> RedisPictures:
        """Where the items' thumbnails are."""
        return RedisPictures(self._client, self._keys.thumbnails, self.where)

    def _take_in_all(self) -> None:
        """Ids and changes lie in two lists; each change says behind how many ids it came."""
        more = True
        while more:
            with _reaching(self.where):
                # In this order: a set's items are listed by now, and a change that is not read lies behind all ids that
                # are counted here.
                pipeline = self._client.pipeline(transaction=False)
                pipeline.lrange(self._keys.sets, self._listed_sets, -1)
                pipeline.llen(self._keys.ids)
                pipeline.lrange(self._keys.changes, self._read, self._read + BATCH_RECORDS - 1)
                pipeline.llen(self._keys.changes)
                sets, listed, changes, changed = pipeline.execute()
            if changed < self._read:
                raise CatalogueError(
                    f"{self.where}: key {self._keys.changes} has {changed} entries, {self._read} were read before: "
                    "restore it, or open the catalogue anew"
                )
            for data in changes:
                self._take_in_changes(data)
            more = self._read < changed
            if not more:
                self._take_in_ids(listed)
                self._take_in_sets(decode_sets(b"\n".join(sets), self._keys.sets))
                self._listed_sets += len(sets)
            self._show()

    def _take_in_ids(self, end: int) -> None:
        """Take in the listed ids before this one."""
        while self._listed < end:
            with _reaching(self.where):
                last = min(self._listed + BATCH_ITEMS, end) - 1
                listed = self._client.lrange(self._keys.ids, self._listed, last)
                if not listed:
                    # Somebody cut the list.
                    return
                if new := [one for one in dict.fromkeys(map(_text, listed)) if one not in self]:
                    self._take_in(new)
            self._listed += len(listed)

    def _take_in_changes(self, data: bytes) -> None:
        try:
            before, entries, vectors = unpack(data, self._stored)
        except ValueError as error:
            raise CatalogueError(
                f"{self.where}: entry {self._read} of key {self._keys.changes} is damaged ({error}): restore it, or "
                "build the catalogue again"
            ) from error
        self._take_in_ids(before)
        if vectors:
            self._put_rows(vectors, sum(entry.put for entry in entries))
        self._apply(entries)
        self._read += 1

    def _append(self, entries: Sequence[Entry], vectors: Vectors) -> None:
        """1. The manifest says that there are changes. 2. The changes, all or none."""
        manifest = self.manifest
        with _reaching(self.where):
            if manifest.format != Manifest.kind.number:
                self.manifest = msgspec.structs.replace(manifest, format=Manifest.kind.number)
                self._client.set(self._keys.manifest, encode_manifest(self.manifest))
            append = self._client.register_script(APPEND)
            append([self._keys.ids, self._keys.changes], [pack(entries, vectors)])

    def _take_in_sets(self, sets: Iterable[ItemSet]) -> None:
        new = list({one.set: one for one in sets if one.set not in self.sets}.values())
        check_sets(new, self)
        self._know_sets(new)

    def _take_in(self, new: Sequence[str]) -> None:
        self._put_rows(self._fetch(new), len(new))
        self._know(new)

    def _put_rows(self, rows: Mapping[str, NDArray[np.float32]], count: int) -> None:
        """Put vectors behind those there are; their ids are not known yet."""
        start, end = len(self.ids), len(self.ids) + count
        self._make_room(end)
        for name, vectors in rows.items():
            self._room[name][start:end] = vectors
        self.features = {name: _read_only(self._room[name][:end]) for name in self.dims}
        if self.map:
            self.mapped = _read_only(self._room[MAPPED][:end])

    def _fetch(self, ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        pipeline = self._client.pipeline(transaction=False)
        for one in ids:
            pipeline.hmget(self._keys.item + one, list(self._stored))
        blobs = dict(zip(self._stored, zip(*pipeline.execute(), strict=True), strict=True))
        found = {name: self._vectors(ids, name, blobs[name]) for name in self.dims}
        if self.map:
            coordinates = _made(self.map, found, blobs[MAPPED])
            found[MAPPED] = self._vectors(ids, MAPPED, coordinates)
        return found

    def _vectors(self, ids: Sequence[str], name: str, blobs: Sequence[bytes | None]) -> NDArray[np.float32]:
        dim = self._stored[name]
        for one, blob in zip(ids, blobs, strict=True):
            if blob is None or len(blob) != dim * DTYPE.itemsize:
                raise self._damaged(one, name, "is missing" if blob is None else f"has {len(blob)} bytes")
        vectors = np.frombuffer(b"".join(blob for blob in blobs if blob is not None), DTYPE).reshape(len(ids), dim)
        if at := not_finite(vectors):
            raise self._damaged(ids[at[0]], name, f"holds {vectors[at]} in column {at[1]}")
        return vectors

    def _damaged(self, one: str, name: str, what: str) -> CatalogueError:
        return CatalogueError(
            f"{self.where}: item {one!r}, modality {name!r} {what}, expected {self._stored[name]} finite float32 "
            f"numbers: write key {self._keys.item}{one} anew"
        )

    def _make_room(self, rows: int) -> None:
        """Matrices of at least so many rows; views of the smaller ones stay as they are."""
        have = len(next(iter(self._room.values()), ()))
        if rows <= have:
            return
        capacity = max(rows, have + have // 2, self._client.llen(self._keys.ids))
        for name, dim in self._stored.items():
            matrix = np.empty((capacity, dim), DTYPE)
            if have:
                matrix[:have] = self._room[name]
            self._room[name] = matrix


class RedisPictures:
    """The thumbnails of a catalogue, fields of a hash."""

    def __init__(self, client: Any, key: str, where: str) -> None:
        self._client, self._key, self._where = client, key, where

    def read(self, name: str) -> bytes | None:
        """See :class:`omdml.streams.describers.thumbnails.Pictures`."""
        with _reaching(self._where):
            data: bytes | None = self._client.hget(self._key, name)
        return data

    def write(self, name: str, data: bytes) -> None:
        """See :class:`omdml.streams.describers.thumbnails.Pictures`."""
        with _reaching(self._where):
            self._client.hset(self._key, name, data)

    def remove(self, name: str) -> None:
        """See :class:`omdml.streams.describers.thumbnails.Pictures`."""
        with _reaching(self._where):
            self._client.hdel(self._key, name)

    def names(self) -> list[str]:
        """See :class:`omdml.streams.describers.thumbnails.Pictures`."""
        with _reaching(self._where):
            return sorted(map(_text, self._client.hkeys(self._key)))


def upload_catalogue(catalogue: Items, url: str, name: str | None = None, sets: Sequence[ItemSet] | None = None) -> int:
    """Copy a catalogue to Redis and make its generation the current one there; answers how many items were new.

    ``sets``: to be copied instead of the catalogue's own; they may hold items that are there already.

    1. The map and the describer with its thumbnails if there are any, the manifest, and how many items came first.
    2. Items with their ids, a batch at a time, then sets, those not listed yet. 3. The pointer to the generation.
    A crash before step 3 leaves readers with the generation they had; calling again goes on where it ended.

    Raises CatalogueError as :class:`RedisCatalogue` does, or if the server has no memory left.
    """
    client, name, where = _connect(url, name)
    keys = Keys(name, catalogue.generation)
    known = catalogue.manifest
    manifest = Manifest(
        generation=catalogue.generation, modalities=known.modalities, map=known.map, describer=known.describer
    )
    with _reaching(where), progress(f"uploading {name}", len(catalogue.ids)) as advance:
        # Step 1.
        if catalogue.map:
            client.set(keys.map, catalogue.map.to_bytes())
        if catalogue.describer:
            client.set(keys.describer, catalogue.describer.to_bytes())
            for picture in catalogue.pictures.names():
                client.hset(keys.thumbnails, picture, catalogue.pictures.read(picture) or b"")
        client.set(keys.manifest, encode_manifest(manifest))
        listed = set(map(_text, client.lrange(keys.ids, 0, -1)))
        client.set(keys.first, len(listed) or catalogue.first, nx=True)
        rows = [row for row, one in enumerate(catalogue.ids) if one not in listed]
        advance(len(catalogue.ids) - len(rows))
        # Step 2.
        for start in range(0, len(rows), BATCH_ITEMS):
            batch = rows[start : start + BATCH_ITEMS]
            _upload(client, keys, catalogue, batch)
            advance(len(batch))
        _upload_sets(client, keys, sets_of(catalogue) if sets is None else sets)
        # Step 3.
        client.set(current_key(name), catalogue.generation)
    log.info("catalogue_uploaded", to=where, generation=catalogue.generation, items=len(rows))
    return len(rows)


def current_generation(url: str) -> str | None:
    """Which generation opens at ``redis://host:6379/0#shop``; None if none is there. Raises CatalogueError."""
    client, name, where = _connect(url, None)
    with _reaching(where):
        return _text(client.get(current_key(name))) or None


def read_redis_manifest(url: str) -> Manifest:
    """What the current generation of a catalogue says of itself, without its items; raises CatalogueError."""
    client, name, where = _connect(url, None)
    with _reaching(where):
        found = _text(client.get(current_key(name)))
        data = client.get(Keys(name, found).manifest)
    if data is None:
        raise CatalogueError(f"{where}: no catalogue {name!r}: upload one, or correct the name")
    return decode_manifest(data, Manifest, where)


def read_redis_map(url: str) -> CoordinateMap | None:
    """The map of the current generation of a catalogue, None if it has none; raises CatalogueError."""
    manifest, (client, name, where) = read_redis_manifest(url), _connect(url, None)
    with _reaching(where):
        return checked_map(manifest, where, client.get(Keys(name, manifest.generation).map))


def read_redis_describer(url: str) -> bytes | None:
    """What is kept of the current generation's describer; raises CatalogueError."""
    manifest, (client, name, where) = read_redis_manifest(url), _connect(url, None)
    with _reaching(where):
        data: bytes | None = client.get(Keys(name, manifest.generation).describer)
    return data


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
    """Where the name of the current generation lies."""
    return f"omdml:catalogue:{name}"


def _upload(client: Any, keys: Keys, catalogue: Items, rows: Sequence[int]) -> None:
    pipeline = client.pipeline(transaction=True)
    vectors: Mapping[str, NDArray[np.float32]] = {name: matrix[rows] for name, matrix in catalogue.stored.items()}
    for at, row in enumerate(rows):
        fields = {name: matrix[at].tobytes() for name, matrix in vectors.items()}
        pipeline.hset(keys.item + catalogue.ids[row], mapping=fields)
    pipeline.rpush(keys.ids, *(catalogue.ids[row] for row in rows))
    pipeline.execute()


def _upload_sets(client: Any, keys: Keys, sets: Iterable[ItemSet]) -> None:
    known = {one.set for one in decode_sets(b"\n".join(client.lrange(keys.sets, 0, -1)), keys.sets)}
    new = [one for one in sets if one.set not in known]
    for start in range(0, len(new), BATCH_ITEMS):
        client.rpush(keys.sets, *encode_sets(new[start : start + BATCH_ITEMS]).splitlines())


def sets_of(catalogue: Items) -> list[ItemSet]:
    """A catalogue's sets by the ids of their items."""
    ids = catalogue.ids
    return [ItemSet(one, tuple(ids[row] for row in rows)) for one, rows in catalogue.sets.items()]


def _connect(url: str, name: str | None) -> tuple[Any, str, str]:
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
        # Only this finds options that the class does not know.
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError):
        # The text of this error may quote a password.
        raise CatalogueError(f"{where}: no address, such as redis://user:password@host:6379/0#name") from None
    return client, chosen, where


@contextmanager
def _reaching(where: str) -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise CatalogueError(
            f"{where}: {str(error).rstrip('.')}: is the server up, reachable, and has it memory left?"
        ) from error
    except UnicodeDecodeError as error:
        raise CatalogueError(f"{where}: an id that is not UTF-8 ({error}): remove it from the list of ids") from error


def _made(
    coordinate_map: CoordinateMap, found: Mapping[str, NDArray[np.float32]], blobs: Sequence[bytes | None]
) -> list[bytes]:
    """Coordinates; those that a client left out are made one item at a time, so that every reader makes the same."""
    return [
        coordinate_map.apply({name: x[row : row + 1] for name, x in found.items()}).tobytes() if blob is None else blob
        for row, blob in enumerate(blobs)
    ]


def _text(data: bytes | None) -> str:
    return (data or b"").decode()


def _read_only(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    matrix.flags.writeable = False
    return matrix
