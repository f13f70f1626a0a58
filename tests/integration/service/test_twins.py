"""Two workers of one ``log.member``, on real Kafka and Valkey: a mistake in deploying, a restart that overlaps."""

from __future__ import annotations

from omdml import LOMDML
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.stores.opening import open_store
from tests.support.forks import ForkedProcess
from tests.support.processes import wait_for
from tests.support.worlds import catalogue, events, triplets

SAID = list(events(600))


def test_a_twin_takes_over_and_the_first_stops_with_nothing_lost_or_doubled(tmp_path, kafka, valkey_server, new_topic):
    topic, store, items = new_topic(), open_store(valkey_server.url), catalogue(tmp_path / "items")
    path = tmp_path / "omdml.toml"
    path.write_text(
        f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{topic}"\ngroup = "{topic}"\nmember = "one"\n'
        f'[store]\nurl = "{valkey_server.url}"\n[catalogues.items]\npath = "items"\n'
        '[models.shop]\nlearner = "lomdml"\nrank = 3\n'
        "[guard]\non = false\n"
    )
    sink = KafkaSink(KafkaOptions(servers=kafka.servers), topic=topic)

    def send(first, last):
        for event in SAID[first:last]:
            sink.send(event, key="shop")
        sink.flush()

    def version():
        pointer = store.current("shop")
        return -1 if pointer is None else pointer.version

    send(0, 200)
    first = ForkedProcess(tmp_path, "worker", "--config", str(path), name="first")
    wait_for(lambda: version() == 200, "what was sent", 60, first)
    twin = ForkedProcess(tmp_path, "worker", "--config", str(path), name="twin")
    wait_for(lambda: "partition_assigned" in twin.said, "the twin to be given the partition", 60, twin)
    send(200, 400)
    wait_for(lambda: version() == 400, "what was sent then", 60, twin)
    send(400, 600)
    wait_for(lambda: version() == 600, "what was sent last", 60, twin)
    assert first.wait(60) != 0
    assert "member" in first.said.splitlines()[-1]
    assert twin.stop() == 0

    model = LOMDML(dims=dict(items.dims), rank=3)
    model.learn_many(triplets(600), items.features)
    assert store.peek("shop").state == model.to_bytes()
    sink.close()
