"""What all stores do and say alike: which checkpoint replaces which, which bytes are sound, what is wrong if not."""

from __future__ import annotations

import hashlib
import secrets
from typing import NamedTuple

import structlog

from omdml.errors import CorruptError, StoreError, StoreLost
from omdml.snapshot import Checkpoint, Snapshot
from streams.protocols import Pointer, Written

log = structlog.get_logger(__name__)


class Saved(NamedTuple):
    """What orders checkpoints: partition, offset in it, and sha256 of the bytes."""

    home: tuple[str, int]
    next: int
    digest: str

    @classmethod
    def of(cls, checkpoint: Checkpoint, data: bytes) -> Saved:
        """That of a checkpoint and its bytes."""
        return cls(checkpoint.home, checkpoint.next, hashlib.sha256(data).hexdigest())

    def replaces(self, kept: Saved | None) -> Written:
        """Whether this one may take the place of the kept one; another home is neither ahead nor behind."""
        if kept == self:
            return Written.ALREADY
        behind = kept is not None and kept.home == self.home and self.next < kept.next
        return Written.FENCED if behind else Written.STORED


def next_epoch(owner: str | None) -> str:
    """The epoch after this one: ``0000000007-<nonce>``, in an order that strings have too.

    Counters repeat when a store is rolled back, nonces do not: epochs are compared whole.
    """
    counter = int(owner.partition("-")[0]) if owner else 0
    return f"{counter + 1:010d}-{secrets.token_hex(8)}"


def read_checkpoint(model: str, data: bytes, where: str) -> Checkpoint | None:
    """The checkpoint in these bytes; None, and an error in the log, where they are damaged or another model's."""
    try:
        checkpoint = Checkpoint.from_bytes(data)
    except CorruptError as error:
        log.error("checkpoint_damaged", model=model, store=where, error=str(error), size=len(data))
        return None
    if checkpoint.model != model:
        log.error("checkpoint_of_another_model", model=model, store=where, found=checkpoint.model)
        return None
    return checkpoint


def none_valid(model: str, where: str) -> CorruptError:
    """There are checkpoints, and each is damaged."""
    return CorruptError(
        f"model {model!r}: no checkpoint in {where} can be read, both kept ones are damaged: restore the store from a "
        f"backup, or learn the model anew (`omdml models reset {model}`)"
    )


def store_lost(model: str, where: str) -> StoreLost:
    """An owner comes back and nobody knows it."""
    return StoreLost(
        f"model {model!r}: {where} knows no owner of it, although one was named when it was claimed: the store was "
        "emptied, or the model deleted: restore a backup, or rebuild from the log (`omdml topics rewind`)"
    )


def not_kept(model: str, version: int | None, kept: list[int], where: str) -> StoreError:
    """Nobody can go to this version."""
    asked = "no snapshot is kept" if version is None else f"no snapshot of version {version} is kept"
    return StoreError(
        f"model {model!r}: {asked} in {where}; versions kept: {', '.join(map(str, sorted(kept))) or 'none'}: choose "
        "one of these (`omdml history` lists them)"
    )


def bytes_gone(model: str, pointer: Pointer, where: str) -> StoreError:
    """The pointer names a snapshot that is not there."""
    return StoreError(
        f"model {model!r}: {where} points at version {pointer.version} ({pointer.digest[:12]}), whose bytes are gone: "
        "something else removed them (eviction, cleaning up): go back to another version (`omdml rollback`)"
    )


def read_snapshot(model: str, pointer: Pointer, data: bytes, where: str) -> Snapshot:
    """The snapshot in these bytes; raises CorruptError where they are damaged or another one's."""
    try:
        snapshot = Snapshot.from_bytes(data)
        if (snapshot.model, snapshot.version) != (model, pointer.version):
            raise CorruptError(f"snapshot of model {snapshot.model!r}, version {snapshot.version}, in its place")
    except CorruptError as error:
        raise CorruptError(
            f"model {model!r}: version {pointer.version} in {where}: {error}: go back to another version "
            "(`omdml rollback`)"
        ) from error
    return snapshot
