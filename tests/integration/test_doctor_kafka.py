"""The doctor on a real topic: how its senders choose partitions, dead letters, partitions that nobody reads."""

from __future__ import annotations

import pytest
from kafka import KafkaProducer

from omdml.feedback import Triplet, encode
from streams.kafka.newest import newest_records
from streams.kafka.options import KafkaOptions
from streams.partitioners import PARTITIONERS
from tests.worlds import catalogue
from workers import doctor
from workers.config import load
from workers.findings import Level

MODELS = [f"user-{number}" for number in range(20)]


@pytest.fixture
def send(kafka):
    """Sends one event of each model as ``key`` and ``partition`` say, functions of a model's name."""
    producer = KafkaProducer(bootstrap_servers=kafka.servers)

    def sent(topic, key, partition=lambda model: None):
        for model in MODELS:
            value = encode(Triplet(model=model, query="i1", relevant="i2", irrelevant="i3"))
            producer.send(topic, value, key(model), partition=partition(model))
        producer.flush()

    yield sent
    producer.close()


@pytest.fixture
def installed(kafka, new_topic, tmp_path):
    """An installation on a topic of four partitions: its topic, and what the doctor finds, by check."""
    topic = new_topic(partitions=4)
    catalogue(tmp_path / "items")
    table = {
        "log": {"kind": "kafka", "servers": kafka.servers, "topic": topic},
        "store": {"url": f"dir:{tmp_path}/state"},
        "catalogues": {"items": {"path": str(tmp_path / "items")}},
        "models": {"user-*": {"rank": 2}},
    }

    def findings(**log):
        every = list(doctor.examine(load(None, {}, {**table, "log": {**table["log"], **log}})))
        return {finding.check: finding for finding in every}

    return topic, findings


def by(partitioner):
    """Where this partitioner puts a model among four partitions."""
    return lambda model: PARTITIONERS[partitioner](model.encode(), 4)


def test_a_producer_with_librdkafkas_default_is_told_to_set_crc32(installed, send):
    topic, findings = installed
    send(topic, str.encode, by("crc32"))
    found = findings()["senders"]
    assert found.level is Level.ERROR
    assert 'Set log.partitioner = "crc32" (nothing was learned yet)' in found.text
    assert findings(partitioner="crc32")["senders"].level is Level.OK


def test_kafkas_own_keyed_producer_is_well_and_one_without_keys_is_not(installed, send):
    topic, findings = installed
    send(topic, str.encode)
    assert findings()["senders"].level is Level.OK
    send(topic, lambda model: None)
    found = findings()["senders"]
    assert found.level is Level.ERROR
    assert "20 of the newest 40 events, of 20 models, have no key" in found.text
    assert "omdml route --from TOPIC" in found.text


def test_only_the_newest_records_of_a_topic_are_read(kafka, new_topic):
    topic = new_topic(partitions=2)
    options = KafkaOptions(servers=kafka.servers)
    assert newest_records(options, topic, "omdml", 3, 5.0) == ([], True)
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0)
    producer.send(topic, b"alone", partition=1)
    producer.close()
    records, whole = newest_records(options, topic, "omdml", 3, 5.0)
    assert sorted(record.value for record in records) == [b"7", b"8", b"9", b"alone"]
    assert not whole
    assert newest_records(options, topic, "omdml", 10, 5.0).whole


def test_a_topic_that_is_not_there_has_no_newest_records_and_is_not_made(kafka):
    options = KafkaOptions(servers=kafka.servers)
    assert newest_records(options, "nobody-made-this", "omdml", 3, 5.0) == ([], True)
    assert newest_records(options, "nobody-made-this", "omdml", 3, 5.0) == ([], True)
