"""A store by its address."""

from __future__ import annotations

from omdml.errors import ConfigurationError
from omdml.streams.addresses import SCHEMES, masked
from omdml.streams.protocols import Store
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.memory import MemoryStore
from omdml.streams.stores.redis.store import RedisStore
from omdml.streams.stores.retention import RETENTION, RetentionOf


def open_store(url: str, retention: RetentionOf = RETENTION) -> Store:
    """The store at this address; a server is not asked yet whether it is there, and no folder is made yet.

    Parameters
    ----------
    url
        ``redis://host:6379/0`` (as for :class:`RedisStore`), ``dir:path`` or ``memory:``.
    retention
        Which snapshots stay when new ones come.

    Raises
    ------
    ConfigurationError
        No such kind of store, or an address that cannot be one.
    StoreError
        No folder lies at that path, but something else, or another release wrote what it holds.
    """
    kind, _, rest = url.partition(":")
    if kind in SCHEMES:
        return RedisStore(url, retention)
    if kind == "dir" and rest:
        return DirectoryStore(rest, retention)
    if url == "memory:":
        return MemoryStore(retention)
    expected = ", ".join([*(f"{scheme}://HOST" for scheme in SCHEMES), "dir:PATH", "memory:"])
    raise ConfigurationError(f"store.url: got {masked(url)!r}, expected one of {expected}")
