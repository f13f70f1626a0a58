"""What a log may lose, or hold beside events, met by a worker process on real Kafka and Valkey.

Each either loses nothing, or stops the worker with the sentence that says what to do.
"""

from __future__ import annotations

import pytest
from kafka import KafkaProducer, TopicPartition

from tests.support.processes import wait_for
from tests.support.servers.kafka_reader import write
from tests.support.servers.one_model import EVENTS, Place


@pytest.fixture
def place(tmp_path, kafka, valkey_server, new_topic):
    return Place(tmp_path, kafka, valkey_server.url, new_topic(partitions=2))


def test_retention_past_the_commit_stops_the_worker_until_the_gap_is_accepted(place):
    place.send(0, 10)
    worker = place.worker()
    wait_for(lambda: place.version == 10, "version 10", 60, worker)
    assert worker.stop() == 0
    place.send(10, 30)
    place.administer(lambda admin: admin.delete_records({TopicPartition(place.topic, place.home): 20}))
    message = place.stops()
    for words in (place.topic, f"partition {place.home}", "offset 10", "20 up to 30", "--accept-gap"):
        assert words in message
    place.expect((0, 10))

    place.goes_on_with(20, 30)


def test_a_topic_created_again_stops_the_worker_until_the_gap_is_accepted(place):
    place.send(0, 10)
    worker = place.worker()
    wait_for(lambda: place.version == 10, "version 10", 60, worker)
    place.recreate_topic()
    place.send(10, 30)
    assert worker.wait(60) == 3
    lines = worker.said.splitlines()[-1]
    assert "again" in lines
    assert "--accept-gap" in lines
    place.expect((0, 10))
    place.goes_on_with(10, 30)


def test_a_compacted_topic_is_refused_at_the_start(tmp_path, kafka, valkey_server, new_topic):
    place = Place(tmp_path, kafka, valkey_server.url, new_topic(configs={"cleanup.policy": "compact"}))
    message = place.stops()
    for words in (
        place.topic,
        "cleanup.policy=compact",
        "one event for each model",
        "--add-config cleanup.policy=delete",
    ):
        assert words in message
    assert place.store.models() == []


def test_aborted_transactions_are_passed_over_and_nothing_else_is(place):
    place.send(0, 10)
    producer = KafkaProducer(bootstrap_servers=place.kafka.servers, transactional_id=f"of-{place.topic}")
    producer.init_transactions()
    for values, commit in ((EVENTS[40:50], False), (EVENTS[10:20], True), (EVENTS[50:60], False)):
        place.transact(producer, values, commit)
    producer.close()
    worker = place.worker()
    # A marker ends each of the three transactions.
    end = 10 + 10 + 1 + 10 + 1 + 10 + 1
    wait_for(lambda: place.mark(place.home) == end, "the mark behind what was aborted", 60, worker)
    assert worker.stop() == 0
    place.expect((0, 20))
    assert place.omdml("topics", "status").exit_code == 0


def test_events_in_another_partition_are_dead_letters_and_the_rest_is_exact(place):
    place.send(0, 10)
    worker = place.worker()
    wait_for(lambda: place.version == 10, "version 10", 60, worker)
    write(place.kafka, place.topic, EVENTS[40:45], partition=1 - place.home, key=b"shop")
    place.send(10, 20)
    wait_for(lambda: place.version == 20, "version 20", 60, worker)
    wait_for(lambda: place.mark(1 - place.home) == 5, "the mark behind the strays", 60, worker)
    assert worker.stop() == 0
    place.expect((0, 20))
    letters = place.letters
    assert [letter["reason"] for letter in letters] == ["wrong_partition"] * 5
    assert all("Have its sender use the model's name as key" in letter["error"] for letter in letters)
