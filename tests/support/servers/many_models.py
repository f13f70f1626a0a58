"""Eight models on a real topic and store, the workers that learn them, and what operators do with them."""

from __future__ import annotations

from click.testing import CliRunner

from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.kafka.topic import open_admin
from omdml.streams.stores.opening import open_store
from omdml.workers.cli import main
from omdml.workers.configuration.loading import load
from omdml.workers.wiring.kafka_topic import survey_topic
from tests.support.forks import ForkedProcess
from tests.support.processes import wait_for
from tests.support.worlds import catalogue, events

NAMES = [f"user-{number}" for number in range(8)]
EVENTS = {name: list(events(20, seed=number, model=name)) for number, name in enumerate(NAMES)}


class Place:
    """A topic, a store, a configuration of eight models."""

    def __init__(self, folder, kafka, url, topic):
        self.folder, self.kafka, self.topic, self.store = folder, kafka, topic, open_store(url)
        self.workers = 0
        catalogue(folder / "items")
        self.path = folder / "omdml.toml"
        self.path.write_text(
            f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{topic}"\ngroup = "{topic}"\n'
            f'[store]\nurl = "{url}"\n[catalogues.items]\npath = "{folder}/items"\n'
            '[models."user-*"]\nlearner = "lomdml"\nrank = 2\n'
            "[guard]\non = false\n"
        )

    def send(self, first, last):
        """Send these events for every model."""
        sink = KafkaSink(KafkaOptions(servers=self.kafka.servers), topic=self.topic)
        for name, values in EVENTS.items():
            for event in values[first:last]:
                sink.send(event, key=name)
        sink.close()

    def grow(self, partitions):
        admin = open_admin(KafkaOptions(servers=self.kafka.servers))
        admin.create_partitions({self.topic: partitions})
        admin.close()

    def worker(self, *options):
        self.workers += 1
        return ForkedProcess(self.folder, "worker", "--config", str(self.path), *options, name=f"worker-{self.workers}")

    def omdml(self, *arguments, group="topics"):
        return CliRunner().invoke(main, [group, *arguments, "--config", str(self.path)])

    def learned(self, version):
        """Whether every model is saved at this version."""
        results = [self.store.peek(name) for name in NAMES]
        return all(entry is not None and entry.version == version for entry in results)

    def states(self):
        return {name: self.store.peek(name).state for name in NAMES}


def learn(place, version):
    """Have a worker learn every model up to this version, and leave."""
    worker = place.worker()
    wait_for(lambda: place.learned(version), "everything to be learned", 60, worker)
    assert worker.stop() == 0


def learn_first_two_partitions(place):
    """Have a worker learn all of the first two partitions, on which models live, and leave."""
    worker = place.worker()
    configuration = load(str(place.path), {}, {})
    wait_for(lambda: "partition_assigned" in worker.said, "the worker to have its partitions", 60, worker)
    learned_all = lambda: all(line.lag == 0 for line in survey_topic(configuration)[:2])  # noqa: E731
    wait_for(learned_all, "the first two partitions to be learned", 60, worker)
    assert worker.stop() == 0
