"""The cluster of deploy/local behaves as the tests of faults take for granted."""

from __future__ import annotations

import pytest

from deploy.local import KafkaCluster, ReplicatedValkey
from tests.integration.local.messages import read_one, send


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    kafka_cluster.create_topic("copies")
    return "copies"


@pytest.mark.deep
@pytest.mark.xdist_group("cluster")
def test_a_leader_is_moved_and_killed_and_comes_back(kafka_cluster: KafkaCluster, topic: str) -> None:
    send(kafka_cluster.servers, topic, b"click")
    before = kafka_cluster.leader(topic)
    leader = kafka_cluster.move_leader(topic)
    assert leader != before
    kafka_cluster.kill(leader)
    kafka_cluster.wait_in_sync(topic, 0, {1, 2, 3} - {leader})
    assert read_one(kafka_cluster.servers, topic) == b"click"
    kafka_cluster.restart(leader)
    kafka_cluster.wait_in_sync(topic, 0, {1, 2, 3})


def test_a_replica_takes_over_without_what_it_did_not_get() -> None:
    with ReplicatedValkey() as pair:
        pair.primary.ask("SET before 1")
        pair.stop_replicating()
        pair.primary.ask("SET after 1")
        pair.take_over()
        assert pair.primary.ask("EXISTS before").startswith(":1")
        assert pair.primary.ask("EXISTS after").startswith(":0")
        pair.rejoin()
        assert "role:slave" in pair.replica.ask("INFO replication")
