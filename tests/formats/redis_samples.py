"""The same as :mod:`tests.formats.samples` for what lies in Redis; the server must be empty."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import redis

from omdml import formats
from omdml.streams.catalogues.redis.catalogue import RedisCatalogue
from omdml.streams.catalogues.redis.upload import upload_catalogue
from omdml.streams.stores.redis.store import RedisStore
from tests.formats import redis_dump
from tests.formats.samples import Sample, check_catalogue, make_changes, small_catalogue
from tests.formats.stores import check_filled, fill

DUMP = "dump.json"


def samples(url: str) -> list[Sample]:
    """The formats in Redis, by way of the server there."""
    client: Any = redis.Redis.from_url(url)

    def write_store(folder: Path) -> None:
        client.flushall()
        fill(RedisStore(url))
        redis_dump.dump(client, folder / DUMP)

    def read_store(folder: Path) -> None:
        client.flushall()
        redis_dump.restore(client, folder / DUMP)
        check_filled(RedisStore(url))

    def write_catalogue(folder: Path) -> None:
        client.flushall()
        with tempfile.TemporaryDirectory() as other:
            upload_catalogue(small_catalogue(Path(other) / "items"), f"{url}#shop")
        make_changes(RedisCatalogue(f"{url}#shop"))
        redis_dump.dump(client, folder / DUMP)

    def read_catalogue(folder: Path) -> None:
        client.flushall()
        redis_dump.restore(client, folder / DUMP)
        check_catalogue(RedisCatalogue(f"{url}#shop"))

    def renumber(folder: Path, number: int) -> None:
        dumped = json.loads((folder / DUMP).read_text())
        for key, value in dumped.items():
            if key == "omdml:format":
                value["string"] = str(number)
            elif value.get("string", "").startswith('{"format":'):
                value["string"] = json.dumps({**json.loads(value["string"]), "format": number})
        (folder / DUMP).write_text(json.dumps(dumped))

    def shape(folder: Path) -> dict[str, Any]:
        return redis_dump.keys(folder / DUMP)

    return [
        Sample(formats.REDIS_STORE, write_store, read_store, renumber, shape),
        Sample(formats.REDIS_CATALOGUE, write_catalogue, read_catalogue, renumber, shape),
    ]
