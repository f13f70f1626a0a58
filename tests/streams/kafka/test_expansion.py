"""A compressed batch that expands to far more bytes: its events are refused, and no memory is spent on it."""

from __future__ import annotations

import gzip
import tracemalloc
from functools import cache

import lz4.frame
import pytest
import zstandard
from kafka.record.default_records import DefaultRecordBatch

from omdml.errors import FeedbackError
from omdml.feedback import decode
from omdml.streams.kafka.reading import expansion
from omdml.streams.kafka.reading.batches import Unreadable
from omdml.streams.kafka.reading.consumer import as_records
from omdml.streams.kafka.reading.expansion import MAX_EXPANDED_BYTES, too_large
from omdml.streams.kafka.routing.router import Targets, copy_of
from omdml.streams.letters import Letter
from omdml.streams.protocols.log import Partition
from omdml.workers.router.model_key import key_of
from tests.support.servers.kafka_batches import FIRST, RECORDS, opened, sealed, written

GZIP, LZ4, ZSTD = DefaultRecordBatch.CODEC_GZIP, DefaultRecordBatch.CODEC_LZ4, DefaultRecordBatch.CODEC_ZSTD
COMPRESS = {GZIP: gzip.compress, LZ4: lz4.frame.compress, ZSTD: zstandard.ZstdCompressor().compress}
PLACE = Partition("t", 0)
codecs = pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=["gzip", "lz4", "zstd"])


@cache
def too_many_zeros(codec: int) -> bytes:
    """One zero more than may be, compressed."""
    return COMPRESS[codec](bytes(MAX_EXPANDED_BYTES + 1))


@codecs
def test_what_becomes_too_large_is_found_out_in_little_memory(codec: int) -> None:
    data = memoryview(too_many_zeros(codec))
    tracemalloc.start()
    try:
        assert too_large(codec, data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 << 20


@codecs
def test_a_batch_of_as_many_bytes_as_may_be_is_read(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "MOST_PER_BYTE", 1 << 40)
    data = memoryview(COMPRESS[codec](bytes(range(256)) * 20_000))
    assert not too_large(codec, data, limit=256 * 20_000)
    assert too_large(codec, data, limit=256 * 20_000 - 1)


def test_members_of_gzip_behind_the_first_count() -> None:
    data = gzip.compress(b"small") + too_many_zeros(GZIP)
    assert too_large(GZIP, memoryview(data))


@pytest.fixture(scope="module", params=[GZIP, LZ4, ZSTD], ids=["gzip", "lz4", "zstd"])
def bomb(request: pytest.FixtureRequest) -> bytes:
    """A batch of two records, far too large."""
    codec = request.param
    return sealed_batch(bytes(written([], codec)[:RECORDS]), too_many_zeros(codec))


def test_each_record_of_a_batch_that_is_too_large_is_refused_as_oversize(bomb: bytes) -> None:
    batch = opened(bomb)
    assert batch.validate_crc()
    records = as_records(PLACE, batch)
    assert [(record.offset, record.key, record.timestamp) for record in records] == [(500, None, 1.0), (501, None, 1.0)]
    for record in records:
        with pytest.raises(FeedbackError, match="become more than 134,217,728 when they are decompressed") as refused:
            decode(record.value)
        assert refused.value.reason == "oversize"
        letter = Letter.of(record, refused.value)
        assert (letter.reason, letter.digest is not None, len(letter.encode()) < 2000) == ("oversize", True, True)


def test_a_router_makes_a_letter_of_what_is_too_large_to_be_read(bomb: bytes) -> None:
    for record in as_records(PLACE, opened(bomb)):
        key = key_of(record)
        copy = copy_of(record, key, Targets("feedback", "feedback.letters", 1 << 20, 1 << 20))
        assert (key, copy.fate, copy.topic) == (None, "letter", "feedback.letters")
        letter = Letter.decode(copy.value)
        assert (letter.position, letter.reason) == ((PLACE, record.offset), "oversize")


def test_an_event_that_looks_like_the_oversize_mark_is_like_any_other(bomb: bytes) -> None:
    (first, _) = as_records(PLACE, opened(bomb))
    with pytest.raises(FeedbackError) as refused:
        decode(bytes(first.value))
    assert refused.value.reason == "not_json"


def test_a_batch_that_is_too_large_and_has_holes_is_unreadable(bomb: bytes) -> None:
    header = bytearray(bomb[:RECORDS])
    header[RECORDS - 4 :] = (3).to_bytes(4, "big")
    with pytest.raises(Unreadable, match="become more than") as refused:
        next(iter(opened(sealed_batch(bytes(header), bomb[RECORDS:]))))
    assert refused.value.next_offset == FIRST + 1


def sealed_batch(header: bytes, records: bytes) -> bytes:
    """A batch with another content: its length, which is behind its first offset, and its checksum fit."""
    data = bytearray(header + records)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    return sealed(data)
