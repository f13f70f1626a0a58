"""The items' vectors in Redis, for machines that share no folder; a process that opens it keeps them in memory.

Any client may add an item: first its hash, then its id to the list; and a set, when its items are there. What is listed
again counts once, so that adding may be retried. Mapped coordinates may be left out: whoever reads makes them.
``place.py`` lists the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.coordinates import MAPPED, CoordinateMap
from omdml.errors import CatalogueError, quoted, shortened
from omdml.streams.catalogues.changes.change import ChangeEntry, Vectors
from omdml.streams.catalogues.changes.packed import APPEND, pack, unpack
from omdml.streams.catalogues.items import Items
from omdml.streams.catalogues.manifest import Manifest, decode_manifest, encode_manifest
from omdml.streams.catalogues.matrix import DTYPE
from omdml.streams.catalogues.redis.pictures import RedisPictures
from omdml.streams.catalogues.redis.place import BATCH_ITEMS, Keys, connect, current_key, reaching, text
from omdml.streams.catalogues.scaling import not_finite
from omdml.streams.catalogues.sets import ItemSet, check_sets, decode_sets

# How many records of the list of changes are read together. Each may have megabytes.
BATCH_RECORDS = 100


class RedisCatalogue(Items):
    """A catalogue in Redis, read whole: every reader numbers the items alike.

    Parameters
    ----------
    url
        ``redis://host:6379/0#shop``; ``rediss://`` with TLS, ``valkey://`` and ``valkeys://`` alike.
    name
        The catalogue's name, if the URL has no ``#name``.
    generation
        By default the current one.

    Raises
    ------
    CatalogueError
        No server, no such catalogue or generation, an item without a modality or with damaged vectors.
    """

    def __init__(self, url: str, name: str | None = None, generation: str | None = None) -> None:
        self._client, self.name, where = connect(url, name)
        with reaching(where):
            chosen = generation or text(self._client.get(current_key(self.name)))
            self._keys = Keys(self.name, chosen)
            data, map_bytes = self._client.get(self._keys.manifest), self._client.get(self._keys.map)
        if data is None:
            raise CatalogueError(
                f"{where}: no catalogue {self.name!r} of generation {chosen or 'any'}: make one with `omdml catalogue "
                "build`, or correct the name"
            )
        super().__init__(decode_manifest(data, Manifest, where), where, map_bytes)
        # How many numbers of an item each field holds.
        self._stored = {**self.dims, MAPPED: self.map.dim} if self.map else self.dims
        # How many entries of each list were read.
        self._listed = self._listed_sets = self._read = 0
        self._room: dict[str, NDArray[np.float32]] = {}
        self.refresh()
        with reaching(where):
            first = self._client.get(self._keys.first) or b"%d" % len(self.ids)
        if not re.fullmatch(b"[0-9]{1,19}", first):
            raise CatalogueError(
                f"{where}: key {self._keys.first} holds {quoted(first)}, expected how many items came first"
            )
        self.first = int(first)

    def _describer_bytes(self) -> bytes | None:
        with reaching(self.where):
            data: bytes | None = self._client.get(self._keys.describer)
        return data

    @property
    def pictures(self) -> RedisPictures:
        return RedisPictures(self._client, self._keys.thumbnails, self.where)

    def _take_in_all(self) -> None:
        """Ids and changes lie in two lists; each change says behind how many ids it came."""
        more = True
        while more:
            with reaching(self.where):
                # The order matters: the items of these sets are listed before the ids are counted, and a change that is
                # not read came after all ids that are counted.
                pipeline = self._client.pipeline(transaction=False)
                pipeline.lrange(self._keys.sets, self._listed_sets, -1)
                pipeline.llen(self._keys.ids)
                pipeline.lrange(self._keys.changes, self._read, self._read + BATCH_RECORDS - 1)
                pipeline.llen(self._keys.changes)
                sets, listed, changes, changed = pipeline.execute()
            if changed < self._read:
                raise CatalogueError(
                    f"{self.where}: key {self._keys.changes} has {changed} entries, expected at least the {self._read} "
                    "that were read before: restore it, or restart this process to open the catalogue as it is now"
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
            with reaching(self.where):
                last = min(self._listed + BATCH_ITEMS, end) - 1
                listed = self._client.lrange(self._keys.ids, self._listed, last)
                if not listed:
                    # Somebody cut the list.
                    return
                if new := [item for item in dict.fromkeys(map(text, listed)) if item not in self]:
                    self._take_in(new)
            self._listed += len(listed)

    def _take_in_changes(self, data: bytes) -> None:
        try:
            before, entries, vectors = unpack(data, self._stored)
        except ValueError as error:
            raise CatalogueError(
                f"{self.where}: entry {self._read} of key {self._keys.changes} is damaged ({shortened(str(error))}): "
                "restore it, or build the catalogue again"
            ) from error
        self._take_in_ids(before)
        if vectors:
            self._put_rows(vectors, sum(entry.put for entry in entries))
        self._apply(entries)
        self._read += 1

    def _append(self, entries: Sequence[ChangeEntry], vectors: Vectors) -> None:
        """Write changes in two steps.

        1. The current format's number, into the manifest: older releases know no changes. 2. The changes, all or none.
        """
        manifest = self.manifest
        with reaching(self.where):
            if manifest.format != Manifest.kind.number:
                self.manifest = msgspec.structs.replace(manifest, format=Manifest.kind.number)
                self._client.set(self._keys.manifest, encode_manifest(self.manifest))
            append = self._client.register_script(APPEND)
            append([self._keys.ids, self._keys.changes], [pack(entries, vectors)])

    def _take_in_sets(self, sets: Iterable[ItemSet]) -> None:
        new = list({item_set.set: item_set for item_set in sets if item_set.set not in self.sets}.values())
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
        for item in ids:
            pipeline.hmget(self._keys.item + item, list(self._stored))
        blobs = dict(zip(self._stored, zip(*pipeline.execute(), strict=True), strict=True))
        rows = {name: self._vectors(ids, name, blobs[name]) for name in self.dims}
        if self.map:
            coordinates = _complete_coordinates(self.map, rows, blobs[MAPPED])
            rows[MAPPED] = self._vectors(ids, MAPPED, coordinates)
        return rows

    def _vectors(self, ids: Sequence[str], name: str, blobs: Sequence[bytes | None]) -> NDArray[np.float32]:
        dim = self._stored[name]
        for item, blob in zip(ids, blobs, strict=True):
            if blob is None or len(blob) != dim * DTYPE.itemsize:
                raise self._damaged(item, name, "is missing" if blob is None else f"has {len(blob)} bytes")
        vectors = np.frombuffer(b"".join(blob for blob in blobs if blob is not None), DTYPE).reshape(len(ids), dim)
        if place := not_finite(vectors):
            raise self._damaged(ids[place[0]], name, f"holds {vectors[place]} in column {place[1]}")
        return vectors

    def _damaged(self, item: str, name: str, what: str) -> CatalogueError:
        return CatalogueError(
            f"{self.where}: item {item!r}, modality {name!r} {what}, expected {self._stored[name]} finite float32 "
            f"numbers: write key {self._keys.item}{item} again"
        )

    def _make_room(self, rows: int) -> None:
        """Matrices of at least this many rows; views of the smaller ones stay as they are."""
        have = len(next(iter(self._room.values()), ()))
        if rows <= have:
            return
        capacity = max(rows, have + have // 2, self._client.llen(self._keys.ids))
        for name, dim in self._stored.items():
            matrix = np.empty((capacity, dim), DTYPE)
            if have:
                matrix[:have] = self._room[name]
            self._room[name] = matrix


def _complete_coordinates(
    coordinate_map: CoordinateMap, vectors: Mapping[str, NDArray[np.float32]], blobs: Sequence[bytes | None]
) -> list[bytes]:
    """The coordinates of all items. Those that a client left out are computed item by item, alike for every reader."""
    return [
        coordinate_map.apply({name: x[row : row + 1] for name, x in vectors.items()}).tobytes()
        if blob is None
        else blob
        for row, blob in enumerate(blobs)
    ]


def _read_only(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    matrix.flags.writeable = False
    return matrix
