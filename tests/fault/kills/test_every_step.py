"""Workers that are killed between any two steps of the protocol lose nothing and double nothing."""

from __future__ import annotations

import signal
import time

import pytest
import redis

from omdml.feedback import Triplet, encode
from omdml.streams.files.source import FileSink
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.stores.opening import open_store
from tests.fault.chaos.breaking.clocks import scraped
from tests.fault.kills.killed_at import STEPS
from tests.fault.twin import learned_bytes
from tests.support.deep import deep_after
from tests.support.forks import ForkedProcess
from tests.support.oracle import GUARD_EVERY, STRAY, Oracle, Placement, Step, drawn
from tests.support.processes import free_port, wait_for
from tests.support.records import (
    checkpoints_in_folder,
    checkpoints_in_redis,
    placement_in_folder,
    placement_in_redis,
    read_outcomes,
    read_segments,
    read_topic,
)
from tests.support.worlds import catalogue, events

# Only these steps are tested on real servers, too. A kill after another step leaves the same in the servers.
STORED = ("save", "publish", "mark")
PARTITIONS = 2
RANK, LIMIT_S, PAUSE_S = 3, 240, 0.02
# One round in this many also sends broken events, keyless ones, or ones placed by another partitioner.
BROKEN_EVERY, KEYLESS_EVERY, FOREIGN_EVERY = 20, 5, 7


class Place:
    """An installation with a model on every partition, and as many workers; the last sink has another partitioner."""

    def __init__(self, folder, placement, logs, url, sinks):
        self.folder, self.items, self.sinks, self.store = folder, catalogue(folder / "items"), sinks, open_store(url)
        self.sent = self.rounds = 0
        names = [f"user-{number}" for number in range(50)]
        self.models = [next(name for name in names if placement.home(name) == home) for home in range(len(logs))]
        self.said = {model: events(50_000, seed, model) for seed, model in enumerate(self.models)}
        self.ports = [free_port() for _ in logs]
        for number, (log, port) in enumerate(zip(logs, self.ports, strict=True)):
            self.file(number).write_text(
                f'[log]\n{log}\n[store]\nurl = "{url}"\n[catalogues.items]\npath = "{folder}/items"\n'
                f'[worker]\nbind = "127.0.0.1:{port}"\n'
                f'[models."user-*"]\nlearner = "lomdml"\nrank = {RANK}\n[guard]\ntolerance = 2.0\n'
            )

    def file(self, number):
        return self.folder / f"worker-{number}.toml"

    def send(self):
        """Send an event of every model, some without a key or placed by another partitioner. Now and then also send a
        line that is no event, and an event of an unknown item."""
        sink = self.sinks[0]
        if self.rounds % BROKEN_EVERY == 0:
            unknown = Triplet(model=self.models[0], query="i0", relevant="nobody", irrelevant="i3")
            for broken in (b"broken", encode(unknown)):
                self._send(sink, broken, self.models[0], ("bad", b"yes"))
        for model, said in self.said.items():
            foreign, keyless = self.rounds % FOREIGN_EVERY == 0, self.rounds % KEYLESS_EVERY == 0
            self._send(self.sinks[-foreign], next(said), None if keyless else model)
        self.rounds += 1

    def _send(self, sink, event, key, *headers):
        sink.send(event, key=key, headers=[("number", str(self.sent).encode()), *headers])
        self.sent += 1

    def worker(self, number, *killed_at):
        """A worker, which may kill itself."""
        command = ("worker", "--config", str(self.file(number)))
        module, name = ("tests.fault.kills.killed_at", "killed") if killed_at else ("omdml.workers.cli", "worker")
        return ForkedProcess(self.folder, *map(str, killed_at), *command, name=f"{name}-{number}", module=module)

    def workers(self, *killed_at):
        """A worker for each port; ``killed_at`` goes to each of them."""
        return [self.worker(number, *killed_at) for number in range(len(self.ports))]

    def judge(self):
        """What must have become of every event so far; everything that was sent is acknowledged."""
        for sink in self.sinks:
            sink.flush()
        held_out = drawn(self.store.secret(), GUARD_EVERY)
        placement = Placement.read(self.placement())
        return Oracle(self.log(), placement, held_out)

    def findings(self, oracle):
        numbers = (str(number).encode() for number in range(self.sent))
        return oracle.findings(self.checkpoints(), (letter.value for letter in self.letters()), numbers)


def in_files(folder):
    log = f'kind = "file"\npath = "{folder}/feedback"\nletters = "{folder}/letters"'
    sink = FileSink(folder / "feedback")
    place = Place(folder, Placement("murmur2", [Step(1)]), [log], f"dir:{folder}/state", [sink])
    place.log = lambda: read_segments(folder / "feedback")
    place.letters = lambda: read_segments(folder / "letters")
    place.checkpoints = lambda: checkpoints_in_folder(folder / "state")
    place.placement = lambda: placement_in_folder(folder / "state")
    return place


