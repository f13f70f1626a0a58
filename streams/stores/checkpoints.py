"""Rules about checkpoints that all stores share: who owns a model, what replaces what, which are sound."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import NamedTuple

import structlog

from omdml.errors import CorruptError, FormatError, StoreError, StoreLost
from omdml.snapshot import Checkpoint, header_of
from omdml.streams.part_names import part_of, whole_of
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import ModelPosition, Written

log = structlog.get_logger(__name__)


class Saved(NamedTuple):
    """The position and digest of a checkpoint: partition, offset in it, and SHA-256 of the header, which seals it."""

    home: tuple[str, int]
    next: int
    digest: str

    @classmethod
    def of(cls, checkpoint: Checkpoint, data: bytes) -> Saved:
        """The position and digest of a checkpoint with these bytes."""
        return cls(checkpoint.home, checkpoint.next, hashlib.sha256(header_of(data)).hexdigest())

    @property
    def position(self) -> ModelPosition:
        """How far the model was taken."""
        return ModelPosition(Partition(*self.home), self.next)

    def replaces(self, stored: Saved | None, back: bool = False) -> Written:
        """Whether this checkpoint may replace the stored one. Positions on different partitions have no order."""
        if stored == self:
            return Written.ALREADY
        behind = stored is not None and stored.home == self.home and self.next < stored.next
        return Written.FENCED if behind and not back else Written.STORED


def placed_elsewhere(assumed: Placement | None, recorded: Placement | None) -> bool:
    """Whether the recorded placement differs from the one that a writer assumes; False if none is recorded."""
    return None not in (assumed, recorded) and assumed != recorded


def new_secret() -> bytes:
    """A secret as stores keep it: 64 hexadecimal digits."""
    return secrets.token_hex(32).encode()


def read_secret(data: bytes, where: str) -> bytes:
    """The 32 bytes of a secret that a store keeps; raises StoreError, which does not show what was found."""
    if not re.fullmatch(b"[0-9a-f]{64}", data):
        raise StoreError(
            f"{where}: holds {len(data)} bytes that are no secret, expected 64 hexadecimal digits. Restore it from a "
            "backup. If there is none, remove it: a new secret is made, and other events are held out from then on"
        )
    return bytes.fromhex(data.decode())


def next_epoch(owner: str | None) -> str:
    """The epoch after this one: ``0000000007-<nonce>``, in an order that strings have too.

    Counters repeat when a store is rolled back, nonces do not: epochs are compared whole.
    """
    counter = int(owner.partition("-")[0]) if owner else 0
    return f"{counter + 1:010d}-{secrets.token_hex(8)}"


def read_checkpoint(model: str, data: bytes, where: str, quiet: bool = False) -> Checkpoint | None:
    """The checkpoint in these bytes; None, and an error in the log, if they are damaged or another model's.

    Raises FormatError if another release wrote it: an older checkpoint must not take its place.
    """
    try:
        checkpoint = Checkpoint.from_bytes(data)
    except FormatError as error:
        raise FormatError(f"model {model!r} in {where}: {error}") from error
    except CorruptError as error:
        if not quiet:
            log.error("checkpoint_damaged", model=model, store=where, error=str(error), size=len(data))
        return None
    if checkpoint.model != model:
        log.error(
            "checkpoint_of_another_model",
            model=model,
            store=where,
            found=checkpoint.model,
            action="treated as damaged",
        )
        return None
    return checkpoint


def none_valid(model: str, where: str) -> CorruptError:
    """The error for a model whose checkpoints are all damaged."""
    return CorruptError(
        f"model {model!r}: none of the checkpoints in {where} can be read: all are damaged. {how_to_mend(model)}"
    )


def none_left(model: str, where: str) -> CorruptError:
    """The error for a model whose checkpoints have disappeared."""
    return CorruptError(
        f"model {model!r}: {where} has no checkpoint of it, although one was saved: something else removed it, perhaps "
        f"a server that evicts (see omdml doctor). {how_to_mend(model)}"
    )


def how_to_mend(model: str) -> str:
    """What to do about a model, or a part of one, none of whose checkpoints can be used."""
    nothing = f"If there is none, begin the model again from nothing: omdml models reset {whole_of(model)}"
    if part_of(model):
        # Parts are changed together, and cannot begin from a replay.
        return f"Restore the store from a backup. {nothing}"
    return (
        "If the log still holds what the model learned, learn it again: "
        f"omdml replay --model {model} --publish --replace. Otherwise restore the store from a backup. {nothing}"
    )


def store_lost(model: str, where: str) -> StoreLost:
    """The error for a write by an owner that the store has no record of."""
    return StoreLost(
        f"model {model!r}: {where} has lost the record of who owns it. If somebody deleted the model, nothing else is "
        "lost: start this again. If the store was emptied, restore a backup. Or learn again: omdml topics rewind. If "
        "the log is in files: take an empty store and another log.group"
    )
