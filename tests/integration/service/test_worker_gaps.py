"""What a log may lose, or hold beside events, met by a worker process on real Kafka and Valkey.

Each either loses nothing, or stops the worker with the sentence that says what to do.
"""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from kafka import KafkaProducer, TopicPartition

from omdml import LOMDML
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.kafka.topic import describe, open_admin
from omdml.streams.partitioners import by_murmur2
from omdml.streams.protocols.log import Partition
from omdml.streams.stores.opening import open_store
from omdml.workers.cli import main
from tests.support.forks import ForkedProcess
from tests.support.processes import wait_for
from tests.support.servers.kafka_reader import write
from tests.support.waiting import until
from tests.support.worlds import catalogue, events, triplets

SAID, ROWS = list(events(60)), triplets(60)


class Place:
    """A topic of two partitions, a store, a configuration of one model."""

    def __init__(self, folder, kafka, url, topic):
        self.folder, self.kafka, self.topic, self.store = folder, kafka, topic, open_store(url)
        self.items = catalogue(folder / "items")
        self.options = KafkaOptions(servers=kafka.servers)
        self.home = by_murmur2(b"shop", 2)
        self.path = folder / "omdml.toml"
        self.path.write_text(
            f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{topic}"\ngroup = "{topic}"\n'
            f'[store]\nurl = "{url}"\n[catalogues.items]\npath = "items"\n[models.shop]\nlearner = "lomdml"\nrank = 2\n'
            "[guard]\non = false\n"
        )

    def send(self, first, last):
        sink = KafkaSink(self.options, topic=self.topic)
        for event in SAID[first:last]:
            sink.send(event, key="shop")
        sink.close()

    def administer(self, do):
        admin = open_admin(self.options)
        try:
            return do(admin)
        finally:
            admin.close()

    def created_anew(self):
        """The topic deleted, and made again under its name."""
        self.kafka.delete_topic(self.topic)
        until(lambda: self.topic not in self.administer(lambda admin: admin.list_topics()))
        self.kafka.create_topic(self.topic, 2)

    def worker(self, *options):
        return ForkedProcess(self.folder, "worker", "--config", str(self.path), *options, name="worker")

    def goes_on_with(self, first, last):
        """If the gap is accepted, I expect these events behind the first ten, each once."""
        worker = self.worker("--accept-gap")
        wait_for(lambda: self.version == 10 + last - first, "what the log still has", 60, worker)
        assert worker.stop() == 0, worker.said
        assert "event=gap_accepted" in worker.said
        self.expect((0, 10), (first, last))

    def transact(self, producer, said, commit):
        """Send events in a transaction that comes about, or is aborted with all of them in the log."""
        producer.begin_transaction()
        for event in said:
            producer.send(self.topic, event, key=b"shop")
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)()

    def stops(self):
        """The sentence that a worker stops with."""
        worker = self.worker()
        assert worker.wait(60) == 3, worker.said
        return worker.said.splitlines()[-1]

    def expect(self, *parts):
        """The bytes, and the live version, of a model that learned exactly these events."""
        model = LOMDML(dims=dict(self.items.dims), rank=2)
        for first, last in parts:
            model.learn_many(ROWS[first:last], self.items.features)
        assert self.store.peek("shop").state == model.to_bytes()
        assert self.store.current("shop").version == model.version

    @property
    def version(self):
        checkpoint = self.store.peek("shop")
        return -1 if checkpoint is None else checkpoint.version

    def mark(self, number):
        partition = self.administer(lambda admin: Partition(describe(admin, self.topic).id, number))
        return self.store.marks([partition]).get(partition)

    @property
    def letters(self):
        return [json.loads(line) for line in self.omdml("letters", "list", "--json").output.splitlines()]

    def omdml(self, *arguments):
        return CliRunner().invoke(main, [*arguments, "--config", str(self.path)])


@pytest.fixture
def place(tmp_path, kafka, valkey_server, new_topic):
    return Place(tmp_path, kafka, valkey_server.url, new_topic(partitions=2))


def test_retention_past_the_commit_stops_the_worker_until_the_gap_is_accepted(place):
    place.send(0, 10)
    worker = place.worker()
    wait_for(lambda: place.version == 10, "version 10", 60, worker)
    assert worker.stop() == 0
    place.send(10, 30)
    place.administer(lambda admin: admin.delete_records({TopicPartition(place.topic, place.home): 20}))
    message = place.stops()
    for said in (place.topic, f"partition {place.home}", "offset 10", "20 up to 30", "--accept-gap"):
        assert said in message
    place.expect((0, 10))

    place.goes_on_with(20, 30)


def test_a_topic_created_again_stops_the_worker_until_the_gap_is_accepted(place):
    place.send(0, 10)
    worker = place.worker()
    wait_for(lambda: place.version == 10, "version 10", 60, worker)
    place.created_anew()
    place.send(10, 30)
    assert worker.wait(60) == 3
    lines = worker.said.splitlines()[-1]
    assert "again" in lines
    assert "--accept-gap" in lines
    place.expect((0, 10))
    place.goes_on_with(10, 30)


def test_a_compacted_topic_is_refused_at_the_start(tmp_path, kafka, valkey_server, new_topic):
    place = Place(tmp_path, kafka, valkey_server.url, new_topic(configs={"cleanup.policy": "compact"}))
    message = place.stops()
    for said in (
        place.topic,
        "cleanup.policy=compact",
        "one event for each model",
        "--add-config cleanup.policy=delete",
    ):
        assert said in message
    assert place.store.models() == []


def test_aborted_transactions_are_passed_over_and_nothing_else_is(place):
    place.send(0, 10)
    producer = KafkaProducer(bootstrap_servers=place.kafka.servers, transactional_id=f"of-{place.topic}")
    producer.init_transactions()
    for said, commit in ((SAID[40:50], False), (SAID[10:20], True), (SAID[50:60], False)):
        place.transact(producer, said, commit)
    producer.close()
    worker = place.worker()
    end = 10 + 10 + 1 + 10 + 1 + 10 + 1  # a marker ends each transaction
    wait_for(lambda: place.mark(place.home) == end, "the mark behind what was aborted", 60, worker)
    assert worker.stop() == 0
    place.expect((0, 20))
    assert place.omdml("topics", "status").exit_code == 0


def test_events_in_another_partition_are_dead_letters_and_the_rest_is_exact(place):
    place.send(0, 10)
    worker = place.worker()
    wait_for(lambda: place.version == 10, "version 10", 60, worker)
    write(place.kafka, place.topic, SAID[40:45], partition=1 - place.home, key=b"shop")
    place.send(10, 20)
    wait_for(lambda: place.version == 20, "version 20", 60, worker)
    wait_for(lambda: place.mark(1 - place.home) == 5, "the mark behind the strays", 60, worker)
    assert worker.stop() == 0
    place.expect((0, 20))
    letters = place.letters
    assert [letter["reason"] for letter in letters] == ["wrong_partition"] * 5
    assert all("Have its sender use the model's name as key" in letter["error"] for letter in letters)
