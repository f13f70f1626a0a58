"""A source whose clients get no answers any more, although the cluster answers others, against a real broker.

That was seen after all brokers had been frozen for a minute.
"""

import gc
import threading
from typing import Any

import kafka.errors
import pytest
from kafka.future import Future

from deploy.local import KafkaServer
from omdml.streams.kafka.reading import client_health
from omdml.streams.protocols.log import CommitResult
from tests.support.servers.kafka_reader import NewTopic, Open, numbered, write
from tests.support.waiting import until


def unanswered(*args: Any, **options: Any) -> Any:
    raise kafka.errors.KafkaTimeoutError


def test_a_consumer_that_is_never_answered_is_replaced(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_health, "WAIT_S", 2.0)
    topic = new_topic()
    reader = open_reader(topic)
    reader.read_until(lambda: reader.owned == {0})
    monkeypatch.setattr(reader.source._consumer, "end_offsets", unanswered)
    monkeypatch.setattr(reader.source._consumer, "poll", lambda **options: {})
    write(kafka, topic, numbered(5))
    reader.read_until(lambda: reader.values == numbered(5))


def test_a_client_that_never_hears_where_partitions_begin_is_replaced(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_health, "WAIT_S", 2.0)
    topic = new_topic()
    write(kafka, topic, numbered(5))
    reader = open_reader(topic)
    monkeypatch.setattr(reader.source._consumer, "beginning_offsets", unanswered)
    reader.read_until(lambda: reader.values == numbered(5))


def test_a_group_does_not_wait_for_a_member_that_cannot_begin(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a member that has two partitions, cannot begin to read them, and keeps its client
    monkeypatch.setattr(client_health, "WAIT_S", 600.0)
    topic = new_topic(partitions=2)
    reader = open_reader(topic)
    monkeypatch.setattr(reader.source._consumer, "beginning_offsets", unanswered)
    reader.read_until(lambda: len(reader.source._assignments.pending) == 2)
    # When another one joins
    other = open_reader(topic)
    # Then that one has a partition soon.
    until(lambda: [reader.read(), other.read()] and other.owned, 20.0)


def test_an_administration_client_that_is_never_answered_is_replaced(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_health, "WAIT_S", 2.0)
    topic = new_topic()
    reader = open_reader(topic)
    reader.read_until(lambda: reader.owned == {0})
    admin = reader.source._watch.admin
    monkeypatch.setattr(admin, "describe_topics", unanswered)
    reader.read_until(lambda: reader.source._watch.admin is not admin)
    write(kafka, topic, numbered(5))
    reader.read_until(lambda: reader.values == numbered(5))


def test_records_are_read_while_a_question_to_the_cluster_is_open(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    reader = open_reader(topic)
    reader.read_until(lambda: reader.owned == {0})
    asked, end, ended = threading.Event(), threading.Event(), threading.Event()

    def waits(_: list[str]) -> Any:
        asked.set()
        # As long as a client waits for an answer.
        end.wait(10.0)
        ended.set()
        return unanswered()

    monkeypatch.setattr(reader.source._watch.admin, "describe_topics", waits)
    reader.read_until(asked.is_set)
    write(kafka, topic, numbered(5))
    reader.read_until(lambda: reader.values == numbered(5))
    assert not ended.is_set()
    end.set()


def test_after_a_commit_without_an_answer_none_waits_until_the_cluster_answers(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = open_reader(new_topic(partitions=2))
    reader.read_until(lambda: reader.owned == {0, 1})
    asked = []

    def waits_in_vain(*what: Any, **options: Any) -> Any:
        asked.append(what)
        return unanswered()

    with monkeypatch.context() as silent:
        silent.setattr(reader.source._consumer, "commit", waits_in_vain)
        assert [reader.commit() for _ in range(3)] == [CommitResult.UNKNOWN] * 3
    assert len(asked) == 1
    reader.read_until(lambda: reader.commit() is CommitResult.RECORDED)


def test_in_a_long_outage_a_member_keeps_its_clients(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a cluster that answers nobody for longer than a client waits
    topic = new_topic()
    reader = open_reader(topic)
    reader.read_until(lambda: reader.owned == {0})
    clients = reader.source._watch.admin, reader.source._consumer
    monkeypatch.setattr(client_health, "WAIT_S", 2.0)
    monkeypatch.setattr(clients[0], "describe_topics", unanswered)
    answers: list[bool] = []
    ask = reader.source._watch.replace_admin

    def asked() -> bool:
        answers.append(ask())
        return answers[-1]

    monkeypatch.setattr(reader.source._watch, "replace_admin", asked)
    kafka.pause()
    reader.read_until(lambda: answers)
    # Then new clients do not reach it either, and the old ones stay.
    assert answers == [False]
    assert (reader.source._watch.admin, reader.source._consumer) == clients
    # When it answers again, the member goes on.
    kafka.resume()
    monkeypatch.undo()
    write(kafka, topic, numbered(5))
    reader.read_until(lambda: reader.values == numbered(5))


def test_polls_of_a_frozen_broker_keep_few_objects(kafka: KafkaServer, new_topic: NewTopic, open_reader: Open) -> None:
    # Given a member whose heartbeats are not answered
    reader = open_reader(new_topic(), session_timeout_s=2.0)
    reader.read_until(lambda: reader.owned == {0})
    gc.collect()
    before = sum(isinstance(entry, Future) for entry in gc.get_objects())
    kafka.pause()
    for _ in range(8):
        reader.read()
    # Then each poll keeps a few objects until its fetch is given up, however long the poll takes.
    gc.collect()
    assert sum(isinstance(entry, Future) for entry in gc.get_objects()) - before < 100
