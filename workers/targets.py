"""Versions that a model may be taken back to: those that nodes can serve beside what is learned today.

A reset begins the numbering of versions again, and a catalogue that was built anew has other items: what was learned
before either stays in the store for a while, but no longer belongs to the model as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from omdml.errors import CorruptError, StoreError
from omdml.snapshot import Snapshot
from streams.protocols import SnapshotStore
from streams.stores.journal import PUBLICATIONS

# A line of a model's history.
Line = Mapping[str, Any]


class Unservable(StoreError):
    """A version that is kept, and that nodes cannot serve."""

    reason = "unservable"


def since_reset(lines: Sequence[Line]) -> list[Line]:
    """The publications after the last reset, oldest first.

    A reset publishes version 0, and tells the history after that.
    """
    published = [number for number, line in enumerate(lines) if line["what"] in PUBLICATIONS]
    resets = [number for number, line in enumerate(lines) if line["what"] == "reset"]
    first = 0
    if resets:
        first = max((number for number in published if number < resets[-1]), default=resets[-1])
    return [lines[number] for number in published if number >= first]


def check_target(store: SnapshotStore, model: str, version: int) -> None:
    """Raise Unservable if a version is kept that nodes could not serve, and CorruptError if its bytes are damaged.

    A version that is not kept passes: the move itself says so.
    """
    lines = store.history(model)
    kept = [line for line in lines if line["what"] in PUBLICATIONS and line["version"] == version]
    found = store.load(model, version)
    if not kept or found is None:
        return
    present = since_reset(lines)
    if kept[-1] not in present:
        at = next(line["at"] for line in reversed(lines) if line["what"] == "reset")
        raise Unservable(
            f"model {model!r}: version {version} was learned before the reset of "
            f"{datetime.fromtimestamp(at, UTC):%F %T} UTC, and versions count from 0 since then: "
            f"{choose(present, version)}"
        )
    # The newest snapshot tells which catalogue the workers, and the nodes, have today.
    newest = newest_readable(store, model, present)
    if newest is not None and newest.generation != found[1].generation:
        raise Unservable(
            f"model {model!r}: version {version} was learned on catalogue generation {found[1].generation[:12]}, and "
            f"the catalogue is generation {newest.generation[:12]} now: no node could serve it; "
            f"{choose(servable(store, model, present, newest.generation), version)}"
        )


def newest_readable(store: SnapshotStore, model: str, lines: Sequence[Line]) -> Snapshot | None:
    """The newest of these publications whose bytes can be read."""
    for line in reversed(lines):
        snapshot = readable(store, model, line)
        if snapshot is not None:
            return snapshot
    return None


def servable(store: SnapshotStore, model: str, lines: Sequence[Line], generation: str) -> list[Line]:
    """Those of these publications that can be read and were learned on this generation of the catalogue."""
    found = [(line, readable(store, model, line)) for line in lines]
    return [line for line, snapshot in found if snapshot is not None and snapshot.generation == generation]


def readable(store: SnapshotStore, model: str, line: Line) -> Snapshot | None:
    """The snapshot of a publication; None if its bytes are damaged, or gone, or of another publication by now."""
    try:
        found = store.load(model, line["version"])
    except CorruptError:
        return None
    return found[1] if found and found[0].digest == line["digest"] else None


def choose(lines: Sequence[Line], version: int) -> str:
    """What to do instead."""
    versions = sorted({line["version"] for line in lines} - {version})
    if not versions:
        return "no other version is kept that can be served"
    return f"choose one of {', '.join(map(str, versions))}"
