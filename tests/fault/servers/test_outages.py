"""Servers that go away for longer than a session lasts, and damaged files: nothing is lost, all goes on by itself."""

from __future__ import annotations

import time

import pytest
import redis

from deploy.local import ValkeyServer
from omdml import LOMDML
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.stores.opening import open_store
from tests.fault.asking import version_served
from tests.fault.load import Load
from tests.support.forks import ForkedProcess
from tests.support.processes import free_port, wait_for
from tests.support.worlds import catalogue, learned_of

# Longer than the session timeout of a worker, and than the answer that a client waits for.
AWAY_S = 10


class Service:
    """Worker and node as processes, on a real Kafka and a Valkey that keeps what it acknowledged."""

    def __init__(self, folder, kafka, topic, valkey):
        self.items = catalogue(folder / "items")
        self.port = free_port()
        path = self.path = folder / "omdml.toml"
        path.write_text(
            f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{topic}"\n[store]\nurl = "{valkey.url}"\n'
            '[catalogues.items]\npath = "items"\n'
            '[models.shop]\nlearner = "lomdml"\nrank = 3\n[guard]\ntolerance = 2.0\n'
            f'[node]\nbind = "127.0.0.1:{self.port}"\n'
        )
        self.store = open_store(valkey.url)
        self.sink = KafkaSink(KafkaOptions(servers=kafka.servers), topic=topic, delivery_s=240)
        self.worker = ForkedProcess(folder, "worker", "--config", str(path), name="worker")
        self.node = ForkedProcess(folder, "node", "--config", str(path), name="node")
        wait_for(lambda: self.served() is not None, "an answer of the node", 60, self.node)

    def served(self):
        """The version the node answers with; None before it answers."""
        return version_served(self.port)

    def close(self):
        for process in (self.worker, self.node):
            process.close()
        self.sink.close()


@pytest.fixture
def valkey():
    with ValkeyServer(durable=True) as server:
        yield server


@pytest.fixture
def service(tmp_path, kafka, new_topic, valkey):
    service = Service(tmp_path, kafka, new_topic(), valkey)
    yield service
    service.close()


@pytest.mark.parametrize("which", ["store", "log"])
def test_an_outage_beyond_the_session_loses_nothing_and_nodes_answer(service, kafka, valkey, which):
    server = valkey if which == "store" else kafka
    load = Load(service.sink)
    try:
        wait_for(lambda: (service.served() or 0) > 100, "learning to begin", 30, service.worker)
        server.stop()
        answers, back = [], time.monotonic() + AWAY_S
        while time.monotonic() < back:
            answers.append(service.served())
            # It leaves the processors to those who are asked, and to other tests.
            time.sleep(0.02)
            assert service.worker.running, service.worker.said[-2000:]
        server.start()
    finally:
        total = load.end()
    assert None not in answers
    assert answers == sorted(answers)
    learned = learned_of(service.path, service.store.secret())
    wait_for(lambda: service.served() == len(learned), f"{total} events to be live", 60, service.worker)
    assert service.worker.stop() == 0
    twin = LOMDML(dims=dict(service.items.dims), rank=3)
    twin.learn_many(learned, service.items.features)
    assert service.store.claim("shop").checkpoint.state == twin.to_bytes()


def test_a_damaged_snapshot_leaves_the_last_good_one_serving(service, valkey):
    load = Load(service.sink)
    wait_for(lambda: (service.served() or 0) > 50, "learning to begin", 30, service.worker)
    load.end()
    assert service.worker.stop() == 0
    version = service.served()
    client = redis.Redis.from_url(valkey.url)
    live = client.hgetall("omdml:{shop}:current")
    blob = client.get(f"omdml:{{shop}}:snapshot:{version}:{live[b'digest'].decode()}")
    client.set(f"omdml:{{shop}}:snapshot:{version + 1}:bad", blob[:-20] + bytes(20))
    client.hset("omdml:{shop}:current", mapping={"version": version + 1, "digest": "bad"})
    client.hincrby("omdml:{shop}:current", "serial", 1)
    wait_for(lambda: "level=error" in service.node.said, "the node to say that it is damaged", 20, service.node)
    assert "damaged" in service.node.said
    assert service.served() == version
