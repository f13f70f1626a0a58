"""``omdml doctor --audit`` on a real topic from which Kafka removed what was learned."""

from __future__ import annotations

import pytest
from kafka import TopicPartition
from kafka.admin import ConfigResource

from tests.support import records
from tests.support.processes import flowing, wait_for
from tests.support.servers.kafka_reader import write
from tests.support.servers.one_model import EVENTS, Place
from tests.support.waiting import until


@pytest.fixture
def learned(monkeypatch, tmp_path, kafka, valkey_server, new_topic):
    """A topic of which a model has learned 30 events; the worker has ended."""
    monkeypatch.chdir(tmp_path)
    place = Place(tmp_path, kafka, valkey_server.url, new_topic(partitions=2))
    place.send(0, 30)
    worker = place.worker()
    wait_for(lambda: place.version == 30, "version 30", 60, worker)
    assert worker.stop() == 0, worker.said
    return place


def audited(place):
    """The exit code of an audit, and what it says from its table on."""
    done = place.omdml("doctor", "--audit")
    return done.exit_code, flowing(done.output.partition("without a fate")[2])


def configure(place, **options):
    configs = {name.replace("_", "."): value for name, value in options.items()}
    setting = ConfigResource("topic", place.topic, configs=configs)
    place.administer(lambda admin: admin.alter_configs([setting]))


def test_events_that_were_deleted_after_they_were_learned_lack_no_fate(learned):
    learned.administer(lambda admin: admin.delete_records({TopicPartition(learned.topic, learned.home): 20}))
    code, output = audited(learned)
    assert code == 0
    assert "shop 10 30 0 0 0 0 0" in output
    assert "deleted them after they were learned. What was learned from them stays" in output
    # Nothing is left of the log.
    learned.administer(lambda admin: admin.delete_records({TopicPartition(learned.topic, learned.home): -1}))
    code, output = audited(learned)
    assert code == 0
    assert "shop 0 30 0 0 0 0 0" in output


@pytest.mark.deep
def test_of_a_compacted_log_it_is_not_advised_to_learn_it_again(learned):
    configure(learned, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")

    def compacted():
        # The newest segment is not compacted: each of these begins another one.
        write(learned.kafka, learned.topic, [EVENTS[30]], learned.home, key=b"shop")
        return len(records.read_topic(learned.kafka.servers, learned.topic)) < 10

    until(compacted, 120)
    configure(learned, cleanup_policy="delete")
    code, output = audited(learned)
    assert code == 1
    assert "If the topic was compacted, or somebody removed records" in output
    assert "leave it as it is, because a replay would forget them" in output
