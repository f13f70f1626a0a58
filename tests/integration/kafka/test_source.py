"""A Kafka topic as a source of feedback, against a real broker."""

import threading
import time
from types import SimpleNamespace

import kafka.errors
import pytest
import structlog
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import MemberToRemove
from kafka.errors import KafkaTimeoutError

from deploy.local import KafkaServer
from omdml.errors import ClientFailed, SourceError
from omdml.streams.kafka.reading import client_health, topic_watch
from omdml.streams.partitioners import by_murmur2
from omdml.streams.protocols.log import CommitResult, Partition
from tests.support.servers.kafka_reader import NewTopic, Open, administer, numbered, write
from tests.support.waiting import until


def test_every_record_comes_once_and_in_order_within_its_partition(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic(partitions=3)
    for partition in range(3):
        write(kafka, topic, numbered(2000), partition)
    reader = open_reader(topic)
    reader.read_until(lambda: len(reader.records) >= 6000)
    for partition in range(3):
        mine = [record for record in reader.records if record.partition.number == partition]
        assert [record.value for record in mine] == numbered(2000)
        assert [record.offset for record in mine] == list(range(2000))


def test_a_record_carries_its_key_its_time_in_seconds_and_its_headers(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    # The record is older than what a topic keeps by default: retention could delete it before it is read.
    topic = new_topic(configs={"retention.ms": "-1"})
    headers = [("content-type", b"application/json")]
    write(kafka, topic, [b"event"], key=b"shop", headers=headers, timestamp_ms=1_790_000_000_250)
    (record,) = open_reader(topic, None).read_to_the_end().records
    assert (record.key, record.timestamp, record.headers) == (b"shop", 1_790_000_000.25, tuple(headers))


def test_a_poll_answers_no_more_records_than_asked_for(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    write(kafka, topic, numbered(10))
    reader = open_reader(topic)
    until(lambda: reader.read(max_records=3))
    assert reader.values == numbered(3)


def test_a_partition_is_named_by_the_id_that_kafka_gave_its_topic(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    (described,) = administer(kafka, lambda admin: admin.describe_topics([topic]))
    reader = open_reader(topic)
    reader.read_until(lambda: bool(reader.owned))
    assert list(reader.committed) == [Partition(described["topic_id"], 0)]
    assert reader.source.partitions == 1


def test_kafka_clients_choose_the_partition_that_murmur2_says(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic, keys = new_topic(partitions=5), [f"model-{number}" for number in range(20)]
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    for key in keys:
        producer.send(topic, b"event", key.encode())
    producer.close()
    reader = open_reader(topic).read_to_the_end()
    assert {record.key: record.partition for record in reader.records} == {
        key.encode(): Partition(reader.source.topic_id, by_murmur2(key.encode(), 5)) for key in keys
    }


def test_the_listener_s_start_counts_and_not_the_commit(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    write(kafka, topic, numbered(20))
    first = open_reader(topic).read_to_the_end()
    assert first.commit() is CommitResult.RECORDED
    first.source.close()

    # If another member starts at a position of its own, I expect it to see the commit and to start at its own position.
    second = open_reader(topic, 5).read_to_the_end()
    assert list(second.committed.values()) == [20]
    assert second.values == numbered(15, start=5)


def test_none_starts_at_the_first_record_that_the_log_still_has(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    write(kafka, topic, numbered(20))
    administer(kafka, lambda admin: admin.delete_records({TopicPartition(topic, 0): 8}))
    reader = open_reader(topic, None).read_to_the_end()
    assert reader.values == numbered(12, start=8)


def test_a_restarted_reader_continues_at_its_commit(kafka: KafkaServer, new_topic: NewTopic, open_reader: Open) -> None:
    topic = new_topic(partitions=2)
    for partition in range(2):
        write(kafka, topic, numbered(50), partition)
    first = open_reader(topic).read_to_the_end()
    assert first.commit() is CommitResult.RECORDED
    first.source.close()
    for partition in range(2):
        write(kafka, topic, numbered(50, start=50), partition)
    second = open_reader(topic).read_to_the_end()
    assert sorted(second.values) == sorted(numbered(50, start=50) * 2)


def test_two_readers_share_the_partitions_and_hand_over_on_close(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic(partitions=2)
    first = open_reader(topic)
    first.read_until(lambda: first.owned == {0, 1})

    # If a second one joins, I expect each to have one partition, and the first to have heard which it lost.
    second = open_reader(topic)
    first.read_until(lambda: bool(second.read() or True) and len(first.owned) == len(second.owned) == 1)
    assert ("revoked", second.owned) in first.changes
    assert first.owned | second.owned == {0, 1}

    first.source.close()
    second.read_until(lambda: second.owned == {0, 1})
    assert first.changes[-1][0] == "revoked"


def test_partitions_that_nobody_reads_leave_no_member_without_one_that_is_read(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic(partitions=4)
    # Alone at first, as after a restart of all: a share that counts every partition could now be moved by twos.
    first = open_reader(topic, read=2)
    first.read_until(lambda: first.owned == {0, 1})
    second = open_reader(topic, read=2)
    first.read_until(lambda: bool(second.read() or True) and len(first.owned) == len(second.owned) == 1)
    assert first.owned | second.owned == {0, 1}


def test_a_member_thrown_out_of_the_group_lets_go_without_saving_and_comes_back(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    reader = open_reader(topic)
    reader.read_until(lambda: reader.owned == {0})
    (group,) = administer(kafka, lambda admin: admin.describe_groups([f"readers-of-{topic}"])).values()
    member = MemberToRemove(member_id=group["members"][0]["member_id"])
    administer(kafka, lambda admin: admin.remove_group_members(f"readers-of-{topic}", [member]))
    assert reader.commit() is CommitResult.NOT_OWNED
    reader.read_until(lambda: len(reader.changes) == 3 and reader.owned == {0})
    assert reader.changes == [("assigned", {0}), ("lost", {0}), ("assigned", {0})]


def test_a_partition_that_is_not_owned_is_neither_committed_nor_sought(new_topic: NewTopic, open_reader: Open) -> None:
    reader = open_reader(new_topic())
    foreign = Partition(reader.source.topic_id, 0)
    assert reader.source.commit({foreign: 0}) is CommitResult.NOT_OWNED
    with pytest.raises(SourceError, match="does not own"):
        reader.source.seek(foreign, 0)


def test_what_a_listener_raises_comes_out_of_poll_or_close(new_topic: NewTopic, open_reader: Open) -> None:
    topic = new_topic(partitions=2)
    reader = open_reader(topic)
    reader.read_until(lambda: reader.owned == {0, 1})
    reader.broken = "the store is full"
    second = open_reader(topic)
    with pytest.raises(LookupError, match="the store is full"):
        reader.read_until(lambda: bool(second.read()))
    with pytest.raises(LookupError, match="the store is full"):
        reader.source.close()
    second.read_until(lambda: second.owned == {0, 1})


def test_progress_reaches_the_end_although_transactions_leave_gaps_in_offsets(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    producer = KafkaProducer(bootstrap_servers=kafka.servers, transactional_id=topic)
    producer.init_transactions()
    for values, finish in ((b"ab", producer.commit_transaction), (b"cd", producer.abort_transaction)):
        producer.begin_transaction()
        for value in values:
            producer.send(topic, bytes([value]), partition=0)
        producer.flush()
        finish()
    reader = open_reader(topic).read_to_the_end()
    assert reader.values == [b"a", b"b"]
    assert list(reader.source.progress().values()) == [(6, 6)]

    # If a transaction is open, I expect neither its records nor a lag that no member could work off.
    producer.begin_transaction()
    producer.send(topic, b"e", partition=0).get(timeout=30)
    reader.read_to_the_end()
    assert reader.values == [b"a", b"b"]
    producer.commit_transaction()
    reader.read_until(lambda: reader.values == [b"a", b"b", b"e"])
    producer.close()


@pytest.mark.parametrize("kind", ["killed", "paused"])
def test_an_outage_makes_two_log_lines_and_nothing_is_lost_or_repeated(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, kind: str
) -> None:
    topic = new_topic()
    write(kafka, topic, numbered(10))
    reader = open_reader(topic).read_to_the_end()
    # A pause that is longer than a session expels the member. It goes on at its commit.
    assert reader.commit() is CommitResult.RECORDED
    with structlog.testing.capture_logs() as logs:

        def logged() -> list[str]:
            return [line["event"] for line in logs]

        kafka.kill() if kind == "killed" else kafka.pause()
        reader.read_until(lambda: bool(logged()))
        assert reader.commit() is CommitResult.UNKNOWN
        kafka.resume()
        kafka.start()
        write(kafka, topic, numbered(10, start=10))
        reader.read_until(lambda: len(reader.records) >= 20 and len(logged()) == 2)
    assert logged() == ["kafka_out_of_reach", "kafka_back_in_reach"]
    assert reader.values == numbered(20)
    reader.read_until(lambda: reader.commit() is CommitResult.RECORDED)


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (kafka.errors.RebalanceInProgressError(), CommitResult.UNKNOWN),
        (kafka.errors.CommitFailedError(kafka.errors.RebalanceInProgressError()), CommitResult.UNKNOWN),
        (kafka.errors.NotCoordinatorError(), CommitResult.UNKNOWN),
        (kafka.errors.CommitFailedError(), CommitResult.NOT_OWNED),
        (kafka.errors.CommitFailedError(kafka.errors.UnknownMemberIdError()), CommitResult.NOT_OWNED),
        (kafka.errors.FencedInstanceIdError(), CommitResult.NOT_OWNED),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_only_who_is_out_of_the_group_is_told_so(
    new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch, error: Exception, result: CommitResult
) -> None:
    reader = open_reader(new_topic())
    reader.read_until(lambda: reader.owned == {0})

    def refused(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(reader.source._consumer, "commit", refused)
    assert reader.commit() is result


def test_a_poll_does_not_sleep_beside_an_answer_that_came_after_it_had_looked(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a poll that has looked for records, and then its last fetch is answered before it sends the next one
    topic = new_topic()
    reader = open_reader(topic)
    reader.read_until(lambda: reader.owned == {0})
    fetcher, slept = reader.source._consumer._fetcher, []
    send = fetcher._send_fetches_async
    # Only records answer a fetch.
    monkeypatch.setitem(fetcher.config, "fetch_max_wait_ms", 60_000)

    async def send_after_an_answer() -> None:
        monkeypatch.setattr(fetcher, "_send_fetches_async", send)
        await send()
        write(kafka, topic, numbered(5))
        while fetcher.in_flight_fetches():
            await fetcher._net.sleep(0.01)
        await send()

    monkeypatch.setattr(fetcher, "_send_fetches_async", send_after_an_answer)
    monkeypatch.setattr("kafka.consumer.group.time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))
    # Then it goes on at once.
    reader.read_until(lambda: reader.values == numbered(5))
    assert slept == []


def test_a_client_that_stopped_fetching_is_replaced(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_watch, "LOOK_EVERY_S", 0.1)
    topic = new_topic()
    reader = open_reader(topic)
    reader.read_until(lambda: reader.owned == {0})
    # The client does so by itself after odd metadata.
    reader.source._consumer.pause(TopicPartition(topic, 0))
    write(kafka, topic, numbered(5))
    reader.read_until(lambda: reader.values == numbered(5))
    assert reader.changes == [("assigned", {0}), ("revoked", {0}), ("assigned", {0})]


def test_a_client_that_fails_is_replaced_and_nothing_is_lost_or_repeated(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    reader = open_reader(topic)
    write(kafka, topic, numbered(5))
    reader.read_until(lambda: len(reader.values) == 5)
    reader.commit()
    broken = reader.source._consumer
    monkeypatch.setattr(broken, "poll", _raise)
    write(kafka, topic, numbered(5, start=5))
    reader.read_until(lambda: len(reader.values) == 10)
    assert reader.values == numbered(10)
    assert reader.source._consumer is not broken


def test_if_one_client_after_the_other_fails_it_says_so_and_gives_up(
    new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_health, "CLIENTS_IN_A_ROW", 3)
    reader = open_reader(new_topic())
    with monkeypatch.context() as broken:
        broken.setattr(KafkaConsumer, "poll", _raise)
        with pytest.raises(ClientFailed, match="one client after the other fails: KeyError") as caught:
            reader.read_until(lambda: False)
    assert not caught.value.needs_operator


def _raise(*_: object, **__: object) -> None:
    raise KeyError("what no client should raise")


def test_positions_that_cannot_be_told_keep_nobody_waiting_longer_than_one_does(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = open_reader(new_topic(partitions=4))
    reader.read_until(lambda: len(reader.owned) == 4)
    limits_ms = []

    def waits_in_vain(_: TopicPartition, timeout_ms: int) -> None:
        limits_ms.append(timeout_ms)
        threading.Event().wait(timeout_ms / 1000)
        raise KafkaTimeoutError

    monkeypatch.setattr(reader.source._consumer, "position", waits_in_vain)
    assert reader.source.progress() == {}
    assert sum(limits_ms) <= topic_watch.LOOK_LIMIT_S * 1000


def test_partitions_that_are_added_are_known_and_owned_within_seconds(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic(partitions=2)
    reader = open_reader(topic)
    reader.read_until(lambda: reader.owned == {0, 1})
    administer(kafka, lambda admin: admin.create_partitions({topic: 5}))
    reader.read_until(lambda: reader.owned == {0, 1, 2, 3, 4}, 20.0)
    assert reader.source.partitions == 5
