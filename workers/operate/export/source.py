"""A model's items as its live version embeds them, whenever something about them has changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from omdml.errors import CatalogueError, StoreError
from omdml.snapshot import Snapshot
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.store import Pointer, SnapshotStore
from omdml.workers.operate.export.parts import Attributes, Rows
from omdml.workers.operate.export.vectors import embedded, items_of
from omdml.workers.versions.targets import misfit


class Table(Protocol):
    """What is known of items beside their vectors."""

    @property
    def columns(self) -> Any:
        """Names of the attributes."""

    def of(self, items: Sequence[str], names: Sequence[str]) -> Attributes:
        """The values of each item, as far as it has them."""


class Look(NamedTuple):
    """The items under one version; ``seen`` tells this look from an earlier one."""

    pointer: Pointer
    snapshot: Snapshot
    rows: Rows
    seen: object


class LiveItems:
    """The items of a model under its live version, or under one that is kept.

    Parameters
    ----------
    store
        Where the snapshots are.
    catalogue
        Answers the model's catalogue as it is now, with the items added since; raises CatalogueError.
    attributes
        Answers what is known of the items, None if nothing is.
    model, task, version
        What is embedded, in whose sense, and under which kept version; None is the live one.
    """

    def __init__(
        self,
        store: SnapshotStore,
        catalogue: Callable[[], Catalogue],
        attributes: Callable[[], Table | None],
        model: str,
        task: str | None = None,
        version: int | None = None,
    ) -> None:
        self._store, self._catalogue, self._attributes = store, catalogue, attributes
        self._model, self._task, self._version = model, task, version
        self._seen: object = None

    def look(self) -> Look | None:
        """The items as they are now; None if nothing changed since the look that was last done.

        Raises StoreError if nothing is published, or the store is out of reach; CatalogueError if the version does not
        fit the catalogue; CorruptError if the metric diverged.
        """
        pointer = self._store.current(self._model)
        catalogue, attributes = self._catalogue(), self._attributes()
        ids, rows = items_of(catalogue)
        # The table is another object after its file has changed.
        rest = catalogue, hash(rows.tobytes()), attributes
        if self._seen is not None and (pointer, *rest) == self._seen:
            return None
        pointer, snapshot = self._loaded()
        if why := misfit(snapshot, catalogue):
            raise CatalogueError(f"model {snapshot.model!r}, version {snapshot.version}: {why}: nothing is exported")
        named = None if attributes is None else attributes.of(ids, list(attributes.columns))
        now = Rows(ids, embedded(snapshot, catalogue, rows, self._task), named)
        return Look(pointer, snapshot, now, (pointer, *rest))

    def done(self, look: Look) -> None:
        """Note that this look was made use of."""
        self._seen = look.seen

    def _loaded(self) -> tuple[Pointer, Snapshot]:
        found = self._store.load(self._model, self._version)
        if found is None:
            version = self._version
            what = "nothing is published" if version is None else f"version {version} is not kept: see omdml history"
            raise StoreError(f"model {self._model!r}: {what}")
        return found
