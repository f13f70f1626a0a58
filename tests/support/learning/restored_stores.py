"""Stores of which copies are made and brought back; functions that replace checkpoints in stores over a database."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable

from omdml.streams.stores.checkpoints import Saved
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.memory import MemoryStore
from omdml.streams.stores.transactional.model_row import KeptCheckpoint, ModelRow
from omdml.streams.stores.transactional.store import STORE, TransactionalStore, group_of


def kept_checkpoints(store: TransactionalStore, model: str) -> list[tuple[Saved, bytes]]:
    """The checkpoints of a model with their bytes, the newest first."""
    with store.database.transaction(False) as rows:
        row = ModelRow.read(rows, model)
        kept = row.checkpoints if row else []
        return [(file.saved, rows.get(group_of(model), str(file.number)) or b"") for file in kept]


def put_checkpoints(
    store: TransactionalStore, model: str, checkpoints: list[tuple[Saved, bytes]], saved_last: Saved | None = None
) -> None:
    """Replace the checkpoints of a model by these, as somebody does who brings a copy back by hand.

    The store's note of what was saved last stays as it is, unless ``saved_last`` is given.
    """
    with store.database.transaction(True) as rows:
        row = ModelRow.read(rows, model)
        assert row
        for name in rows.names(group_of(model)):
            rows.delete(group_of(model), name)
        numbers = range(len(checkpoints), 0, -1)
        for number, (_, data) in zip(numbers, checkpoints, strict=True):
            rows.put(group_of(model), str(number), data)
        row.checkpoints = [KeptCheckpoint(n, saved) for n, (saved, _) in zip(numbers, checkpoints, strict=True)]
        row.saved_last = saved_last or row.saved_last
        row.write(rows, model)


def damage_newest_of(store: TransactionalStore) -> None:
    """Damage the newest checkpoint of "shop" that is not damaged yet."""
    checkpoints = kept_checkpoints(store, "shop")
    place = next(place for place, (_, data) in enumerate(checkpoints) if data != b"?")
    checkpoints[place] = (checkpoints[place][0], b"?")
    put_checkpoints(store, "shop", checkpoints)


def remove_from(store: TransactionalStore) -> None:
    """Remove all checkpoints of "shop" behind the back of the store."""
    with store.database.transaction(True) as rows:
        for name in rows.names(group_of("shop")):
            rows.delete(group_of("shop"), name)


def copy_of(store: TransactionalStore) -> Callable[[], None]:
    """Take a copy of the checkpoints of "shop"; returns a function that puts the copy in their place."""
    checkpoints = kept_checkpoints(store, "shop")
    return lambda: put_checkpoints(store, "shop", checkpoints)


def put_id(store: TransactionalStore, store_id: str) -> None:
    """Give a store another id, as if another server had taken over."""
    with store.database.transaction(True) as rows:
        rows.put(STORE, "id", store_id.encode())


class RestorableMemory(MemoryStore):
    """A memory store of which copies can be made, and brought back."""

    # The groups of rows that restore() brings back. Placements stay as they are, unless a subclass adds them.
    restored: tuple[str, ...] = ("models", "checkpoints", "journal", "snapshots", "counts", "marks")

    def back_up(self):
        self.copy = copy.deepcopy(self.database.groups)

    def restore(self):
        groups = self.database.groups
        for name in [name for name in groups if self._is_restored(name)]:
            del groups[name]
        groups.update(copy.deepcopy({name: rows for name, rows in self.copy.items() if self._is_restored(name)}))

    def fail_over(self):
        """Have another server take over, which has another id."""
        put_id(self, f"{self.store_id}'")

    def _is_restored(self, group):
        return group.partition("/")[0] in self.restored


class RestorableDirectory(DirectoryStore):
    """A folder of which copies can be made, and brought back."""

    def back_up(self):
        shutil.copytree(self.path, f"{self.path}.copy")

    def restore(self):
        shutil.rmtree(self.path)
        shutil.copytree(f"{self.path}.copy", self.path)
