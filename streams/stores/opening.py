"""Opens a store by its address: a folder, or a URL of Redis."""

from __future__ import annotations

from omdml.errors import ConfigurationError
from omdml.streams.addresses import SCHEMES, masked
from omdml.streams.protocols.store import Store
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
        At that path is something else than a folder, or another release wrote what it holds.
    """
    # Each kind brings a client or a file format of its own: the others are not imported.
    kind, _, rest = url.partition(":")
    if kind in SCHEMES:
        from omdml.streams.stores.redis.store import RedisStore

        return RedisStore(url, retention)
    if kind == "dir" and rest:
        from omdml.streams.stores.folder.store import DirectoryStore

        return DirectoryStore(rest, retention)
    if url == "memory:":
        from omdml.streams.stores.memory import MemoryStore

        return MemoryStore(retention)
    expected = ", ".join([*(f"{scheme}://HOST" for scheme in SCHEMES), "dir:PATH", "memory:"])
    raise ConfigurationError(f"store.url: got {masked(url)!r}, expected one of {expected}")
