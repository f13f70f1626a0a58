"""Sending the events of dead letters in Kafka again."""

from __future__ import annotations

from contextlib import closing

import pytest

from omdml.errors import SourceError
from omdml.streams.letters import Letter
from omdml.streams.protocols.log import Partition
from omdml.workers.configuration.config import KafkaLog
from omdml.workers.operate.replay import read_whole
from omdml.workers.wiring.dead_letters import open_letters, open_letters_to_read, open_sender
from omdml.workers.wiring.feedback_log import open_ungrouped


def test_who_sends_letters_when_another_one_begins_to_is_fenced_and_told(kafka, new_topic):
    log = KafkaLog(servers=kafka.servers, topic=new_topic())
    open_letters(log).close()
    letter = Letter(reason="unknown_item", error="", partition=Partition("t", 0), offset=1, payload=b"{}")
    first, second = open_sender(log), open_sender(log)
    second.send([(letter, "shop")], b"secret")
    with pytest.raises(SourceError, match="another process took over this work"):
        first.send([(letter, "shop")], b"secret")
    first.close()
    second.close()


def test_letters_of_a_deleted_topic_are_not_sent_and_the_error_names_it(kafka, new_topic):
    log = KafkaLog(servers=kafka.servers, topic=new_topic())
    open_letters(log).close()
    letter = Letter(reason="unknown_item", error="", partition=Partition("t", 0), offset=1, payload=b"{}")
    kafka.delete_topic(log.topic)
    with (
        closing(open_sender(log)) as sender,
        pytest.raises(SourceError, match=f"has no topic '{log.topic}'. Create it"),
    ):
        sender.send([(letter, "shop")], b"secret")


def test_before_the_first_worker_made_their_topic_there_are_no_letters(kafka, new_topic):
    log = KafkaLog(servers=kafka.servers, topic=new_topic())
    assert open_letters_to_read(log) is None
    # One that is named in the configuration must be there.
    with pytest.raises(SourceError, match="there is no topic elsewhere for dead letters"):
        open_letters_to_read(KafkaLog(servers=kafka.servers, topic=log.topic, letters="elsewhere"))


def test_a_copy_for_a_model_in_parts_goes_to_the_partition_of_its_event(kafka, new_topic):
    log = KafkaLog(servers=kafka.servers, topic=new_topic(4))
    open_letters(log).close()
    letters = [
        (Letter(reason="unknown_item", error="", partition=Partition("t", number), offset=1, payload=b"{}"), model)
        for model in ("hot", "shop") for number in range(4)
    ]  # fmt: skip
    with closing(open_sender(log, {"hot"})) as sender:
        sender.send(letters, b"secret")
    all_records = [record for records in read_whole(open_ungrouped(log)) for record in records]
    assert sorted(record.partition.number for record in all_records if record.key == b"hot") == [0, 1, 2, 3]
    assert len({record.partition.number for record in all_records if record.key == b"shop"}) == 1
