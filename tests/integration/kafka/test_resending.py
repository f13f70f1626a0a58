"""Sending the events of dead letters in Kafka again."""

from __future__ import annotations

import pytest

from omdml.errors import SourceError
from omdml.streams.letters import Letter
from omdml.streams.protocols import Partition
from omdml.workers import wiring
from omdml.workers.configuration.config import KafkaLog


def test_who_sends_letters_when_another_one_begins_to_is_fenced_and_told(kafka, new_topic):
    log = KafkaLog(servers=kafka.servers, topic=new_topic())
    wiring.open_letters(log).close()
    letter = Letter(reason="unknown_item", error="", partition=Partition("t", 0), offset=1, payload=b"{}")
    first, second = wiring.open_sender(log), wiring.open_sender(log)
    second.send(letter, "shop", b"secret")
    with pytest.raises(SourceError, match="another process has begun to do the same"):
        first.send(letter, "shop", b"secret")
    first.close()
    second.close()


def test_before_the_first_worker_made_their_topic_there_are_no_letters(kafka, new_topic):
    log = KafkaLog(servers=kafka.servers, topic=new_topic())
    assert wiring.open_letters_to_read(log) is None
    # One that is named in the configuration must be there.
    with pytest.raises(SourceError, match="has no topic 'elsewhere'"):
        wiring.open_letters_to_read(KafkaLog(servers=kafka.servers, topic=log.topic, letters="elsewhere"))
