"""A model's items as its live version embeds them, each time that something has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from omdml.errors import CatalogueError, StoreError
from omdml.snapshot import Snapshot
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.store import Pointer, SnapshotStore
from omdml.workers.operate.export.layout import Attributes, Rows
from omdml.workers.operate.export.vectors import embedded, items_of
from omdml.workers.versions.targets import misfit


class AttributeTable(Protocol):
    """A table of the attributes of items."""

    @property
    def columns(self) -> Any:
        """Names of the attributes, as the table has them."""

    def of(self, items: Sequence[str], names: Sequence[str]) -> Attributes:
        """The values of these attributes for each item; an item need not have all of them."""


class EmbeddedItems(NamedTuple):
    """The items of a catalogue, embedded by one version. ``seen`` tells whether anything changed since another reading.

    The items are those of the catalogue's first ``catalogue_rows`` rows; ``places`` is a digest of their rows there.
    """

    pointer: Pointer
    snapshot: Snapshot
    rows: Rows
    places: str
    seen: object
    catalogue_rows: int


class LiveItems:
    """The items of a model under its live version, or under one that is kept.

    Parameters
    ----------
    store
        The store of the snapshots.
    catalogue
        Returns the model's catalogue as it is now, including items that were added; raises CatalogueError.
    attributes
        Returns the attributes of the items, None if there are none.
    model, task, version
        The model, the task in whose sense items are embedded, and the kept version; None means the live one.
    """

    def __init__(
        self,
        store: SnapshotStore,
        catalogue: Callable[[], Catalogue],
        attributes: Callable[[], AttributeTable | None],
        model: str,
        task: str | None = None,
        version: int | None = None,
    ) -> None:
        self._store, self._catalogue, self._attributes = store, catalogue, attributes
        self._model, self._task, self._version = model, task, version
        self._seen: object = None

    def changed(self) -> EmbeddedItems | None:
        """The items as they are now; None if nothing changed since those that :meth:`done` noted last.

        Raises StoreError if nothing is published, or the store is out of reach; CatalogueError if the version does not
        fit the catalogue; CorruptError if the metric diverged.
        """
        pointer = self._store.current(self._model)
        catalogue, attributes = self._catalogue(), self._attributes()
        count, ids, rows = items_of(catalogue)
        # The table is another object after its file has changed.
        places = hashlib.sha256(rows.tobytes()).hexdigest()
        tables = catalogue, places, attributes
        if self._seen is not None and (pointer, *tables) == self._seen:
            return None
        pointer, snapshot = self._loaded()
        if why := misfit(snapshot, catalogue):
            raise CatalogueError(f"model {snapshot.model!r}, version {snapshot.version}: {why}: nothing is exported")
        values = None if attributes is None else attributes.of(ids, list(attributes.columns))
        items = Rows(ids, embedded(snapshot, catalogue, rows, self._task), values)
        return EmbeddedItems(pointer, snapshot, items, places, (pointer, *tables), count)

    def done(self, items: EmbeddedItems) -> None:
        """Note that these items were used, so that :meth:`changed` returns only later changes."""
        self._seen = items.seen

    def _loaded(self) -> tuple[Pointer, Snapshot]:
        loaded = self._store.load(self._model, self._version)
        if loaded is None:
            version = self._version
            what = "nothing is published" if version is None else f"version {version} is not kept: see omdml history"
            raise StoreError(f"model {self._model!r}: {what}")
        return loaded
