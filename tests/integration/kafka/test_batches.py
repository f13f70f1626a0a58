"""Batches that other clients, and other disks, write: compressed, with odd header names, damaged."""

from functools import partial

import pytest
from kafka import KafkaProducer

from deploy.local import KafkaServer
from omdml.errors import FeedbackError, SourceRefused
from omdml.feedback import decode
from omdml.streams.kafka.newest import newest_records
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.reading.batches import Unreadable
from omdml.streams.kafka.reading.expansion import too_large
from omdml.streams.kafka.record_batch import RecordBatch
from omdml.streams.protocols.log import Partition
from tests.support.servers.kafka_batches import Name
from tests.support.servers.kafka_reader import NewTopic, Open, gap, numbered, write

CODECS = ("gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_what_producers_or_brokers_compress_is_read(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, codec: str
) -> None:
    topic = new_topic(configs={"compression.type": codec})
    write(kafka, topic, numbered(2000))
    assert open_reader(topic).read_to_the_end().values == numbered(2000)


def test_a_codec_that_is_not_installed_is_refused_with_what_to_install(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(configs={"compression.type": "zstd"})
    write(kafka, topic, numbered(10))
    monkeypatch.setattr("kafka.codec.zstd", None)
    with pytest.raises(SourceRefused, match=rf"{topic}.*zstd.*pip install 'kafka-python\[lz4,snappy,zstd\]'"):
        open_reader(topic).read_to_the_end()


def test_a_header_name_that_is_not_utf_8_keeps_nothing_from_being_read(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    # The producer waits, so that all records are in one batch.
    producer = KafkaProducer(bootstrap_servers=kafka.servers, linger_ms=100)
    for value in numbered(20):
        producer.send(topic, value, headers=[(Name(), b"1")] if value == b"7" else [])
    producer.close()
    reader = open_reader(topic).read_to_the_end()
    assert reader.values == numbered(20)
    assert reader.records[7].headers == (("name??", b"1"),)


def test_a_damaged_batch_stops_its_partition_alone_until_its_end_is_sought(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    # Given three batches, of which a disk damaged the second, and another partition
    topic = new_topic(partitions=2)
    for begin in (0, 10, 20):
        write(kafka, topic, numbered(10, begin))
    write(kafka, topic, numbered(10), partition=1)
    with (kafka.data / "logs" / f"{topic}-0" / f"{0:020}.log").open("r+b") as file:
        place = file.read().index(b"15")
        file.seek(place)
        file.write(b"??")

    # If I read, I expect an error that names partition and offset; then all else is read.
    reader = open_reader(topic)
    error = gap(reader)
    assert (error.partition, error.position, error.resume) == (Partition(reader.source.topic_id, 0), 10, 20)
    for words in (topic, "partition 0", "offset 10", "checksum", "go on at 20", "--accept-gap"):
        assert words in str(error)
    reader.read_until(lambda: len(reader.records) == 20)
    assert isinstance(error.partition, Partition)
    reader.source.seek(error.partition, 20)
    reader.read_to_the_end()
    assert [record.offset for record in reader.records if record.partition.number == 0] == [*range(10), *range(20, 30)]


def test_a_batch_that_was_damaged_on_the_way_is_fetched_once_more(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    for begin in (0, 10, 20):
        write(kafka, topic, numbered(10, begin))
    damaged, sound = [10], RecordBatch.validate_crc

    def once(batch: RecordBatch) -> bool:
        if batch.base_offset in damaged:
            damaged.remove(batch.base_offset)
            raise Unreadable("its checksum does not fit", 20)
        return sound(batch)

    monkeypatch.setattr(RecordBatch, "validate_crc", once)
    assert open_reader(topic).read_to_the_end().values == numbered(30)
    assert damaged == []


def test_a_batch_that_becomes_too_large_stops_nothing_and_is_refused_whole(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a batch of three events whose few bytes decompress to many, between others
    topic = new_topic()
    write(kafka, topic, numbered(5))
    producer = KafkaProducer(
        bootstrap_servers=kafka.servers, compression_type="gzip", linger_ms=1000, max_request_size=64 << 20
    )
    for value in (b"1", bytes(2 << 20), b"2"):
        producer.send(topic, value, partition=0)
    producer.close()
    write(kafka, topic, numbered(5, 5))
    monkeypatch.setattr("omdml.streams.kafka.record_batch.too_large", partial(too_large, limit=1 << 20))

    # I expect each offset to be read once, also if a reader begins within the batch, or looks at the newest only.
    refused = [offset for offset, value in enumerate(open_reader(topic).read_to_the_end().values) if unread(value)]
    # It depends on whether the client put the small ones into the same batch.
    assert refused in ([5, 6, 7], [6])
    behind = open_reader(topic, 6, group=f"others-of-{topic}").read_to_the_end()
    assert [record.offset for record in behind.records] == list(range(6, 13))
    assert unread(behind.values[0])
    newest = newest_records(KafkaOptions(servers=kafka.servers), topic, f"newest-of-{topic}", 100, 30.0)
    assert (newest.whole, [record.offset for record in newest.records if unread(record.value)]) == (True, refused)


def unread(value: bytes) -> bool:
    """Whether an event is refused because it is too large."""
    try:
        decode(value)
    except FeedbackError as error:
        return error.reason == "oversize"
    return False
