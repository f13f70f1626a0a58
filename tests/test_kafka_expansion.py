"""A compressed batch that stands for far more than it is stops its partition, and no memory is spent on it."""

from __future__ import annotations

import gzip
import tracemalloc

import lz4.frame
import pytest
import zstandard
from kafka.record.default_records import DefaultRecordBatch

from streams.kafka import expansion
from streams.kafka.batches import Unreadable
from streams.kafka.expansion import MAX_EXPANDED_BYTES, too_large
from tests.test_kafka_batches import FIRST, RECORDS, opened, sealed, written

GZIP, LZ4, ZSTD = DefaultRecordBatch.CODEC_GZIP, DefaultRecordBatch.CODEC_LZ4, DefaultRecordBatch.CODEC_ZSTD
COMPRESS = {GZIP: gzip.compress, LZ4: lz4.frame.compress, ZSTD: zstandard.ZstdCompressor().compress}
codecs = pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=["gzip", "lz4", "zstd"])


@codecs
def test_what_becomes_too_large_is_found_out_in_little_memory(codec: int) -> None:
    data = memoryview(COMPRESS[codec](bytes(MAX_EXPANDED_BYTES + 1)))
    tracemalloc.start()
    try:
        assert too_large(codec, data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 << 20


@codecs
def test_a_batch_of_as_many_bytes_as_may_be_is_read(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "HARMLESS", 1 << 40)
    data = memoryview(COMPRESS[codec](bytes(range(256)) * 20_000))
    assert not too_large(codec, data, limit=256 * 20_000)
    assert too_large(codec, data, limit=256 * 20_000 - 1)


def test_a_bomb_is_unreadable_and_says_where_to_go_on() -> None:
    data = written([], GZIP)
    bomb = sealed_batch(bytes(data[:RECORDS]), COMPRESS[GZIP](bytes(MAX_EXPANDED_BYTES + 1)))
    batch = opened(bomb)
    with pytest.raises(Unreadable, match="become more than 134,217,728 when they are decompressed") as refused:
        next(iter(batch))
    assert refused.value.then == FIRST + 2


def sealed_batch(header: bytes, records: bytes) -> bytes:
    """A batch with another content: its length, which is behind its first offset, and its checksum fit."""
    data = bytearray(header + records)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    return sealed(data)
