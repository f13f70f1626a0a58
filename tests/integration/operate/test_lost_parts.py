"""Checkpoints of a model in parts that something removed, on real Kafka and Valkey: who waits, and what mends it."""

from __future__ import annotations

import re

import pytest
import redis
from click.testing import CliRunner

from omdml.streams.stores.opening import open_store
from omdml.workers.cli import main
from tests.support import records
from tests.support.forks import ForkedProcess
from tests.support.oracle import Oracle, Placement
from tests.support.processes import wait_for
from tests.support.servers.kafka_reader import write
from tests.support.worlds import catalogue, events

PARTS = ["hot::part-0", "hot::part-1"]


class Place:
    """A topic of two partitions, a store, and a model in parts beside one that is not."""

    def __init__(self, folder, kafka, url, topic):
        self.folder, self.kafka, self.topic, self.url, self.store = folder, kafka, topic, url, open_store(url)
        self.workers = self.sent = 0
        catalogue(folder / "items")
        self.path = folder / "omdml.toml"
        self.path.write_text(
            f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{topic}"\ngroup = "{topic}"\n'
            f'[store]\nurl = "{url}"\n[catalogues.items]\npath = "{folder}/items"\n'
            '[models.hot]\ncoordinates = "features"\nparts = true\n[models.shop]\nlearner = "lomdml"\nrank = 2\n'
            "[guard]\non = false\n"
        )

    def send(self, count):
        """Send ``count`` events of each model by each partition."""
        for partition in (0, 1):
            for model in ("shop", "hot"):
                self.sent += 1
                write(self.kafka, self.topic, events(count, seed=self.sent, model=model), partition)

    def worker(self):
        self.workers += 1
        return ForkedProcess(self.folder, "worker", "--config", str(self.path), name=f"worker-{self.workers}")

    def omdml(self, *arguments):
        result = CliRunner().invoke(main, [*arguments, "--config", str(self.path)])
        return result.exit_code, " ".join(re.sub("[┃│]", " ", result.output).split())

    def version(self, name):
        checkpoint = self.store.peek(name)
        return checkpoint.version if checkpoint else -1

    def learn(self):
        """Have a worker learn everything, and leave."""
        worker, findings = self.worker(), ["nothing was looked at"]

        def adds_up():
            findings[:] = self.findings()
            return not findings

        try:
            wait_for(adds_up, "everything learned", 30, worker)
        finally:
            assert worker.stop() == 0, f"{findings}: {worker.said}"

    def findings(self):
        with redis.Redis.from_url(self.url) as client:
            if not list(client.scan_iter("omdml:placement:*")):
                return ["no worker was here"]
            placement = Placement.read(records.placement_in_redis(client, "omdml"))
            checkpoints = records.checkpoints_in_redis(client, "omdml")
        log = records.read_topic(self.kafka.servers, self.topic)
        letters = [event.value for event in records.read_topic(self.kafka.servers, f"{self.topic}.letters")]
        return Oracle(log, placement, in_parts=["hot"]).findings(checkpoints, letters)

    def remove_checkpoints(self, *names):
        """Remove the keys of checkpoints, as a server that evicts does."""
        with redis.Redis.from_url(self.url) as client:
            for name in names:
                key = f"omdml:{{{name.replace(':', '%3A')}}}:checkpoint"
                assert client.delete(key, f"{key}:previous")


@pytest.fixture
def place(tmp_path, kafka, valkey_server, new_topic):
    place = Place(tmp_path, kafka, valkey_server.url, new_topic(partitions=2))
    place.send(20)
    place.learn()
    return place


def test_a_rewind_learns_a_part_again_whose_checkpoint_was_removed(place):
    place.remove_checkpoints("hot::part-1")
    assert place.omdml("topics", "rewind", "--yes")[1].startswith("4 models deleted")
    place.learn()
    assert place.version("hot") == 40


def test_other_models_learn_on_if_nothing_of_a_model_in_parts_can_be_read(place):
    place.remove_checkpoints("hot", *PARTS)
    place.send(10)
    worker = place.worker()
    wait_for(lambda: "event=model_waits model=hot::part-1" in worker.said, "the part to wait", 60, worker)
    wait_for(lambda: place.version("shop") == 30, "the other model to learn", 30, worker)
    assert worker.stop() == 0
    assert "model_waits model=shop" not in worker.said


def test_doctor_and_list_name_a_part_whose_checkpoint_was_removed(place):
    place.remove_checkpoints("hot::part-1")
    text = place.omdml("doctor")[1]
    assert "part 1 of model hot waits: something removed its checkpoints" in text
    assert "omdml models reset hot" in text
    listed = place.omdml("models", "list")[1]
    assert "waits: no checkpoint can be read" in listed[listed.index("hot::part-1") :]
    assert "run omdml models reset hot" in place.omdml("models", "reset", "hot::part-1", "--yes")[1]


def test_a_reset_begins_a_model_again_of_which_nothing_can_be_read(place):
    place.remove_checkpoints("hot", *PARTS)
    worker = place.worker()
    place.send(10)
    wait_for(lambda: "event=model_waits model=hot::part-1" in worker.said, "the part to wait", 60, worker)
    assert place.omdml("models", "reset", "hot", "--yes") == (
        0,
        "hot: each of its parts (2) is at its start, version 0",
    )
    place.send(5)
    wait_for(lambda: place.version("hot") == 30, "the events that waited, and those that came then", 60, worker)
    assert [place.version(name) for name in PARTS] == [15, 15]
    assert worker.stop() == 0
