"""Members that leave their group together, against a real broker: what one of them could not commit is committed."""

import threading
from collections.abc import Callable

import pytest

from deploy.local import KafkaServer
from omdml.streams.kafka import internals
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.reading import commits
from omdml.streams.kafka.topic_extents import extents
from omdml.streams.protocols.log import CommitResult, Partition
from tests.support.servers.kafka_reader import NewTopic, Open, Reader, numbered, write
from tests.support.waiting import until


@pytest.fixture
def committed(kafka: KafkaServer) -> Callable[[str], list[int | None]]:
    """What the group of a topic's readers has committed, partition by partition."""
    options = KafkaOptions(servers=kafka.servers)
    return lambda topic: [extent.committed for extent in extents(options, topic, f"readers-of-{topic}")]


def saved(reader: Reader) -> dict[Partition, int]:
    return {partition: position for partition, (position, _) in reader.source.progress().items()}


def share_out(*readers: Reader) -> None:
    """Read until each of them has a partition, and none waits for its group."""

    def is_done(reader: Reader) -> bool:
        return len(reader.owned) == 1 and not internals.is_joining(reader.source._consumer)

    until(lambda: [reader.read() for reader in readers] and all(map(is_done, readers)))


def test_members_that_leave_together_commit_what_a_rebalance_refused(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, committed: Callable[[str], list[int | None]]
) -> None:
    # Given three members with a partition each
    topic = new_topic(partitions=3)
    for partition in range(3):
        write(kafka, topic, numbered(5), partition)
    readers = [open_reader(topic) for _ in range(3)]
    share_out(*readers)
    first, second, third = [reader.read_to_the_end() for reader in readers]
    # When one leaves, and the group waits for another one to share out the partitions again
    assert first.commit() is CommitResult.RECORDED
    first.source.close()
    # Until it has asked to join, the cluster takes its commits.
    second.read_until(second.source._consumer._coordinator.rebalance_in_progress)
    assert second.commit() is CommitResult.UNKNOWN
    # And both leave then
    leaving = threading.Thread(target=second.source.close, args=[saved(second)])
    leaving.start()
    assert third.commit() is CommitResult.RECORDED
    third.source.close()
    leaving.join()
    # Then everything is committed.
    assert committed(topic) == [5, 5, 5]


def test_a_commit_does_not_go_back_when_all_have_left(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open, committed: Callable[[str], list[int | None]]
) -> None:
    topic = new_topic()
    write(kafka, topic, numbered(5))
    reader = open_reader(topic).read_to_the_end()
    assert reader.commit() is CommitResult.RECORDED
    reader.source.close(dict.fromkeys(saved(reader), 3))
    assert committed(topic) == [5]


def test_who_leaves_commits_nothing_while_another_member_has_the_partition(
    kafka: KafkaServer,
    new_topic: NewTopic,
    open_reader: Open,
    committed: Callable[[str], list[int | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits, "ALL_LEFT_WITHIN_S", 0.5)
    topic = new_topic(partitions=2)
    first, second = open_reader(topic), open_reader(topic)
    share_out(first, second)
    (number,) = first.owned
    write(kafka, topic, numbered(5), number)
    first.read_to_the_end()
    first.source.close(saved(first))
    assert committed(topic)[number] is None
