"""Readers with a ``group_instance_id``: what happens if two processes have the same one."""

from __future__ import annotations

import pytest

from deploy.local import KafkaServer
from omdml.errors import SourceRefused
from omdml.streams.kafka.reading import client_health
from omdml.streams.protocols.log import CommitResult
from tests.support.servers.kafka_reader import NewTopic, Open, Reader, numbered, write
from tests.support.waiting import until


def test_a_static_member_that_closes_is_not_waited_for(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    # The session would end later than this test gives up.
    first = open_reader(topic, group_instance_id="one", session_timeout_s=600.0)
    first.read_until(lambda: first.owned == {0})
    first.source.close()
    second = open_reader(topic, group_instance_id="two", session_timeout_s=600.0)
    second.read_until(lambda: second.owned == {0})
    assert second.owned == {0}


def test_a_static_member_replaced_by_its_twin_cannot_commit(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    write(kafka, topic, numbered(3))
    first = open_reader(topic, group_instance_id="one").read_to_the_end()
    second = open_reader(topic, group_instance_id="one").read_to_the_end()
    assert first.commit() is CommitResult.NOT_OWNED
    # Each takes the name back once. The first is then the first to lose it twice.
    with pytest.raises(SourceRefused, match="another process took the place of member 'one'"):
        until(lambda: [(reader.read(), reader.commit()) for reader in (first, second)] and False)
    second.read_until(lambda: second.owned == {0})

    # If the replaced one closes, I expect its successor to stay in the group.
    first.source.close()
    assert second.commit() is CommitResult.RECORDED


def test_twins_on_slow_machines_do_not_take_the_name_from_each_other_for_ever(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given processes that join so slowly that each keeps the name for longer than a minute
    monkeypatch.setattr(client_health, "STEADY_S", -1.0)
    topic = new_topic()
    first = open_reader(topic, group_instance_id="one").read_to_the_end()
    second = open_reader(topic, group_instance_id="one").read_to_the_end()
    with pytest.raises(SourceRefused, match="another process took the place of member 'one'"):
        until(lambda: [(reader.read(), reader.commit()) for reader in (first, second)] and False)
    first.source.close()
    second.read_until(lambda: second.owned == {0})
    assert second.commit() is CommitResult.RECORDED


def twins(open_reader: Open, topic: str) -> tuple[Reader, Reader]:
    """A member that owns the topic's partition, and another process that takes its name."""
    first = open_reader(topic, group_instance_id="one")
    first.read_until(lambda: first.owned == {0})
    return first, open_reader(topic, group_instance_id="one")


def test_a_static_member_whose_name_was_taken_for_a_moment_takes_it_back(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    # Given another member of the same name that came and is gone, as a broker may see one that was frozen
    topic = new_topic()
    first, second = twins(open_reader, topic)
    second.read_until(lambda: second.owned == {0})
    second.source._consumer.close()
    # When the first one learns of it, it joins again, and its commits count.
    assert first.commit() is CommitResult.NOT_OWNED
    write(kafka, topic, numbered(3))
    first.read_until(lambda: first.values == numbered(3))
    assert first.commit() is CommitResult.RECORDED


def test_a_static_member_without_commits_hears_that_its_name_was_taken(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    first, second = twins(open_reader, new_topic())
    # Each takes the name back once, because a heartbeat is refused.
    with pytest.raises(SourceRefused, match="another process took the place of member 'one'"):
        until(lambda: [reader.read() for reader in (first, second)] and False)
