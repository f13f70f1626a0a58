"""kill -9 of two workers at random, under load, on real Kafka and Valkey: parts of a model lose and double nothing."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from itertools import pairwise

from omdml import DCA
from omdml.batch.sums import emptied
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.stores.opening import open_store
from omdml.workers.configuration.loading import load
from omdml.workers.model.parts.vector import Vector
from omdml.workers.operate.replay import read_whole
from omdml.workers.wiring.feedback_log import open_ungrouped
from tests.fault.load import MOST, Load
from tests.support.forks import ForkedProcess
from tests.support.learning.parts import alone, same_sums, summed_in_order
from tests.support.processes import wait_for
from tests.support.worlds import catalogue, events, is_held_out

KILLS, PARTITIONS = 4, 4
CONFIGURATION = """
[log]
kind = "kafka"
servers = "{servers}"
topic = "{topic}"
session_timeout_s = 6
member = "{member}"
[store]
url = "{store}"
[catalogues.items]
path = "items"
[models.hot]
coordinates = "features"
parts = true
[worker]
checkpoint_interval_s = 0.2
"""


class Spread:
    """A sink that gives every event another key, so that they come by any partition."""

    def __init__(self, sink):
        self._sink, self._sent = sink, 0
        self.flush = sink.flush

    def send(self, value, key=None):
        self._sink.send(value, f"{key}-{self._sent}")
        self._sent += 1


class LiveVectors:
    """The vectors that were live whenever somebody looked, in order."""

    def __init__(self, store):
        self._store, self.seen = store, []

    def newest(self):
        """Look at the live vector; None if there is none yet."""
        loaded = self._store.load("hot")
        if not loaded or not loaded[1].vector:
            return None
        vector = Vector.of_text(loaded[1].vector)
        if not self.seen or str(self.seen[-1]) != str(vector):
            self.seen.append(vector)
        return vector

    def moved(self):
        """A condition that holds once another vector is live than now."""
        before = str(self.newest())
        return lambda: str(self.newest()) != before

    def has_all(self, total):
        """Whether the live vector has every part, and these add up to ``total`` events."""
        vector = self.newest()
        return vector is not None and len(vector.parts) == PARTITIONS and sum(vector.positions.values()) == total


def oracle(path, store, start, features, ends):
    """The sums of each partition's events up to these offsets, learned alone and added in order."""
    records, secret = defaultdict(list), store.secret()
    for some in read_whole(open_ungrouped(load(str(path), {}, {}).log)):
        for record in some:
            number = record.partition.number
            if record.offset < ends[number] and not is_held_out(secret, f"hot::part-{number}", number, record.offset):
                records[number].append(record)
    return summed_in_order(alone(start, records[number], features) for number in sorted(records))


def test_parts_under_kills_equal_an_oracle_that_learns_each_partition_alone(kafka, new_topic, valkey_server, tmp_path):
    topic, items = new_topic(PARTITIONS), catalogue(tmp_path / "items")
    paths = [tmp_path / f"{member}.toml" for member in ("one", "two")]
    for path in paths:
        path.write_text(
            CONFIGURATION.format(servers=kafka.servers, topic=topic, member=path.stem, store=valkey_server.url)
        )

    def started(number):
        return ForkedProcess(tmp_path, "worker", "--config", str(paths[number]), name=f"worker-{number}")

    chance, store = random.Random(11), open_store(valkey_server.url)
    sink = KafkaSink(KafkaOptions(servers=kafka.servers), topic=topic)
    load_, workers = Load(Spread(sink), events(MOST, model="hot")), [started(0), started(1)]
    live = LiveVectors(store)
    try:
        for _ in range(KILLS):
            wait_for(live.moved(), "a later vector", 60, workers[0])
            time.sleep(chance.uniform(0, 0.7))
            victim = chance.randrange(2)
            workers[victim].kill()
            workers[victim] = started(victim)
        load_.end()
        sink.flush()
        source = open_ungrouped(load(str(paths[0]), {}, {}).log)
        total = sum(len(records) for records in read_whole(source))
        assert total == load_.sent
        wait_for(lambda: live.has_all(total), "the vector of all events", 90, workers[0])
        assert [worker.stop() for worker in workers] == [0, 0], [worker.said[-2000:] for worker in workers]
    finally:
        load_.end()
        for worker in workers:
            worker.close()
        sink.close()
    assert len(live.seen) > KILLS
    assert all(later.reaches(earlier) for earlier, later in pairwise(live.seen))
    learner = DCA.from_bytes(store.peek("hot").state)
    ends = live.newest().positions
    assert same_sums(learner, oracle(paths[0], store, emptied(learner), items.features, ends))
    assert store.load("hot")[1].metric.to_tensors()[0].keys() == learner.metric.to_tensors()[0].keys()
    held_out = [store.peek(f"hot::part-{number}").progress["hold_out"]["count"] for number in range(PARTITIONS)]
    assert learner.version + sum(held_out) == total
