"""Sending the events of dead letters in Kafka again."""

from __future__ import annotations

import pytest

from omdml.errors import SourceError
from omdml.streams.letters import Letter
from omdml.streams.protocols.log import Partition
from omdml.workers.configuration.config import KafkaLog
from omdml.workers.wiring.dead_letters import open_letters, open_letters_to_read, open_sender


def test_who_sends_letters_when_another_one_begins_to_is_fenced_and_told(kafka, new_topic):
    log = KafkaLog(servers=kafka.servers, topic=new_topic())
    open_letters(log).close()
    letter = Letter(reason="unknown_item", error="", partition=Partition("t", 0), offset=1, payload=b"{}")
    first, second = open_sender(log), open_sender(log)
    second.send([(letter, "shop")], b"secret")
    with pytest.raises(SourceError, match="another process has begun to do the same"):
        first.send([(letter, "shop")], b"secret")
    first.close()
    second.close()


def test_before_the_first_worker_made_their_topic_there_are_no_letters(kafka, new_topic):
    log = KafkaLog(servers=kafka.servers, topic=new_topic())
    assert open_letters_to_read(log) is None
    # One that is named in the configuration must be there.
    with pytest.raises(SourceError, match="has no topic 'elsewhere'"):
        open_letters_to_read(KafkaLog(servers=kafka.servers, topic=log.topic, letters="elsewhere"))
