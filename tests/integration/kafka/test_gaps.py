"""Kafka topics that are not, or no longer, what a reader needs; against a real broker."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from kafka import KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import LogTruncationError, NoError
from kafka.structs import OffsetAndMetadata

from deploy.local import KafkaServer
from omdml.errors import GapError, SourceError
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.reading import topic_watch
from omdml.streams.kafka.reading.source import KafkaSource
from omdml.streams.kafka.topic import create_topic
from omdml.streams.protocols.log import CommitResult, Partition
from tests.support.servers.kafka_reader import NewTopic, Open, administer, cut, gap, numbered, write
from tests.support.waiting import until


def recreate(kafka: KafkaServer, topic: str, meanwhile: Callable[[], object]) -> None:
    """Delete a topic and create it again under its name, with more events than before."""
    kafka.delete_topic(topic)
    until(lambda: (meanwhile(), topic not in administer(kafka, lambda admin: admin.list_topics()))[1])
    kafka.create_topic(topic)
    write(kafka, topic, numbered(100, start=1000))


def raising(error: Exception) -> Callable[..., object]:
    """A function that raises this error, whatever it is called with."""

    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


def test_a_position_that_retention_passed_stops_only_its_partition(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic(partitions=2)
    write(kafka, topic, numbered(100), partition=0)
    write(kafka, topic, numbered(100), partition=1)
    administer(kafka, lambda admin: admin.delete_records({TopicPartition(topic, 0): 50}))
    reader = open_reader(topic, 10)
    error = gap(reader)
    assert (error.partition, error.position, error.available) == (Partition(reader.source.topic_id, 0), 10, (50, 100))
    for words in (topic, "partition 0", "offset 10", "50 up to 100", "--accept-gap"):
        assert words in str(error)

    # If I go on polling, I expect the other partition's records; if I accept the gap, the rest of this one's.
    reader.read_until(lambda: len(reader.records) == 90)
    assert {record.partition.number for record in reader.records} == {1}
    assert isinstance(error.partition, Partition)
    assert reader.source.begin(error.partition) == 50
    reader.source.seek(error.partition, 50)
    reader.read_to_the_end()
    assert [record.offset for record in reader.records if record.partition.number == 0] == list(range(50, 100))


def test_a_position_past_the_end_of_the_log_is_a_gap(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    write(kafka, topic, numbered(3))
    assert gap(open_reader(topic, 1000)).available == (0, 3)


def test_gaps_in_several_partitions_are_reported_one_after_the_other(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(partitions=2)
    for number in (0, 1):
        write(kafka, topic, numbered(20), partition=number)
    reader = open_reader(topic)
    reader.read_until(lambda: len(reader.records) == 40)
    cuts = {TopicPartition(topic, 0): OffsetAndMetadata(15, "", -1), TopicPartition(topic, 1): None}
    with monkeypatch.context() as truncated:
        truncated.setattr(reader.source._consumer, "poll", raising(LogTruncationError(cuts)))
        first, second = gap(reader), gap(reader)
    assert [(error.partition.number, error.resume) for error in (first, second)] == [(0, 15), (1, 20)]
    assert "was cut at offset 15: its new leader lacks the newest events" in str(first)
    for error in (first, second):
        reader.source.seek(error.partition, error.resume)
    assert [record.offset for record in reader.read_to_the_end().records[40:]] == [15, 16, 17, 18, 19]


def test_a_cut_that_was_written_on_stops_all_until_one_process_accepts_it(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    # Given a log whose end was read and committed, then lost, and others in its place
    topic = new_topic()
    for begin in (0, 10, 20):
        write(kafka, topic, numbered(10, begin))
    first = open_reader(topic).read_to_the_end()
    assert first.commit() is CommitResult.RECORDED
    first.source.close()
    cut(kafka, topic, 20)
    write(kafka, topic, numbered(30, 100))
    # I expect one process after the other to stop there
    for _ in range(2):
        later = open_reader(topic)
        error = gap(later)
        assert (error.position, error.resume, error.cut) == (30, 20, True)
        assert "was cut at offset 20" in str(error)
        later.source.close()
    # If one accepts it, I expect it to read what was written since, and its successors to meet no gap.
    later = open_reader(topic)
    later.source.seek(gap(later).partition, 20)
    assert later.read_to_the_end().values == numbered(30, 100)
    assert later.commit() is CommitResult.RECORDED
    later.source.close()
    write(kafka, topic, numbered(5))
    assert open_reader(topic).read_to_the_end().values == numbered(5)


def test_an_aborted_transaction_under_a_later_leader_is_no_cut(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    write(kafka, topic, numbered(10))
    first = open_reader(topic).read_to_the_end()
    kafka.kill()
    kafka.start()
    transaction(kafka, topic).abort_transaction()
    first.read_until(lambda: [position for position, _ in first.source.progress().values()] == [12])
    first.read_until(lambda: first.commit() is CommitResult.RECORDED)
    first.source.close()
    later = open_reader(topic)
    later.read_until(lambda: later.owned)
    write(kafka, topic, numbered(5))
    assert later.read_until(lambda: later.values).values == numbered(5)


@pytest.mark.parametrize("before", ["a seek", "an open transaction"])
def test_a_cut_is_noticed_even_if_the_client_forgot_its_leaders_epoch(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, before: str
) -> None:
    topic = new_topic()
    for begin in (0, 5):
        write(kafka, topic, numbered(5, begin))
    reader = open_reader(topic).read_to_the_end()
    (partition,) = reader.source.progress()
    if before == "a seek":
        reader.source.seek(partition, 8)
    else:
        transaction(kafka, topic)
        for _ in range(10):
            reader.read()
    cut(kafka, topic, 5)
    write(kafka, topic, numbered(30, 100))
    assert gap(reader).resume == 5


def transaction(kafka: KafkaServer, topic: str) -> KafkaProducer:
    """A producer amid a transaction of one record."""
    producer = KafkaProducer(bootstrap_servers=kafka.servers, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"never", partition=0)
    producer.flush()
    return producer


def test_a_cut_that_was_accepted_and_is_reported_late_once_more_is_none(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    write(kafka, topic, numbered(20))
    reader = open_reader(topic).read_to_the_end()
    (partition,) = reader.source.progress()
    reader.source.seek(partition, 15)
    with monkeypatch.context() as late:
        late.setattr(
            reader.source._consumer,
            "poll",
            raising(LogTruncationError({TopicPartition(topic, 0): OffsetAndMetadata(15, "", 0)})),
        )
        reader.read()
    assert [record.offset for record in reader.read_to_the_end().records[20:]] == [15, 16, 17, 18, 19]


def test_records_wait_while_nobody_can_tell_whether_the_topic_is_a_new_one(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    reader = open_reader(topic)
    reader.read_until(lambda: reader.owned == {0})
    with monkeypatch.context() as unsure:
        unsure.setattr(reader.source._consumer._cluster, "topic_id", lambda _: "another")
        unsure.setattr(reader.source, "_ask_cluster", lambda **_: False)
        write(kafka, topic, numbered(5))
        for _ in range(10):
            reader.read()
        assert reader.records == []
    assert reader.read_until(lambda: reader.values).values == numbered(5)


@pytest.mark.parametrize("doing", ["reads", "stands still"])
def test_a_topic_created_again_is_a_gap_however_many_events_it_has(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, doing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    write(kafka, topic, numbered(10))
    reader = open_reader(topic).read_to_the_end()
    if doing == "reads":
        recreate(kafka, topic, meanwhile=reader.read)
    else:
        recreate(kafka, topic, meanwhile=lambda: None)
        # It is as if it had stood still for longer.
        monkeypatch.setattr(topic_watch, "LOOK_EVERY_S", 0.0)
    assert "created again" in str(gap(reader))
    assert reader.values == numbered(10)
    with pytest.raises(GapError, match="created again"):
        reader.read()


def test_a_commit_made_in_an_earlier_topic_of_the_name_is_a_gap(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    write(kafka, topic, numbered(10))
    earlier = {TopicPartition(topic, 0): OffsetAndMetadata(7, "another-topic-s-id", -1)}

    # A fresh broker's coordinator may not be there yet.
    def committed(admin: Any) -> bool:
        return admin.alter_group_offsets(f"readers-of-{topic}", earlier) == dict.fromkeys(earlier, NoError)

    until(lambda: administer(kafka, committed))
    reader = open_reader(topic)
    error = gap(reader)
    assert error.position is None
    assert "another-topic-s-id" in str(error)
    # That offset says nothing of this topic's marks.
    assert list(reader.committed.values()) == [None]
    assert isinstance(error.partition, Partition)
    reader.source.seek(error.partition, 0)
    assert reader.read_to_the_end().values == numbered(10)


def test_a_compacted_topic_is_refused(new_topic: NewTopic, open_reader: Open) -> None:
    topic = new_topic(configs={"cleanup.policy": "compact,delete"})
    with pytest.raises(SourceError, match=r"cleanup\.policy=compact,delete"):
        open_reader(topic)


def test_a_topic_that_is_compacted_later_is_read_on_and_named(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_watch, "LOOK_EVERY_S", 0.1)
    monkeypatch.setattr(topic_watch, "POLICY_EVERY_S", 0.1)
    topic = new_topic()
    reader = open_reader(topic).read_to_the_end()
    setting = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"cleanup.policy": "compact"})
    with structlog.testing.capture_logs() as logs:
        reader.read()
        assert not [line for line in logs if line["event"] == "topic_compacted"]
        administer(kafka, lambda admin: admin.alter_configs([setting]))
        reader.read_until(lambda: any(line["event"] == "topic_compacted" for line in logs))
    write(kafka, topic, [b"event"], key=b"shop")
    reader.read_until(lambda: reader.values == [b"event"])


def test_a_missing_topic_is_refused_with_the_command_that_makes_it(open_reader: Open) -> None:
    with pytest.raises(SourceError, match=r"kafka-topics\.sh --create --if-not-exists --topic nobody-made-this"):
        open_reader("nobody-made-this")


def test_a_cluster_out_of_reach_at_the_start_is_named() -> None:
    options = KafkaOptions(servers="127.0.0.1:1", start_timeout_s=0.3)
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1 "):
        KafkaSource(options, topic="any", group="any")


def test_a_topic_is_created_once_and_kept_as_it_is(kafka: KafkaServer, new_topic: NewTopic) -> None:
    options, name = KafkaOptions(servers=kafka.servers), f"{new_topic()}-made-here"
    assert create_topic(options, name, partitions=3, retention_s=60.0)
    assert not create_topic(options, name, partitions=5)
    (described,) = administer(kafka, lambda admin: admin.describe_topics([name]))
    assert len(described["partitions"]) == 3


def test_in_a_topic_that_we_create_events_have_the_time_of_the_broker(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = f"{new_topic()}-made-here"
    create_topic(KafkaOptions(servers=kafka.servers), topic)
    ahead = time.time() + 1800
    write(kafka, topic, [b"event"], timestamp_ms=int(ahead * 1000))
    (record,) = open_reader(topic).read_to_the_end().records
    assert record.timestamp is not None
    assert record.timestamp < ahead - 900
