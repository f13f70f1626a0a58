"""Settings of a Redis or Valkey server that decide what it forgets in a crash, and in a takeover; what it uses."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from redis import exceptions

from omdml.streams.addresses import masked, without_prefix
from omdml.streams.stores.redis.client import connect, reaching


class ServerSafety(NamedTuple):
    """What a server promises about writes it acknowledged.

    ``fsync``, ``save`` and ``min_replicas`` are None if the user may not read the configuration. ``save`` is as in the
    server's configuration: pairs of seconds and changes; empty without save points.
    """

    append_only: bool
    fsync: str | None
    save: str | None
    policy: str
    is_replica: bool
    replicas: int
    min_replicas: int | None
    # The server's name and version; bytes that it uses, and that it may use (0: as many as there are).
    name: str = ""
    used_bytes: int = 0
    max_bytes: int = 0


def server_safety(url: str) -> ServerSafety:
    """What the server at this address promises about writes, and what it uses; raises StoreError."""
    with reaching(masked(url)), connect(without_prefix(url)[0]) as client:
        parts = ("server", "persistence", "memory", "replication")
        info = {name: value for part in parts for name, value in client.info(part).items()}
        settings: dict[str, str] = {}
        # Users of SECURITY.md, and those of managed servers, may not ask for the configuration.
        with suppress(exceptions.NoPermissionError, exceptions.ResponseError):
            for name in ("appendfsync", "save", "min-replicas-to-write"):
                settings |= client.config_get(name)
    min_replicas, valkey = settings.get("min-replicas-to-write"), info.get("valkey_version")
    return ServerSafety(
        append_only=bool(info.get("aof_enabled")),
        fsync=settings.get("appendfsync"),
        save=settings.get("save"),
        policy=str(info.get("maxmemory_policy", "")),
        is_replica=info.get("role") == "slave",
        replicas=int(info.get("connected_slaves", 0)),
        min_replicas=None if min_replicas is None else int(min_replicas),
        name=f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', '')}",
        used_bytes=int(info.get("used_memory", 0)),
        max_bytes=int(info.get("maxmemory", 0)),
    )
