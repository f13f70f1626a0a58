"""What kafka-python reads too strictly, or gives up without a word on where to go on."""

from __future__ import annotations

from typing import Any

import kafka.errors
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import decode_varint

from streams.kafka import internals
from streams.kafka.expansion import MAX_EXPANDED_BYTES, too_large

FIELDS_BEFORE_KEY = 4  # the record's length, its attributes, how much later and how far behind the batch's first it is


class Unreadable(kafka.errors.CorruptRecordError):  # type: ignore[misc]  # kafka-python has no types
    """A batch that is damaged; ``then`` is the offset behind it, or behind its first record where nobody knows."""

    def __init__(self, why: str, then: int) -> None:
        super().__init__(why)
        self.why, self.then = why, then


class Batch(DefaultRecordBatch):  # type: ignore[misc]  # kafka-python has no types
    """A batch with header names in any bytes, which clients in C send, and with errors that say where it ends."""

    __slots__ = ()

    def validate_crc(self) -> bool:
        """True; raises Unreadable where the checksum says otherwise."""
        if not super().validate_crc():
            raise self._unreadable("its checksum does not fit")
        return True

    def _unreadable(self, why: str) -> Unreadable:
        """The error for this batch; its header may be what is damaged."""
        likely = 0 < self.records_count == self.last_offset_delta + 1
        return Unreadable(why, self.next_offset if likely else self.base_offset + 1)

    def _maybe_uncompress(self) -> None:
        try:
            data = memoryview(self._buffer)[self._pos :]
            if not self._decompressed and self.compression_type and too_large(self.compression_type, data):
                raise self._unreadable(
                    f"its {len(data):,} bytes become more than {MAX_EXPANDED_BYTES:,} when they are decompressed"
                )
            super()._maybe_uncompress()
        except (kafka.errors.UnsupportedCodecError, Unreadable):
            raise
        except Exception as error:  # every codec has its own
            raise self._unreadable(f"it cannot be decompressed: {error!r}") from error

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except kafka.errors.CorruptRecordError as error:
            if not isinstance(error.__context__, UnicodeDecodeError):
                raise self._unreadable(str(error)) from error
            _make_readable(self._buffer, self._pos)
            return next(self)


internals.make_batches_of(Batch)


def _make_readable(buffer: bytearray, at: int) -> None:
    """Put question marks for what is not UTF-8 in the header names of the record that begins there."""
    for _ in range(FIELDS_BEFORE_KEY):
        _, at = decode_varint(buffer, at)
    for _ in ("key", "value"):
        at = _behind(buffer, at)
    headers, at = decode_varint(buffer, at)
    for _ in range(headers):
        length, begin = decode_varint(buffer, at)
        name = buffer[begin : begin + length]
        kept = name.decode(errors="ignore").encode().ljust(len(name), b"?")  # as long: the record's length is checked
        buffer[begin : begin + length] = kept
        at = _behind(buffer, begin + length)


def _behind(buffer: bytearray, at: int) -> int:
    """Where the bytes end whose length stands here; -1 is that of none."""
    length, begin = decode_varint(buffer, at)
    return int(begin + max(length, 0))
