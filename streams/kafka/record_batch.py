"""The record batch that internals.py gives kafka-python in place of its own, with what that one lacks."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import kafka.errors
import numpy as np
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch
from kafka.record.util import decode_varint

from omdml.feedback import TooLarge
from omdml.streams.kafka.reading.batches import PlainRecord, Unreadable
from omdml.streams.kafka.reading.expansion import MAX_EXPANDED_BYTES, too_large

# Records that a kernel locates in one call: the places of a record take 300 bytes while they are numbers of Python.
AT_ONCE = 1000
# The record's length, its attributes, and how far its time and its offset are from those of the batch's first record.
FIELDS_BEFORE_KEY = 4


class RecordBatch(DefaultRecordBatch):  # type: ignore[misc]  # kafka-python has no types
    """A batch whose header names may be any bytes, because clients in C send such names. Its errors say where it ends.

    A batch that would become too large when it is decompressed is not damaged: its sender wrote it so. Each of its
    records is replaced by one that cannot be learned (:class:`~omdml.feedback.TooLarge`), and becomes a dead letter.
    """

    __slots__ = ("_too_large",)

    def __init__(self, buffer: bytes) -> None:
        super().__init__(buffer)
        self._too_large: TooLarge | None = None

    def validate_crc(self) -> bool:
        """True; raises Unreadable if the checksum says otherwise."""
        if not super().validate_crc():
            raise self._unreadable("its checksum does not fit")
        return True

    @property
    def _without_holes(self) -> bool:
        """Whether every offset of the batch has a record, as its header says; the header may be what is damaged."""
        return bool(0 < self.records_count == self.last_offset_delta + 1)

    def _unreadable(self, why: str) -> Unreadable:
        return Unreadable(why, self.next_offset if self._without_holes else self.base_offset + 1)

    def _maybe_uncompress(self) -> None:
        if self._decompressed or self._too_large is not None or not self.compression_type:
            return
        try:
            data = memoryview(self._buffer)[self._pos :]
            if too_large(self.compression_type, data):
                self._pass_over(data)
            else:
                super()._maybe_uncompress()
        except (kafka.errors.UnsupportedCodecError, Unreadable):
            raise
        except Exception as error:
            # Every codec raises errors of its own.
            raise self._unreadable(f"it cannot be decompressed: {error!r}") from error

    def _pass_over(self, data: memoryview) -> None:
        """Replace each record of this compressed batch by one that says that the batch is too large."""
        size = f"its {len(data):,} bytes become more than {MAX_EXPANDED_BYTES:,} when they are decompressed"
        if not self._without_holes:
            raise self._unreadable(size)
        self._too_large = TooLarge(
            f"in a batch that is too large to be read: {size} (sha256 {sha256(data).hexdigest()}); have its sender "
            "write smaller batches".encode()
        )

    def __iter__(self) -> Any:
        self._maybe_uncompress()
        return self if self._too_large is not None or self.is_control_batch else self._plain_records()

    def _plain_records(self) -> Iterator[Any]:
        """The records. Those without headers are found by a kernel: a backlog is mostly these.

        All other records, and what follows the last one, are left to ``next``, which begins where the record begins.
        """
        # numba takes half a second to load. Routers and commands start without it.
        from omdml.kernels.kafka_records import COLUMNS, records_without_headers

        # mypy would take assignments for new attributes, which a class with slots cannot have.
        batch: Any = self
        data = bytes(self._buffer)
        numbers = np.frombuffer(data, np.uint8)
        table = np.empty((AT_ONCE, COLUMNS), np.int64)
        first_offset, first_time, kind = self.base_offset, self.first_timestamp, self.timestamp_type
        # The broker's time holds for the whole batch; a sender's time is counted from the first record's.
        logged_at = self.max_timestamp if kind == self.LOG_APPEND_TIME else None
        begin, index = batch._pos, 0
        while True:
            rows = table[: max(0, self.records_count - index)]
            count, begin = records_without_headers(numbers, begin, rows)
            for length, time_delta, offset_delta, key, key_end, value, value_end in table[:count].tolist():
                yield PlainRecord(
                    length, first_offset + offset_delta,
                    first_time + time_delta if logged_at is None else logged_at, kind,
                    data[key:key_end] if key >= 0 else None, data[value:value_end] if value >= 0 else None,
                )  # fmt: skip
            index += count
            batch._pos, batch._next_record_index = begin, index
            if count == AT_ONCE:
                continue
            try:
                record = next(self)
            except StopIteration:
                return
            yield record
            begin, index = batch._pos, index + 1

    def __next__(self) -> Any:
        if self._too_large is not None:
            return self._next_too_large(self._too_large)
        try:
            return super().__next__()
        except kafka.errors.CorruptRecordError as error:
            if not isinstance(error.__context__, UnicodeDecodeError):
                raise self._unreadable(str(error)) from error
            try:
                _make_readable(self._buffer, self._pos)
            except (ValueError, IndexError):
                raise self._unreadable(str(error)) from error
            return next(self)

    def _next_too_large(self, value: TooLarge) -> DefaultRecord:
        if self._next_record_index >= self.records_count:
            raise StopIteration
        offset = self.base_offset + self._next_record_index
        self._next_record_index += 1
        return DefaultRecord(len(value), offset, self.max_timestamp, self.timestamp_type, None, value, [])


def _make_readable(buffer: bytearray, index: int) -> None:
    """Put question marks for what is not UTF-8 in the header names of the record that begins there."""
    for _ in range(FIELDS_BEFORE_KEY):
        _, index = decode_varint(buffer, index)
    for _ in ("key", "value"):
        index = _end_of_field(buffer, index)
    headers, index = decode_varint(buffer, index)
    for _ in range(headers):
        length, begin = decode_varint(buffer, index)
        name = buffer[begin : begin + length]
        # It stays as long as it was, because the record's length is checked.
        buffer[begin : begin + length] = name.decode(errors="ignore").encode().ljust(len(name), b"?")
        index = _end_of_field(buffer, begin + length)


def _end_of_field(buffer: bytearray, index: int) -> int:
    """The end of a field of bytes whose length stands here. A length of -1 means that there is no field."""
    length, begin = decode_varint(buffer, index)
    return int(begin + max(length, 0))
