"""The content of a Redis as JSON, and back; values that are no text become base64 behind a prefix."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

from tests.formats.shapes import LONG, shape


def text(data: bytes) -> str:
    """Bytes as text that JSON can hold."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"base64:{b64encode(data).decode()}"


def blob(value: str) -> bytes:
    """The bytes that :func:`text` wrote as this text."""
    return b64decode(value[7:]) if value.startswith("base64:") else value.encode()


def texts(fields: dict[bytes, bytes]) -> dict[str, str]:
    """A hash of Redis as an object of JSON."""
    return {text(name): text(value) for name, value in fields.items()}


def dump(client: Any, path: Path) -> None:
    """Write down every key of this database."""
    dumped: dict[str, Any] = {}
    for key in sorted(client.keys()):
        match client.type(key):
            case b"hash":
                dumped[text(key)] = {"hash": texts(client.hgetall(key))}
            case b"list":
                dumped[text(key)] = {"list": [text(entry) for entry in client.lrange(key, 0, -1)]}
            case b"set":
                dumped[text(key)] = {"set": sorted(text(member) for member in client.smembers(key))}
            case b"stream":
                dumped[text(key)] = {"stream": [texts(fields) for _, fields in client.xrange(key)]}
            case _:
                dumped[text(key)] = {"string": text(client.get(key))}
    path.write_text(json.dumps(dumped, indent=1) + "\n")


def restore(client: Any, path: Path) -> None:
    """Write these keys into an empty database."""
    for key, dumped in json.loads(path.read_text()).items():
        for kind, value in dumped.items():
            match kind:
                case "hash":
                    client.hset(key, mapping={blob(name): blob(field_value) for name, field_value in value.items()})
                case "list":
                    client.rpush(key, *map(blob, value))
                case "set":
                    client.sadd(key, *map(blob, value))
                case "stream":
                    for fields in value:
                        client.xadd(key, {blob(name): blob(field) for name, field in fields.items()})
                case _:
                    client.set(key, blob(value))


def keys(path: Path) -> dict[str, Any]:
    """The names of the keys with their types, the names of the fields of hashes and streams, and the shape of JSON."""
    results: dict[str, Any] = {}
    for key, dumped in json.loads(path.read_text()).items():
        for kind, value in dumped.items():
            fields = sorted(value) if kind == "hash" else []
            if kind == "stream":
                fields = sorted({name for entry in value for name in entry})
            if kind == "string" and value.startswith("{"):
                fields = [json.dumps(shape(json.loads(value)), sort_keys=True)]
            results[LONG.sub("#", key)] = [kind, fields]
    return results
