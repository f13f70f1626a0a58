"""Doctor's checks of durability, asked of real servers."""

from __future__ import annotations

import pytest
import redis

from deploy.local import ValkeyServer
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.routing.beginning import decide_beginning
from omdml.workers.configuration.config import KafkaLog
from omdml.workers.doctor.checks.durability import of_log, of_store, safety_of
from omdml.workers.doctor.findings import Level


def texts(found):
    assert {remark.level for remark in found} == {Level.WARNING}
    return " ".join(remark.text for remark in found)


def test_each_unsafe_setting_of_a_topic_of_one_copy_is_reported(kafka, new_topic):
    unsafe = {
        "unclean.leader.election.enable": "true",
        "retention.ms": "3600000",
        "retention.bytes": "1000000",
        "cleanup.policy": "compact,delete",
    }
    text = texts(of_log(KafkaLog(servers=kafka.servers, topic=new_topic(configs=unsafe))))
    for words in ("one copy", "unclean.leader.election.enable=true", "1 hour,", "1,000,000 bytes", "compact,delete"):
        assert words in text


def test_every_topic_that_the_log_works_with_is_looked_at(kafka, new_topic):
    # Given topics of feedback, of letters and of unkeyed events that keep these for an hour, and a router's group
    hour = {"retention.ms": "3600000"}
    feedback, letters, clicks, clicks_for_ever = (
        new_topic(configs=each) for each in (None, hour, hour, {"retention.ms": "-1"})
    )
    log = KafkaLog(servers=kafka.servers, topic=feedback, letters=letters)
    for origin in (clicks, clicks_for_ever):
        decide_beginning(KafkaOptions(servers=kafka.servers), origin, feedback, f"omdml.route.{origin}", None)
    remarks = [remark.text for remark in of_log(log)]
    for topic, words in (
        (letters, "deletes dead letters after 1 hour"),
        (clicks, "deletes events after 1 hour"),
        (clicks_for_ever, "keeps events for ever, but Kafka forgets how far they were routed 7 days after"),
    ):
        assert [text for text in remarks if text.startswith(f"topic {topic!r} {words}")], remarks


@pytest.mark.parametrize("policy", ["allkeys-lru", "noeviction"])
def test_a_server_without_an_append_only_file_is_reported(policy):
    with ValkeyServer(durable=False, arguments=("--maxmemory-policy", policy)) as server:
        text = texts(of_store(server.url, safety_of(server.url)))
    assert "appendonly is no, and it has no save points" in text
    assert ("allkeys-lru" in text) == (policy == "allkeys-lru")


def test_a_durable_server_is_safe_also_for_a_user_who_may_not_ask(valkey_server):
    assert "on disk before it is acknowledged" in of_store(valkey_server.url, safety_of(valkey_server.url))
    with redis.Redis.from_url(valkey_server.url) as client:
        client.acl_setuser("worker", enabled=True, passwords=["+secret"], categories=["-@all"], commands=["+info"])
        url = valkey_server.url.replace("redis://", "redis://worker:secret@")
        findings = of_store(url, safety_of(url))
        client.acl_deluser("worker")
    assert "this user may not ask" in findings
