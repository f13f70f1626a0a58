"""A Kafka topic as a place where events go, against a real broker."""

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError

from deploy.local import KafkaServer
from omdml.errors import FeedbackError, SourceError
from omdml.streams.kafka import topic as topics
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.letters import read_letters
from omdml.streams.partitioners import PARTITIONERS
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.configuration.config import KafkaLog
from omdml.workers.wiring.dead_letters import open_letters
from tests.support.servers.kafka_reader import administer
from tests.support.waiting import until

NewTopic = Callable[..., str]
Open = Callable[..., KafkaSink]


@pytest.fixture
def open_sink(kafka: KafkaServer) -> Iterator[Open]:
    """Opens a sink; all are closed after the test."""
    sinks: list[KafkaSink] = []

    def open_sink(topic: str, **settings: Any) -> KafkaSink:
        sinks.append(KafkaSink(KafkaOptions(servers=kafka.servers), topic=topic, **settings))
        return sinks[-1]

    yield open_sink
    kafka.start()
    for sink in sinks:
        sink.close()


def read(kafka: KafkaServer, topic: str, partitions: int = 1) -> list[Any]:
    """All records of a topic, once its end is reached."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest")
    places = [TopicPartition(topic, number) for number in range(partitions)]
    consumer.assign(places)
    count = sum(consumer.end_offsets(places).values())
    records: list[Any] = []

    def all_read() -> bool:
        for batch in consumer.poll(timeout_ms=100).values():
            records.extend(batch)
        return len(records) >= int(count)

    until(all_read)
    consumer.close()
    return records


def test_what_was_flushed_is_in_the_log_in_order_with_key_and_headers(
    kafka: KafkaServer, new_topic: NewTopic, open_sink: Open
) -> None:
    topic = new_topic()
    sink = open_sink(topic)
    for number in range(1000):
        sink.send(str(number).encode(), "shop", [("reason", b"unknown_item")])
    sink.flush()
    records = read(kafka, topic)
    assert [record.value for record in records] == [str(number).encode() for number in range(1000)]
    assert {record.key for record in records} == {b"shop"}
    assert records[0].headers == [("reason", b"unknown_item")]


def test_a_key_goes_to_the_partition_that_other_clients_choose(
    kafka: KafkaServer, new_topic: NewTopic, open_sink: Open
) -> None:
    topic, keys = new_topic(partitions=5), [f"model-{number}" for number in range(40)]
    other = KafkaProducer(bootstrap_servers=kafka.servers)
    sink = open_sink(topic)
    for key in keys:
        other.send(topic, b"theirs", key.encode())
        sink.send(b"ours", key)
    other.close()
    sink.flush()
    chosen = {
        value: {record.key: record.partition for record in read(kafka, topic, 5) if record.value == value}
        for value in (b"theirs", b"ours")
    }
    assert len(chosen[b"ours"]) == 40
    assert chosen[b"ours"] == chosen[b"theirs"]


def test_an_event_without_a_key_is_written_too(kafka: KafkaServer, new_topic: NewTopic, open_sink: Open) -> None:
    topic = new_topic(partitions=3)
    sink = open_sink(topic)
    sink.send(b"event")
    sink.close()
    (record,) = read(kafka, topic, 3)
    assert (record.key, record.value) == (None, b"event")


def test_a_small_buffer_loses_nothing_of_many_events(kafka: KafkaServer, new_topic: NewTopic, open_sink: Open) -> None:
    topic = new_topic()
    sink = open_sink(topic, buffer_bytes=20_000)
    for number in range(500):
        sink.send(str(number).encode(), "shop")
    sink.flush()
    assert len(read(kafka, topic)) == 500


def test_a_letter_that_its_topic_would_not_take_is_cut(kafka: KafkaServer, new_topic: NewTopic) -> None:
    small = new_topic(configs={"max.message.bytes": "200000"})
    letters = open_letters(KafkaLog(servers=kafka.servers, letters=small))
    # A record that the log takes becomes 240 kB in base64.
    rubbish = b"\xff" * 180_000
    letters.add(Record(Partition("t", 0), 7, rubbish), FeedbackError("no event"))
    letters.flush()
    letters.close()
    (read_letter,) = read_letters(
        Record(Partition("t", 0), record.offset, record.value) for record in read(kafka, small)
    )
    assert (read_letter.offset, read_letter.digest) == (7, sha256(rubbish).hexdigest())


def test_an_event_that_no_request_can_hold_is_refused(new_topic: NewTopic, open_sink: Open) -> None:
    with pytest.raises(SourceError, match="larger than"):
        open_sink(new_topic()).send(bytes(2 << 20), "shop")


def test_an_outage_fills_the_buffer_and_flush_names_the_first_event_that_failed(
    kafka: KafkaServer, new_topic: NewTopic, open_sink: Open
) -> None:
    topic = new_topic()
    sink = open_sink(topic, buffer_bytes=10_000, block_s=0.1, delivery_s=1.0)
    until(lambda: sent(sink, b"before"))
    kafka.kill()

    def send_until_full() -> None:
        for _ in range(100):
            sink.send(b"during", "shop")

    with pytest.raises(SourceError, match="buffer of 10000 bytes is full"):
        send_until_full()
    with pytest.raises(SourceError, match=r"for topic .* could not be written\. The first: 6 bytes with key 'shop'"):
        sink.flush()

    # If the broker is back, I expect the sink to go on.
    kafka.start()
    until(lambda: sent(sink, b"after"))
    # One that was given up for late may be there twice.
    assert list(dict.fromkeys(record.value for record in read(kafka, topic))) == [b"before", b"after"]


def sent(sink: KafkaSink, value: bytes) -> bool:
    try:
        sink.send(value, "shop")
        sink.flush()
    except SourceError:
        return False
    return True


def test_a_flush_that_runs_out_of_time_says_how_many_events_wait(
    kafka: KafkaServer, new_topic: NewTopic, open_sink: Open
) -> None:
    sink = open_sink(new_topic())
    kafka.pause()
    sink.send(b"event", "shop")
    with pytest.raises(SourceError, match=r"No acknowledgement of 1 event for"):
        sink.flush(timeout_s=0.1)
    kafka.resume()
    sink.flush()


def test_a_broker_that_froze_for_long_is_written_to_again_once_it_goes_on(
    kafka: KafkaServer, new_topic: NewTopic, open_sink: Open
) -> None:
    # Given a sink with events on their way when the broker freezes, for longer than these may take
    topic = new_topic()
    sink = open_sink(topic, delivery_s=2.0)
    until(lambda: sent(sink, b"before"))
    kafka.pause()
    for _ in range(5):
        sink.send(b"during", "shop")
    with pytest.raises(SourceError, match="could not be written"):
        sink.flush()

    # If it goes on, I expect what is sent then to arrive, by the same sink.
    kafka.resume()
    until(lambda: sent(sink, b"after"))
    assert read(kafka, topic)[-1].value == b"after"


def test_a_dropped_producer_leaves_no_thread_that_could_write_later(
    kafka: KafkaServer, new_topic: NewTopic, open_sink: Open
) -> None:
    sink = open_sink(new_topic())
    producer = sink._producer
    kafka.pause()
    sink.send(b"given up", "shop")
    sink._drop_producer()
    assert not producer._sender.is_alive()


def test_a_topic_that_a_broker_hears_of_a_moment_later_is_found(
    kafka: KafkaServer, open_sink: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a broker that was asked for a topic before it knows it, as one of a cluster may be after another made it
    name, asked = f"late-{uuid.uuid4().hex}", threading.Event()
    describe = topics.describe

    def asking(admin: Any, name_asked: str) -> topics.Topic | None:
        description = describe(admin, name_asked)
        asked.set()
        return description

    monkeypatch.setattr(topics, "describe", asking)
    monkeypatch.setattr(topics, "HEARD_WITHIN_S", 120.0)
    pool = ThreadPoolExecutor(1)
    opened = pool.submit(open_sink, name)
    assert asked.wait(120)

    # If it hears of the topic, I expect the sink to write there.
    kafka.create_topic(name)
    sink = opened.result(120)
    sink.send(b"click", "shop")
    sink.flush()
    pool.shutdown()
    assert [record.value for record in read(kafka, name)] == [b"click"]


def test_a_missing_topic_is_refused(open_sink: Open) -> None:
    with pytest.raises(SourceError, match="has no topic 'nobody-made-this'"):
        open_sink("nobody-made-this")


@pytest.mark.parametrize("forgotten", [False, True], ids=["at once", "once the client has forgotten it"])
def test_a_topic_that_was_deleted_is_named_until_it_is_there_again(
    kafka: KafkaServer, new_topic: NewTopic, open_sink: Open, forgotten: bool
) -> None:
    topic = new_topic()
    sink = open_sink(topic, delivery_s=1.0)
    until(lambda: sent(sink, b"before"))
    kafka.delete_topic(topic)
    outcomes = []

    def is_known() -> bool:
        with contextlib.suppress(KafkaTimeoutError):
            return bool(sink._producer.partitions_for(topic))
        return False

    if forgotten:
        until(lambda: not is_known(), 60)

    def named() -> bool:
        try:
            sink.send(b"after", "shop")
            sink.flush()
        except SourceError as error:
            outcomes.append(str(error))
        return bool(outcomes) and f"has no topic {topic!r}" in outcomes[-1]

    until(named)
    assert f"has no topic {topic!r}" in outcomes[-1]
    kafka.create_topic(topic)
    until(lambda: sent(sink, b"again"))


def test_a_key_moves_to_another_partition_when_the_topic_grows(
    kafka: KafkaServer, new_topic: NewTopic, open_sink: Open
) -> None:
    topic = new_topic()
    sink, key = open_sink(topic), "model-b"
    number = PARTITIONERS["murmur2"](key.encode(), 3)
    assert number > 0
    for _ in range(3):
        sink.send(b"before", key)
    sink.flush()
    administer(kafka, lambda admin: admin.create_partitions({topic: 3}))
    until(lambda: len(sink._producer.partitions_for(topic)) == 3, 60)
    for _ in range(3):
        sink.send(b"after", key)
    sink.flush()
    records = read(kafka, topic, 3)
    assert (
        sorted((record.partition, record.value) for record in records)
        == [(0, b"before")] * 3 + [(number, b"after")] * 3
    )
