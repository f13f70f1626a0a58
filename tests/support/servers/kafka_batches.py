"""Batches of records as a broker holds them, sound and damaged."""

import struct

from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from omdml.streams.kafka.record_batch import RecordBatch

# The offset of the batch's first record.
FIRST = 500
# This is long enough to be compressed.
VALUE = b"\xff\xfename" * 20
# The records of a batch begin here.
RECORDS = DefaultRecordBatchBuilder.HEADER_STRUCT.size
ATTRIBUTES, CHECKSUM = DefaultRecordBatchBuilder.ATTRIBUTES_OFFSET, DefaultRecordBatchBuilder.CRC_OFFSET


class Name(str):
    """A header's name in bytes that are no UTF-8, as clients in C send it."""

    def encode(self, *_: str) -> bytes:
        return b"\xff\xfename"


def written(headers: list[tuple[str, bytes]], compression: int = 0) -> bytearray:
    """A batch of two records as a broker holds it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=10_000,
    )
    for number in range(2):
        builder.append(number, 1000, b"shop", VALUE, headers)
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, FIRST)
    return data


def sealed(data: bytearray) -> bytes:
    """The batch with the checksum that fits."""
    struct.pack_into(">I", data, CHECKSUM, crc32c(bytes(data[ATTRIBUTES:])))
    return bytes(data)


def opened(data: bytes) -> RecordBatch:
    """The batch that a client makes of these bytes."""
    batch = MemoryRecords(data).next_batch()
    assert isinstance(batch, RecordBatch)
    return batch
