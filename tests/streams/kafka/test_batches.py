"""What a client reads in the bytes that a broker hands out, and where a damaged batch ends."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from omdml.streams.kafka.reading import gap
from omdml.streams.kafka.reading.batches import Unreadable
from omdml.streams.kafka.record_batch import AT_ONCE, RecordBatch
from omdml.streams.protocols.log import Partition
from tests.support.deep import examples
from tests.support.servers.kafka_batches import ATTRIBUTES, FIRST, RECORDS, VALUE, Name, opened, sealed, written


def test_a_header_name_that_is_not_utf_8_is_kept_as_far_as_it_can_be_read() -> None:
    batch = opened(sealed(written([("type", b"click"), (Name(), b"\xff")])))
    assert batch.validate_crc()
    assert [(record.offset, record.key, record.value, record.headers) for record in batch] == [
        (offset, b"shop", VALUE, [("type", b"click"), ("name??", b"\xff")]) for offset in (500, 501)
    ]


OF_A_RECORD = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "size_in_bytes", "checksum")
Written = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]
texts = st.binary(max_size=300)
records = st.tuples(
    st.integers(0, 1 << 40), st.none() | texts, st.none() | texts, st.lists(st.tuples(st.text(), texts), max_size=2)
)


def read(kind: type[DefaultRecordBatch], data: bytes) -> tuple[list[tuple[object, ...]], bool]:
    """The records before the first error, and whether there was one."""
    values = []
    try:
        for record in kind(data):
            values.append(tuple(getattr(record, name) for name in OF_A_RECORD))
            assert record.validate_crc()
    except CorruptRecordError:
        return values, True
    return values, False


@settings(max_examples=examples(200))
@given(st.lists(records, min_size=1, max_size=8), st.sampled_from([0, 1]), st.data())
def test_records_are_those_of_the_client_however_they_are_damaged(
    written: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]],
    compression: int,
    draw: st.DataObject,
) -> None:
    builder = DefaultRecordBatchBuilder(2, compression, False, -1, -1, -1, 100_000)
    for number, (time_ms, key, value, headers) in enumerate(written):
        builder.append(number, time_ms, key, value, headers)
    data = bytearray(builder.build())
    assert read(RecordBatch, bytes(data)) == read(DefaultRecordBatch, bytes(data))
    if compression == 0:
        data[draw.draw(st.integers(RECORDS, len(data) - 1))] = draw.draw(st.integers(0, 255))
        # Where the client's own class fails, a name of a header may be what is readable here.
        theirs, failed = read(DefaultRecordBatch, bytes(data))
        ours, _ = read(RecordBatch, bytes(data))
        assert ours[: len(theirs)] == theirs
        assert failed or ours == theirs


def test_a_checksum_that_does_not_fit_says_where_the_batch_ends() -> None:
    data = written([])
    data[-1] ^= 1
    with pytest.raises(Unreadable, match="checksum") as caught:
        opened(bytes(data)).validate_crc()
    assert caught.value.next_offset == FIRST + 2


@pytest.mark.parametrize("delta", [1 << 8, -(1 << 31)])
def test_if_the_header_is_damaged_only_what_is_sure_to_be_is_given_up(delta: int) -> None:
    data = written([])
    struct.pack_into(">i", data, ATTRIBUTES + 2, delta)
    with pytest.raises(Unreadable, match="checksum") as caught:
        opened(bytes(data)).validate_crc()
    assert caught.value.next_offset == FIRST + 1
    # If the position is further within the batch, I expect the next one; never one that the log does not reach.
    for position, resume in ((FIRST, FIRST + 1), (FIRST + 1, FIRST + 2), (FIRST + 5, FIRST + 5)):
        refusal = gap.unreadable("feedback", Partition("t", 0), position, (0, FIRST + 5), caught.value)
        assert (refusal.resume, refusal.cut) == (resume, False)


@pytest.mark.parametrize("damage", [{"at": RECORDS, "to": 2}, {"at": -1, "to": 80}])
def test_records_that_are_none_say_where_the_batch_ends(damage: dict[str, int]) -> None:
    data = written([])
    data[damage["at"]] = damage["to"]
    with pytest.raises(Unreadable) as caught:
        list(opened(sealed(data)))
    assert caught.value.next_offset == FIRST + 2


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
def test_what_cannot_be_decompressed_says_where_the_batch_ends(codec: int) -> None:
    data = written([], codec)
    data[RECORDS:] = b"?" * (len(data) - RECORDS)
    with pytest.raises(Unreadable, match="decompressed") as caught:
        list(opened(sealed(data)))
    assert caught.value.next_offset == FIRST + 2


def test_a_codec_that_is_not_installed_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sealed(written([], 4))
    monkeypatch.setattr("kafka.codec.zstd", None)
    with pytest.raises(UnsupportedCodecError, match="zstd"):
        list(opened(data))


@pytest.mark.parametrize("count", [AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 2 * AT_ONCE])
def test_a_batch_of_many_records_is_read_to_its_end(count: int) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1_000_000)
    for number in range(count):
        builder.append(
            number, 1000 + number, b"shop", b"%d" % number, [("kind", b"click")] if number % 500 == 7 else []
        )
    data = bytes(builder.build())
    assert read(RecordBatch, data) == read(DefaultRecordBatch, data)
    assert len(read(RecordBatch, data)[0]) == count
