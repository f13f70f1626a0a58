"""Which version is live, chosen by a person: back, and fixed there, until told otherwise."""

from __future__ import annotations

from omdml.errors import NotKept
from streams.protocols import Pointer, SnapshotStore


def rollback(store: SnapshotStore, model: str, version: int | None = None) -> Pointer:
    """Go to a kept version (None: the one before the live one), and stay there.

    Raises NotKept, or CorruptError where its bytes are damaged.
    """
    return _stay(store, model, before(store, model) if version is None else version)


def pin(store: SnapshotStore, model: str, version: int | None = None) -> Pointer:
    """Stay at a kept version (None: the live one). Raises StoreError, or CorruptError where its bytes are damaged."""
    return _stay(store, model, live(store, model).version if version is None else version)


def unpin(store: SnapshotStore, model: str) -> Pointer:
    """Go to the newest version, and follow what is learned; one that is not pinned does. Raises StoreError."""
    pointer = live(store, model)
    return store.move(model, None, pin=False) if pointer.pinned else pointer


def _stay(store: SnapshotStore, model: str, version: int) -> Pointer:
    store.load(model, version)  # nodes could not, and those that start would have nothing
    return store.move(model, version, pin=True)


def live(store: SnapshotStore, model: str) -> Pointer:
    """The live pointer; raises StoreError where there is none."""
    pointer = store.current(model)
    if pointer is None:
        raise NotKept(f"model {model!r}: nothing is published in {store}: is a worker running?")
    return pointer


def before(store: SnapshotStore, model: str) -> int:
    """The newest version that was live and is older than the one that is; raises StoreError where none is kept."""
    now = live(store, model).version
    older = [move["version"] for move in store.history(model) if move["what"] != "held" and move["version"] < now]
    if not older:
        raise NotKept(f"model {model!r}: nothing older than version {now} is kept in {store}: this is the oldest")
    return int(max(older))
