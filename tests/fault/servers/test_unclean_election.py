"""A copy that lacks acknowledged events comes to lead: the log loses them, and the workers say so and stop."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from omdml import LOMDML
from omdml.errors import SourceError
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.kafka.topic_extents import extents
from omdml.streams.stores.opening import open_store
from tests.support.forks import ForkedProcess
from tests.support.processes import wait_for
from tests.support.worlds import catalogue, events, triplets

pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("cluster")]
TOPIC = "unclean"
EVENTS, ROWS = list(events(60)), triplets(60)
LIMIT_S = 120.0


class Place:
    """A topic in three copies that any of them may lead, and an installation of one model."""

    def __init__(self, folder, cluster, url):
        self.folder, self.cluster, self.store = folder, cluster, open_store(url)
        self.items = catalogue(folder / "items")
        settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        cluster.create_topic(TOPIC, 1, settings)
        self.path = folder / "omdml.toml"
        self.path.write_text(
            f'[log]\nkind = "kafka"\nservers = "{cluster.servers}"\ntopic = "{TOPIC}"\nmember = "one"\n'
            f'[store]\nurl = "{url}"\n[catalogues.items]\npath = "items"\n[models.shop]\nlearner = "lomdml"\nrank = 2\n'
            "[guard]\non = false\n"
        )

    def send(self, first, last):
        """Send these events, and wait until they are acknowledged."""
        sink = KafkaSink(KafkaOptions(servers=self.cluster.servers), topic=TOPIC, delivery_s=LIMIT_S)
        for event in EVENTS[first:last]:
            sink.send(event, key="shop")
        sink.flush(LIMIT_S)
        sink.close()

    def worker(self, *options):
        return ForkedProcess(self.folder, "worker", "--config", str(self.path), *options, name="worker")

    def learns(self, version, worker):
        """Return when the checkpoint has this version."""
        wait_for(lambda: (saved := self.store.peek("shop")) and saved.version == version, "learning", LIMIT_S, worker)

    def committed(self):
        """The offset that the group committed; None if no broker can say it now."""
        with suppress(SourceError):
            return extents(KafkaOptions(servers=self.cluster.servers), TOPIC, "omdml")[0].committed

    def stops(self, worker):
        """A worker ends with the sentence that says what to do, and with nothing learned that it should not."""
        assert worker.wait(LIMIT_S) == 3, worker.said[-2000:]
        assert "--accept-gap" in worker.said.splitlines()[-1]
        assert self.store.peek("shop").state == self.learned((0, 30))

    def learned(self, *parts):
        """The bytes of a model that learned exactly these events."""
        model = LOMDML(dims=dict(self.items.dims), rank=2)
        for first, last in parts:
            model.learn_many(ROWS[first:last], self.items.features)
        return model.to_bytes()


@pytest.fixture
def place(tmp_path, kafka_cluster, valkey_server):
    return Place(tmp_path, kafka_cluster, valkey_server.url)


def test_after_an_unclean_election_the_worker_stops_until_the_gap_is_accepted(place, kafka_cluster):
    # Given twenty events in all three copies, and ten more that only the leader has; a worker learned them all
    worker = place.worker()
    place.send(0, 20)
    place.learns(20, worker)
    leader = kafka_cluster.leader(TOPIC)
    others = sorted(kafka_cluster.brokers.keys() - {leader})
    for broker in others:
        kafka_cluster.kill(broker)
    kafka_cluster.wait_in_sync(TOPIC, 0, {leader})
    place.send(20, 30)
    place.learns(30, worker)
    wait_for(lambda: place.committed() == 30, "the commit, by which the next worker sees the cut", LIMIT_S, worker)
    # When the leader is gone, and one of the others leads and takes new events
    kafka_cluster.kill(leader)
    kafka_cluster.restart(*others)
    kafka_cluster.elect_unclean(TOPIC)
    place.send(40, 45)
    # And the group's own partition, of which the others lack something too, has its leader again
    kafka_cluster.restart(leader)
    back = time.monotonic()
    # Then the worker stops and says what was lost, and so does the next one
    place.stops(worker)
    stopped = time.monotonic()
    place.stops(place.worker())
    # And once that is accepted, the new events are learned behind what was: what the log lost stays learned
    accepted = time.monotonic()
    worker = place.worker("--accept-gap")
    place.learns(35, worker)
    print(f"stopped after {stopped - back:.1f} s, learned {time.monotonic() - accepted:.1f} s after --accept-gap")
    place.send(45, 60)
    place.learns(50, worker)
    assert worker.stop(60) == 0
    assert place.store.peek("shop").state == place.learned((0, 30), (40, 60))
