"""Replaying a Kafka topic beside the group that follows it."""

import uuid

from deploy.local import KafkaServer
from omdml.workers.configuration.config import KafkaLog
from omdml.workers.operate.replay import read_whole
from omdml.workers.wiring.feedback_log import open_ungrouped
from tests.support.servers.kafka_reader import NewTopic, Open, administer, numbered, write


def test_a_topic_is_read_whole_and_its_group_notices_nothing(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    # Given a member of the group that owns both partitions
    topic, group = new_topic(partitions=2), uuid.uuid4().hex
    for partition in range(2):
        write(kafka, topic, numbered(1500), partition)
    member = open_reader(topic, group=group)
    member.read_until(lambda: len(member.records) >= 3000)
    changes = list(member.changes)
    # If the topic is replayed
    log = KafkaLog(servers=kafka.servers, topic=topic, group=group)
    records = [record for part in read_whole(open_ungrouped(log)) for record in part]
    # I expect every record, and the member undisturbed; what stays is an empty group, which the broker forgets in time
    for partition in range(2):
        assert [record.value for record in records if record.partition.number == partition] == numbered(1500)
    write(kafka, topic, [b"new"], 0)
    member.read_until(lambda: len(member.records) >= 3001)
    assert member.changes == changes
    groups = administer(kafka, lambda admin: admin.list_groups())
    (mine,) = [entry for entry in groups if entry["group_id"].startswith(f"{group}.replay.")]
    assert mine["group_state"] == "Empty"
    offsets = administer(kafka, lambda admin: admin.list_group_offsets(mine["group_id"]))
    assert offsets == {mine["group_id"]: {}}


def test_an_empty_topic_comes_to_an_end(kafka: KafkaServer, new_topic: NewTopic) -> None:
    assert list(read_whole(open_ungrouped(KafkaLog(servers=kafka.servers, topic=new_topic())))) == []
