"""The thumbnails of a catalogue in Redis."""

from __future__ import annotations

from typing import Any

from omdml.streams.catalogues.redis.place import reaching, text


class RedisPictures:
    """The thumbnails of a catalogue, fields of a hash."""

    def __init__(self, client: Any, key: str, where: str) -> None:
        self._client, self._key, self._where = client, key, where

    def read(self, name: str) -> bytes | None:
        with reaching(self._where):
            data: bytes | None = self._client.hget(self._key, name)
        return data

    def write(self, name: str, data: bytes) -> None:
        with reaching(self._where):
            self._client.hset(self._key, name, data)

    def remove(self, name: str) -> None:
        with reaching(self._where):
            self._client.hdel(self._key, name)

    def names(self) -> list[str]:
        with reaching(self._where):
            return sorted(map(text, self._client.hkeys(self._key)))