def on_servers(folder, servers, topic, url):
    log = f'kind = "kafka"\nservers = "{servers}"\ntopic = "{topic}"\nsession_timeout_s = 6'
    logs = [f'{log}\nmember = "member-{number}"' for number in range(PARTITIONS)]
    options = KafkaOptions(servers=servers)
    sinks = [KafkaSink(options, topic=topic, partitioner=partitioner) for partitioner in ("murmur2", "crc32")]
    place = Place(folder, Placement("murmur2", [Step(PARTITIONS)]), logs, f"{url}?prefix={topic}", sinks)
    client = redis.Redis.from_url(url)
    place.log = lambda: read_topic(servers, topic)
    place.letters = lambda: read_topic(servers, f"{topic}.letters")
    place.checkpoints = lambda: checkpoints_in_redis(client, topic)
    place.placement = lambda: placement_in_redis(client, topic)
    return place


@pytest.fixture
def place(request, tmp_path):
    if request.param == "file log and folder":
        place = in_files(tmp_path)
    else:
        servers = request.getfixturevalue("kafka").servers
        topic, url = request.getfixturevalue("new_topic")(PARTITIONS), request.getfixturevalue("valkey_server").url
        place = on_servers(tmp_path, servers, topic, url)
    yield place
    for sink in place.sinks:
        sink.close()


def until_killed(place, doomed):
    """Send until these workers have ended."""
    deadline = time.monotonic() + LIMIT_S
    while any(worker.running for worker in doomed):
        assert time.monotonic() < deadline, "\n".join(worker.said[-2000:] for worker in doomed)
        place.send()
        # Events keep coming, at a pace that workers keep up with.
        time.sleep(PAUSE_S)
    for worker in doomed:
        assert worker.wait() == -signal.SIGKILL, worker.said[-2000:]


def end(place, workers):
    """Wait until every event has its fate, and have the workers leave; answers the oracle."""
    oracle = place.judge()
    deadline = time.monotonic() + LIMIT_S
    while result := place.findings(oracle):
        text = "\n".join(worker.said[-2000:] for worker in workers)
        assert time.monotonic() < deadline, f"{result}\n{text}"
        assert all(worker.running for worker in workers), f"{result}\n{text}"
        # Each look reads the whole log, beside the workers that it waits for.
        time.sleep(0.2)
    for worker in workers:
        wait_for(lambda worker=worker: "partition_assigned" in worker.said, "the worker to be at work", 60, worker)
        assert worker.stop() == 0, worker.said[-2000:]
    return oracle


@pytest.mark.parametrize(
    ("place", "step"),
    deep_after(
        2,
        [("file log and folder", "take"), ("file log and folder", "commit")]
        + [("file log and folder", step) for step in STEPS if step not in ("take", "commit")],
    )
    + deep_after(1, [("Kafka and Valkey", step) for step in STORED]),
    indirect=["place"],
)
def test_killed_after_a_step_twice_it_ends_with_the_bytes_of_a_run_never_killed(place, step):
    # Given events that keep coming, and workers that die right after this step, all of them, twice
    for _ in range(2):
        until_killed(place, place.workers(step, 1))
    # If workers are left alone then, I expect that every event has one fate, and the bytes of a run never killed.
    oracle = end(place, place.workers())
    assert place.findings(oracle) == []
    assert (STRAY in oracle.letters.values()) == (len(place.ports) > 1)
    for model in place.models:
        assert place.store.peek(model).state == learned_bytes(oracle.learned(model), place.items, RANK)
        versions = [line["version"] for line in place.store.history(model) if line["what"] == "published"]
        assert versions == sorted(versions)


@pytest.mark.parametrize("place", ["file log and folder", "Kafka and Valkey"], indirect=True)
def test_without_a_kill_the_metrics_add_up_too(place):
    workers = place.workers()
    for worker in workers:
        wait_for(lambda worker=worker: "partition_assigned" in worker.said, "the worker to be at work", 60, worker)
    for _ in range(60):
        place.send()
    oracle = place.judge()
    wait_for(lambda: place.findings(oracle) == [], "every event to have its fate", LIMIT_S)
    outcomes = read_outcomes(map(scraped, place.ports))
    assert outcomes["learned"] == sum(len(oracle.learned(model)) for model in place.models)
    assert outcomes["learned"] + outcomes["held_out"] == sum(map(len, oracle.taken.values()))
    assert outcomes["refused"] == len(oracle.letters)
    assert end(place, workers)
