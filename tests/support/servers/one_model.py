"""One model on a real topic of two partitions and a real store, and the worker that learns it."""

from __future__ import annotations

import json

from click.testing import CliRunner

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
from tests.support.waiting import until
from tests.support.worlds import catalogue, events, triplets

EVENTS, ROWS = list(events(60)), triplets(60)


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
        for event in EVENTS[first:last]:
            sink.send(event, key="shop")
        sink.close()

    def administer(self, do):
        admin = open_admin(self.options)
        try:
            return do(admin)
        finally:
            admin.close()

    def recreate_topic(self):
        """Delete the topic, and make it again under its name."""
        self.kafka.delete_topic(self.topic)
        until(lambda: self.topic not in self.administer(lambda admin: admin.list_topics()))
        self.kafka.create_topic(self.topic, 2)

    def worker(self, *options):
        return ForkedProcess(self.folder, "worker", "--config", str(self.path), *options, name="worker")

    def goes_on_with(self, first, last):
        """Accept the gap, and check that the model learns these events behind the first ten, each once."""
        worker = self.worker("--accept-gap")
        wait_for(lambda: self.version == 10 + last - first, "the rest of the log to be learned", 60, worker)
        assert worker.stop() == 0, worker.said
        assert "event=gap_accepted" in worker.said
        self.expect((0, 10), (first, last))

    def transact(self, producer, values, commit):
        """Send events in a transaction, then commit it, or abort it with all of them in the log."""
        producer.begin_transaction()
        for event in values:
            producer.send(self.topic, event, key=b"shop")
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)()

    def stops(self):
        """Run a worker that must stop for an operator (exit code 3); returns its last line."""
        worker = self.worker()
        assert worker.wait(60) == 3, worker.said
        return worker.said.splitlines()[-1]

    def expect(self, *parts):
        """Check bytes and live version: those of a model that learned exactly these parts of EVENTS."""
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
