"""Copies a catalogue, or what is new in it, to Redis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from omdml.streams.catalogues.items import Items
from omdml.streams.catalogues.manifest import Manifest, encode_manifest
from omdml.streams.catalogues.progress import progress
from omdml.streams.catalogues.redis.place import BATCH_ITEMS, Keys, connect, current_key, reaching, text
from omdml.streams.catalogues.sets import ItemSet, decode_sets, encode_sets

log = structlog.get_logger(__name__)


def upload_catalogue(catalogue: Items, url: str, name: str | None = None, sets: Sequence[ItemSet] | None = None) -> int:
    """Copy a catalogue to Redis and make its generation the current one there; returns how many items were new.

    ``sets``: to be copied instead of the catalogue's own; they may hold items that are there already.

    1. The map and the describer with its thumbnails if there are any, the manifest, and how many items came first.
    2. The items that are not listed yet, a batch at a time, then the sets that are not. 3. The pointer to the
    generation. A crash before step 3 leaves readers with the generation that they had. The next call goes on after the
    last batch that was written.

    Raises CatalogueError as :class:`RedisCatalogue` does, or if the server has no memory left.
    """
    client, name, where = connect(url, name)
    keys = Keys(name, catalogue.generation)
    source = catalogue.manifest
    manifest = Manifest(
        generation=catalogue.generation, modalities=source.modalities, map=source.map, describer=source.describer
    )
    with reaching(where), progress(f"uploading {name}", len(catalogue.ids)) as advance:
        # Step 1.
        if catalogue.map:
            client.set(keys.map, catalogue.map.to_bytes())
        if catalogue.describer:
            client.set(keys.describer, catalogue.describer.to_bytes())
            for picture in catalogue.pictures.names():
                client.hset(keys.thumbnails, picture, catalogue.pictures.read(picture) or b"")
        client.set(keys.manifest, encode_manifest(manifest))
        listed_ids = set(map(text, client.lrange(keys.ids, 0, -1)))
        client.set(keys.first, len(listed_ids) or catalogue.first, nx=True)
        rows = [row for row, item in enumerate(catalogue.ids) if item not in listed_ids]
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


def _upload(client: Any, keys: Keys, catalogue: Items, rows: Sequence[int]) -> None:
    pipeline = client.pipeline(transaction=True)
    vectors: Mapping[str, NDArray[np.float32]] = {name: matrix[rows] for name, matrix in catalogue.stored.items()}
    for place, row in enumerate(rows):
        fields = {name: matrix[place].tobytes() for name, matrix in vectors.items()}
        pipeline.hset(keys.item + catalogue.ids[row], mapping=fields)
    pipeline.rpush(keys.ids, *(catalogue.ids[row] for row in rows))
    pipeline.execute()


def _upload_sets(client: Any, keys: Keys, sets: Iterable[ItemSet]) -> None:
    listed_sets = {item_set.set for item_set in decode_sets(b"\n".join(client.lrange(keys.sets, 0, -1)), keys.sets)}
    new = [item_set for item_set in sets if item_set.set not in listed_sets]
    for start in range(0, len(new), BATCH_ITEMS):
        client.rpush(keys.sets, *encode_sets(new[start : start + BATCH_ITEMS]).splitlines())


def sets_of(catalogue: Items) -> list[ItemSet]:
    """A catalogue's sets by the ids of their items."""
    ids = catalogue.ids
    return [ItemSet(name, tuple(ids[row] for row in rows)) for name, rows in catalogue.sets.items()]
