"""Two workers of one ``log.member``, on real Kafka and Valkey: a mistake in deploying, a restart that overlaps."""

from __future__ import annotations

from omdml import LOMDML
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.stores.opening import open_store
from tests.support.forks import ForkedProcess
from tests.support.processes import wait_for
from tests.support.worlds import catalogue, events, triplets

EVENTS = list(events(3_000))


def test_of_two_workers_of_one_name_one_stops_with_nothing_lost_or_doubled(tmp_path, kafka, valkey_server, new_topic):
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
        for event in EVENTS[first:last]:
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
    sent = 200

    def one_stopped():
        # The broker refuses the commits of a worker whose name was taken. If nothing comes, there is nothing to commit.
        nonlocal sent
        send(sent, sent + 1)
        sent += 1
        return not (first.running and twin.running)

    wait_for(one_stopped, "one of the two to stop", 60)
    stopped, other = (twin, first) if first.running else (first, twin)
    assert stopped.wait(60) != 0
    assert "member" in stopped.said.splitlines()[-1]
    wait_for(lambda: version() == sent, "what was sent", 60, other)
    assert other.stop() == 0

    model = LOMDML(dims=dict(items.dims), rank=3)
    model.learn_many(triplets(3_000)[:sent], items.features)
    assert store.peek("shop").state == model.to_bytes()
    sink.close()
