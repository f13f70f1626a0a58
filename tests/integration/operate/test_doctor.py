"""The doctor on a real topic: how its senders choose partitions, dead letters, partitions that nobody reads."""

from __future__ import annotations

import re
import time

import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewPartitions
from kafka.structs import OffsetAndMetadata

from omdml.errors import SourceRefused
from omdml.feedback import Triplet, encode
from omdml.streams.kafka.newest import first_records, newest_records
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.topic import create_topic, look_up
from omdml.streams.kafka.topic_extents import extents
from omdml.streams.partitioners import PARTITIONERS
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.backoffice import jobs
from omdml.workers.cli import main
from omdml.workers.configuration.config import KafkaLog
from omdml.workers.configuration.loading import load
from omdml.workers.doctor.checks import installation
from omdml.workers.doctor.findings import Level
from omdml.workers.wiring import dead_letters
from tests.support.processes import wait_for
from tests.support.worlds import catalogue

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
        "models": {"user-*": {"learner": "lomdml", "rank": 2}},
    }

    def findings(**log):
        every = list(installation.examine(load(None, {}, {**table, "log": {**table["log"], **log}})))
        return {finding.check: finding for finding in every}

    return topic, findings


def by(partitioner):
    """Where this partitioner puts a model among four partitions."""
    return lambda model: PARTITIONERS[partitioner](model.encode(), 4)


def test_a_producer_with_librdkafkas_default_is_told_to_set_crc32(installed, send):
    topic, findings = installed
    send(topic, str.encode, by("crc32"))
    senders = findings()["senders"]
    assert senders.level is Level.ERROR
    assert 'Set log.partitioner = "crc32" (nothing was learned yet)' in senders.text
    assert findings(partitioner="crc32")["senders"].level is Level.OK


def test_kafkas_own_keyed_producer_is_well_and_one_without_keys_is_not(installed, send):
    topic, findings = installed
    send(topic, str.encode)
    assert findings()["senders"].level is Level.OK
    send(topic, lambda model: None)
    senders = findings()["senders"]
    assert senders.level is Level.ERROR
    assert "20 of the newest 40 events, of 20 models, have no key" in senders.text
    assert "omdml route --from TOPIC" in senders.text


def test_a_missing_topic_of_dead_letters_is_an_error_once_a_worker_has_read(installed, kafka):
    topic, findings = installed
    # Before the first worker there is none, unless the configuration names one.
    before = findings(group=topic)["letters"]
    assert (before.level, before.text) == (
        Level.OK,
        f"no dead letters; the first worker creates their topic, {topic}.letters",
    )
    assert findings(group=topic, letters="elsewhere")["letters"].level is Level.ERROR
    admin = KafkaAdminClient(bootstrap_servers=kafka.servers)
    admin.alter_group_offsets(topic, {TopicPartition(topic, 0): OffsetAndMetadata(0, "", -1)})
    admin.close()
    after = findings(group=topic)["letters"]
    assert after.level is Level.ERROR
    assert f"there is no topic {topic}.letters for dead letters" in after.text
    assert f"omdml topics create --topic {topic}.letters --partitions 1" in after.text


def test_a_deleted_topic_of_dead_letters_is_not_taken_for_one_without_letters(kafka, new_topic, tmp_path):
    topic, file = new_topic(), tmp_path / "omdml.toml"
    file.write_text(
        f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{topic}"\ngroup = "{topic}"\n'
        f'[store]\nurl = "dir:{tmp_path}/state"\n[catalogues.items]\npath = "items"\n'
        '[models.shop]\nlearner = "lomdml"\nrank = 2\n'
    )
    command = ["letters", "list", "--config", str(file)]
    first = CliRunner().invoke(main, command)
    assert (first.exit_code, first.output.strip()) == (0, "no dead letters")
    admin = KafkaAdminClient(bootstrap_servers=kafka.servers)
    admin.alter_group_offsets(topic, {TopicPartition(topic, 0): OffsetAndMetadata(0, "", -1)})
    admin.close()
    listed = CliRunner().invoke(main, command)
    assert listed.exit_code != 0
    assert f"there is no topic {topic}.letters for dead letters" in listed.output
    # Neither does the console.
    with pytest.raises(SourceRefused, match=f"omdml topics create --topic {topic}.letters"):
        jobs.letters(load(str(file), {}, {}), None, None, False, 10)


def test_a_topic_of_dead_letters_made_while_somebody_looks_is_not_missing(kafka, new_topic, monkeypatch):
    # Given a worker that creates the topic and joins the group right after the doctor looked for the topic
    topic = new_topic()
    log = KafkaLog(servers=kafka.servers, topic=topic, group=topic)
    consumers = []

    def look_up_first(*asked):
        seen = look_up(*asked)
        if not consumers:
            create_topic(KafkaOptions(servers=kafka.servers), f"{topic}.letters")
            # A broker may not know a new topic's partitions yet. The client asks again, and not after five minutes.
            again = {"metadata_max_age_ms": 500}
            consumers.append(KafkaConsumer(topic, bootstrap_servers=kafka.servers, group_id=topic, **again))
            wait_for(lambda: consumers[0].poll(100) or consumers[0].assignment(), "the worker to join", 30)
        return seen

    monkeypatch.setattr(dead_letters, "look_up", look_up_first)
    # I expect no word about a topic that is missing
    assert dead_letters.has_letters(log)
    consumers[0].close()


