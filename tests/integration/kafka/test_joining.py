"""A member whose group takes its time to share out partitions, against a real broker."""

from typing import Any

import pytest

from deploy.local import KafkaServer
from omdml.streams.kafka.reading import client_health, topic_watch
from omdml.streams.kafka.reading.source import SLICE_S
from omdml.streams.protocols.log import CommitResult
from tests.support.servers.kafka_reader import NewTopic, Open, Reader, administer, numbered, write
from tests.support.waiting import until


def answered_late(
    reader: Reader, delay_s: float, monkeypatch: pytest.MonkeyPatch, request_name: str = "SyncGroupRequest"
) -> list[str]:
    """Delay the next request of this kind, by default the one by which a leader shares partitions out.

    Returns a list that is empty until the request is made.
    """
    manager = reader.source._consumer._coordinator._manager
    send = manager.send
    late: list[str] = []

    async def sent_late(request: Any, **options: Any) -> Any:
        await manager._net.sleep(delay_s)
        return await send(request, **options)

    def sent(request: Any, *args: Any, **options: Any) -> Any:
        if type(request).__name__ != request_name or late:
            return send(request, *args, **options)
        late.append("once")
        return sent_late(request, **options)

    monkeypatch.setattr(manager, "send", sent)
    return late


def test_a_leader_stays_in_the_group_if_its_poll_ends_amid_sharing_out(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given the leader of a group, and a cluster that takes longer than a poll to answer what it shares out
    topic = new_topic(partitions=2)
    reader = open_reader(topic)
    reader.read_until(lambda: reader.owned == {0, 1})
    late = answered_late(reader, 3 * SLICE_S, monkeypatch)
    # When partitions are added
    administer(kafka, lambda admin: admin.create_partitions({topic: 4}))
    # Then it owns them all, and its commits count.
    reader.read_until(lambda: reader.owned == {0, 1, 2, 3}, 20.0)
    assert late
    assert reader.commit() is CommitResult.RECORDED


def test_members_that_poll_seldom_share_out_in_three_rounds(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    # Given three members of which one polls at a time, so that the others' answers come between their polls
    topic = new_topic(partitions=3)
    readers = [open_reader(topic) for _ in range(3)]
    # When they have a partition each
    until(lambda: [reader.read() for reader in readers] and all(reader.owned for reader in readers))
    # Then one had all at first, then gave up two, and then the two others took them. Without the answers between polls
    # it takes five rounds to twelve. A fourth is one more that joined late.
    assert readers[0].source._consumer._coordinator._generation.generation_id <= 4


def test_a_member_that_waits_for_its_group_while_events_come_keeps_its_client(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a client that is replaced if it fetches nothing for about a second, and a group that takes three
    monkeypatch.setattr(topic_watch, "LOOK_EVERY_S", 0.1)
    topic = new_topic()
    reader = open_reader(topic)
    reader.read_until(lambda: reader.owned == {0})
    client, late = reader.source._consumer, answered_late(reader, 3.0, monkeypatch)
    administer(kafka, lambda admin: admin.create_partitions({topic: 2}))
    reader.read_until(lambda: late, 20.0)
    write(kafka, topic, numbered(5))
    # Then it waits: a new one would have all members wait once more.
    reader.read_until(lambda: reader.owned == {0, 1} and reader.values == numbered(5), 20.0)
    assert reader.source._consumer is client


@pytest.mark.parametrize("lost", ["JoinGroupRequest", "SyncGroupRequest"])
def test_a_member_without_partitions_whose_join_is_never_answered_joins_again(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    # Given a cluster that loses the answer to a join, as brokers that were frozen may; the client waits five minutes
    monkeypatch.setattr(client_health, "WAIT_S", 3.0)
    reader = open_reader(new_topic(), group_instance_id="one")
    client, late = reader.source._consumer, answered_late(reader, 600.0, monkeypatch, lost)
    # Then it joins with another client once it has waited long.
    reader.read_until(lambda: reader.owned == {0})
    assert late
    assert reader.source._consumer is not client


def test_a_member_killed_as_it_gave_up_partitions_leaves_none_to_nobody(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a member with a name that is killed once it has given partitions up for another one
    topic, settings = new_topic(partitions=4), {"session_timeout_s": 60.0}
    killed = open_reader(topic, group_instance_id="one", **settings)
    killed.read_until(lambda: killed.owned == {0, 1, 2, 3})
    assignments, give_up = killed.source._assignments, killed.source._assignments.give_up

    def give_up_and_never_ask_again(*lost: Any) -> None:
        monkeypatch.setattr(killed.source._consumer._coordinator, "request_rejoin", lambda: None)
        give_up(*lost)

    monkeypatch.setattr(assignments, "give_up", give_up_and_never_ask_again)
    other = open_reader(topic, **settings)
    until(lambda: [killed.read(), other.read()] and len(killed.owned) == 2, 20.0)
    # When it is back before its session ends, and got what it had kept
    back = open_reader(topic, group_instance_id="one", **settings)
    # Then the group goes on with sharing out.
    until(lambda: [back.read(), other.read()] and back.owned | other.owned == {0, 1, 2, 3}, 30.0)
    assert len(back.owned) == len(other.owned) == 2
