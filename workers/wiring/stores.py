"""The store that is configured: checkpoints and snapshots."""

from __future__ import annotations

from contextlib import suppress

import structlog

from omdml.errors import StoreError, StoreRefused
from omdml.streams.protocols.store import Store
from omdml.streams.stores.opening import open_store
from omdml.workers.configuration.config import Configuration

log = structlog.get_logger(__name__)


def open_stores(configuration: Configuration) -> Store:
    """The store of this configuration; raises StoreRefused if it rejects our credentials, but not if it is away."""
    from omdml.workers.configuration.specs import Retentions

    store = open_store(configuration.store.url, Retentions(configuration))
    try:
        store.current(next(iter(configuration.models), ""))
    except StoreRefused:
        raise
    except StoreError:
        pass
    return store


def tell_if_empty(store: Store) -> None:
    """Say so in the log if nobody has written into a store yet: then an address may be wrong, or a disk not mounted."""
    # If the store is away, the node says so itself.
    with suppress(StoreError):
        if not store.store_id:
            hint = "the first worker fills it; if workers have learned already, correct store.url, or mount its disk"
            log.warning("store_is_empty", store=str(store), serving="what models begin with", hint=hint)