def test_only_the_newest_records_of_a_topic_are_read(kafka, new_topic):
    topic = new_topic(partitions=2)
    options = KafkaOptions(servers=kafka.servers)
    assert newest_records(options, topic, "omdml", 3, 5.0) == ([], True)
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0)
    producer.send(topic, b"alone", partition=1)
    producer.close()
    records, all_read = newest_records(options, topic, "omdml", 3, 5.0)
    assert sorted(record.value for record in records) == [b"7", b"8", b"9", b"alone"]
    assert not all_read
    assert newest_records(options, topic, "omdml", 10, 5.0).whole


def test_a_topic_that_is_not_there_has_no_newest_records_and_is_not_made(kafka):
    options = KafkaOptions(servers=kafka.servers)
    assert newest_records(options, "nobody-made-this", "omdml", 3, 5.0) == ([], True)
    assert newest_records(options, "nobody-made-this", "omdml", 3, 5.0) == ([], True)


def test_the_first_record_at_an_offset_is_read_of_each_partition_that_has_one(kafka, new_topic):
    topic = new_topic(partitions=3)
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=number % 2)
    producer.close()
    offsets = {Partition("any", 0): 2, Partition("any", 1): 0, Partition("any", 2): 0}
    results = first_records(KafkaOptions(servers=kafka.servers), topic, "omdml", offsets, 2.0)
    assert {place.number: (record.offset, record.value) for place, record in results.items()} == {
        0: (2, b"4"),
        1: (0, b"1"),
    }


def test_a_worker_that_is_there_and_learns_nothing_is_reported(kafka, installed):
    # Given a member of the group that owns every partition, and an event that nobody has learned for ten minutes
    topic, findings = installed
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    producer.send(topic, b"{}", partition=1, timestamp_ms=int(time.time() * 1000) - 600_000)
    producer.close()
    member = KafkaConsumer(topic, bootstrap_servers=kafka.servers, group_id="omdml", enable_auto_commit=False)
    try:
        wait_for(lambda: member.poll(timeout_ms=2000) or member.assignment(), "its partitions")
        wait_for(lambda: "rebalance" not in findings()["partitions"].text, "an owner of each partition")
        partitions = findings()["partitions"]
    finally:
        member.close()
    assert partitions.level is Level.WARNING
    assert partitions.text.startswith("partition 1 of kafka-python")
    assert ": 1 event is not learned or not saved yet, the oldest of" in partitions.text
    assert "(10 min ago)" in partitions.text


def test_doctor_tells_of_added_partitions_until_rehome_and_of_a_missing_worker(kafka, installed, send, tmp_path):
    topic, findings = installed
    options = KafkaOptions(servers=kafka.servers)
    (topic_id,) = {extent.partition.topic_id for extent in extents(options, topic, "omdml")}
    DirectoryStore(tmp_path / "state").place(topic_id, None, Placement.first("murmur2", 4))
    assert "Nothing waits to be learned, but what comes next will" in findings()["partitions"].text
    admin = KafkaAdminClient(bootstrap_servers=kafka.servers)
    admin.create_partitions({topic: NewPartitions(8)})
    admin.close()
    wait_for(lambda: len(extents(options, topic, "omdml")) == 8, "eight partitions")
    partitions = findings()["partitions"]
    assert partitions.level is Level.WARNING
    assert "partitions 4, 5, 6, 7 were added after models had been placed on 4" in partitions.text
    assert "stop the senders and the workers, then run omdml topics rehome" in partitions.text
    send(topic, str.encode, by("murmur2"))
    assert "no worker is running (none is a member of the group)" in findings()["partitions"].text


def test_a_replay_learns_what_lies_at_the_models_home_and_no_stray(kafka, new_topic, send, tmp_path):
    # Given each model's event once at its home and once elsewhere, on a lower or a higher partition
    topic = new_topic(partitions=4)
    home = by("murmur2")
    send(topic, str.encode, lambda model: (home(model) + 1) % 4)
    send(topic, str.encode, home)
    catalogue(tmp_path / "items")
    file = tmp_path / "omdml.toml"
    file.write_text(
        f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{topic}"\n'
        f'[store]\nurl = "dir:{tmp_path}/state"\n'
        f'[catalogues.items]\npath = "{tmp_path}/items"\n'
        '[models."user-*"]\nlearner = "lomdml"\nrank = 2\n[guard]\non = false\n'
    )
    for model in MODELS[:4]:
        printed = CliRunner().invoke(main, ["replay", "-c", str(file), "--model", model])
        assert printed.exit_code == 0, printed.output
        assert "lomdml: refused 1 wrong_partition" in printed.output
        assert re.search(r"lomdml\W+1 ", printed.output)
