"""Records of Kafka, as a batch has them and as poll hands them out, and the error of a damaged batch."""

from __future__ import annotations

from typing import ClassVar

import kafka.errors
import msgspec


class Unreadable(kafka.errors.CorruptRecordError):  # type: ignore[misc]  # kafka-python has no types
    """A damaged batch. ``next_offset`` lies behind it, or behind its first record if its end is unknown."""

    def __init__(self, why: str, next_offset: int) -> None:
        super().__init__(why)
        self.why, self.next_offset = why, next_offset


class PlainRecord(msgspec.Struct, gc=False):
    """A record without headers, with the members that the client uses. Its batch's checksum was verified before."""

    size_in_bytes: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: ClassVar[list[tuple[str, bytes]]] = []
    checksum: ClassVar[None] = None

    def validate_crc(self) -> bool:
        """True: format 2 has a checksum of the batch only."""
        return True


class PolledRecord(msgspec.Struct, gc=False):
    """A record as poll hands it out, with the members of the client's own, in their order."""

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int
