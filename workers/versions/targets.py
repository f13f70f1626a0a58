"""Versions that a model may be taken back to: those that nodes can serve now.

A reset begins the numbering of versions again, and a catalogue that was built again has other items: what was learned
before either stays in the store for a while, but no longer belongs to the model as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from omdml.errors import CorruptError, StoreError
from omdml.snapshot import Snapshot
from omdml.streams.protocols.store import Pointer, SnapshotStore
from omdml.streams.stores.journal import PUBLICATIONS

# A line of a model's history.
Line = Mapping[str, Any]
TAKEN_BACK, REFERENCE = "taken back", re.compile(r"to what version (\d+) had")
# How many digits of a generation are shown.
SHOWN_DIGITS = 12


class Kind(Protocol):
    """What of a catalogue decides whether a snapshot fits it."""

    @property
    def generation(self) -> str:
        """The name of the catalogue's generation."""

    @property
    def dims(self) -> Mapping[str, int]:
        """Numbers an item has in each modality."""


class Unservable(StoreError):
    """A version that is kept, and that nodes cannot serve."""

    reason = "unservable"


def misfit(snapshot: Snapshot, kind: Kind) -> str:
    """Why a snapshot cannot be searched with in a catalogue; empty if it can. Doctor, lists and moves go by this."""
    if snapshot.generation != kind.generation:
        return (
            f"learned on catalogue generation {snapshot.generation[:SHOWN_DIGITS]}, "
            f"the catalogue is generation {kind.generation[:SHOWN_DIGITS]} now"
        )
    dims = dict(snapshot.metric.dims)
    if any(kind.dims.get(name) != dim for name, dim in dims.items()):
        return f"learned on {dims}, the catalogue has {dict(kind.dims)}"
    return ""


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


def why_taken_back(reference: int, reason: str) -> str:
    """What the history says if the metric of an earlier version is live again."""
    return f"to what version {reference} had: {reason}"


def not_taken_back(lines: Sequence[Line]) -> list[Line]:
    """The publications among these lines of a history, without those that the guard found worse and took back.

    These are what was published since its reference, but for the one that brought the reference back.
    """
    publications: list[Line] = []
    for line in lines:
        if line["what"] in PUBLICATIONS:
            publications.append(line)
        elif line["what"] == TAKEN_BACK and (reference := REFERENCE.match(line["reason"])):
            reference_digest = None if line["pinned"] else line["digest"]
            publications = [
                publication
                for publication in publications
                if publication["version"] <= int(reference[1]) or publication["digest"] == reference_digest
            ]
    return publications


def publications_of(lines: Sequence[Line], version: int, digest: str) -> list[Line]:
    """The publications of one snapshot, oldest first."""
    snapshot = version, digest
    return [line for line in lines if line["what"] in PUBLICATIONS and (line["version"], line["digest"]) == snapshot]


def check_target(store: SnapshotStore, model: str, version: int, kind: Kind | None) -> None:
    """Raise Unservable if a version is kept that nodes could not serve, and CorruptError if its bytes are damaged.

    A version that is not kept passes: the move itself says so.

    Parameters
    ----------
    kind
        The model's catalogue as it is now. None if that cannot be told here: then any catalogue's versions pass.
    """
    lines = store.history(model)
    if (loaded := store.load(model, version)) is None:
        return
    if not (publications := publications_of(lines, version, loaded[0].digest)):
        return
    present = since_reset(lines)
    if publications[-1] not in present:
        reset_at = next(line["at"] for line in reversed(lines) if line["what"] == "reset")
        raise Unservable(
            f"model {model!r}: version {version} was learned before the reset of "
            f"{datetime.fromtimestamp(reset_at, UTC):%F %T} UTC, and versions count from 0 since then: "
            f"{choose(present, version)}"
        )
    if kind and (why := misfit(loaded[1], kind)):
        others = [line for line in present if servable(store, model, line, kind)]
        raise Unservable(
            f"model {model!r}: version {version} was {why}: no node could serve it; {choose(others, version)}"
        )


def servable(store: SnapshotStore, model: str, line: Line, kind: Kind | None) -> bool:
    """Whether a publication can be read, and searched with in the catalogue as it is now, if that is known."""
    loaded = readable(store, model, line)
    return loaded is not None and not (kind and misfit(loaded[1], kind))


def readable(store: SnapshotStore, model: str, line: Line) -> tuple[Pointer, Snapshot] | None:
    """What a publication stored; None if its bytes are damaged, or gone, or of another publication now."""
    try:
        loaded = store.load(model, line["version"])
    except CorruptError:
        return None
    return loaded if loaded and loaded[0].digest == line["digest"] else None


def choose(lines: Sequence[Line], version: int) -> str:
    """A sentence that names the versions which can be chosen instead."""
    versions = sorted({line["version"] for line in lines} - {version})
    if not versions:
        return "no other version is kept that can be served"
    return f"choose one of {', '.join(map(str, versions))}"
