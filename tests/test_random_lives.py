"""Whatever happens in whatever order, every model ends with the bytes of a run that nothing interrupted."""

from __future__ import annotations

import contextlib
import random
import zlib

import msgspec
import numpy as np
import pytest

from omdml import LOMDML
from omdml.errors import ConfigurationError, Fenced, OmdmlError, StoreError
from omdml.feedback import Triplet, encode
from streams.memory import MemoryLog, MemorySource
from streams.stores.memory import MemoryStore
from tests.test_worker_protocol import _no_waiting, kill  # noqa: F401
from tests.worlds import World, letters, living_on, rehomed, run_until_idle, triplets
from workers.config import WorkerConfig

NAMES = [f"user-{number}" for number in range(7)]
UNSTEADY = (
    "claim",
    "positions",
    "save",
    "marks",
    "move_mark",
    "publish",
    "current",
    "load",
    "note",
    "peek",
    "placement",
    "place",
    "models",
)
PARTS = ("query", "relevant", "irrelevant")
WEIGHTS = {
    "send": 6,
    "step": 14,
    "waits": 4,
    "kill": 1,
    "join": 1,
    "expel": 1,
    "drain": 1,
    "outage": 1,
    "grow": 0.7,
    "rehome": 1,
    "stray": 1,
}


class Unsteady:
    """A store that loses calls, and answers, as often as its life says."""

    def __init__(self, store, life):
        self.store, self.life = store, life

    def __getattr__(self, name):
        method = getattr(self.store, name)
        if name.endswith("_all"):
            return self.lossy_between(method)
        return self.lossy(method) if name in UNSTEADY else method

    def lossy_between(self, method):
        """A call about many models: it may be lost after any of them."""

        def called(items):
            answers = []
            for item in items:
                answers += self.lossy(method)([item])
            return answers

        return called

    def lossy(self, method):
        def called(*arguments, **options):
            self.life.lose("call")
            answer = method(*arguments, **options)
            self.life.lose("answer")
            return answer

        return called


class Behind(MemorySource):
    """A source that looks at the number of partitions now and then, and when it is given some."""

    seen = 0

    @property
    def partitions(self):
        return self.seen or len(self.log.partitions)

    def poll(self, max_records, timeout_s):
        if not self.seen or random.random() < 0.5:
            self.seen = len(self.log.partitions)
        return super().poll(max_records, timeout_s)

    def _own(self, listener):
        self.seen = len(self.log.partitions)
        super()._own(listener)


class Life:
    """A world in which things happen by chance; what was said in it, in the order of each model."""

    def __init__(self, world, seed):
        world.log, world.store, world.graves = MemoryLog(2), MemoryStore(), MemoryLog()
        self.world, self.chance, self.time, self.losses, self.grown = world, random.Random(seed), 0.0, 0.0, 0
        self.triplets = iter(triplets(3000, seed=seed).tolist())
        world.now = self.now
        self.step_s = self.chance.choice([0.0, 0.001, 0.1, 1.0])
        self.workers = [self.worker()]
        self.workers[0].services.source.poll(0, 0)

    def now(self):
        self.time += self.step_s
        return self.time

    def lose(self, what):
        if self.chance.random() < self.losses:
            raise StoreError(f"{what} lost")

    def worker(self):
        worker = self.world.worker(store=Unsteady(self.world.store, self), source=Behind(self.world.log))
        worker.config = WorkerConfig(
            publish_interval_s=0.02,
            checkpoint_interval_s=self.chance.choice([1, 20, 60]),
            max_poll_records=self.chance.choice([3, 20, 500]),
        )
        return worker

    def happen(self):
        """Something happens."""
        getattr(self, *self.chance.choices(list(WEIGHTS), list(WEIGHTS.values())))()
        self.workers = self.workers or [self.worker()]

    def send(self, name=None, partition=None):
        query, relevant, irrelevant = next(self.triplets)
        name = name or self.chance.choice(NAMES)
        event = Triplet(model=name, query=f"i{query}", relevant=f"i{relevant}", irrelevant=f"i{irrelevant}", at=1.0)
        self.world.send(encode(event), key=name if partition is None else living_on(self.world, partition))

    def stray(self):
        """A sender without a key, or one that has not heard of added partitions."""
        self.send(partition=self.chance.choice(self.world.log.partitions))

    def step(self):
        worker = self.chance.choice(self.workers)
        try:
            run_until_idle(worker, self.chance.randint(1, 4))
        except Fenced:
            self.gone(worker)

    def waits(self):
        self.time += self.chance.choice([0.5, 1.5, 30])

    def kill(self):
        self.gone(self.chance.choice(self.workers))

    def join(self):
        if len(self.workers) < 3:
            self.workers.append(self.worker())

    def expel(self):
        self.world.log.expel(self.chance.choice(self.workers).services.source)

    def drain(self):
        worker = self.chance.choice(self.workers)
        worker.stop()
        with contextlib.suppress(OmdmlError):  # it saved nothing, or not all
            worker.run()
        self.gone(worker)

    def outage(self):
        self.losses = self.chance.choice([0.0, 0.0, 0.1, 0.3])

    def grow(self):
        if self.grown < 2:
            self.grown += 1
            self.world.log.add_partitions(len(self.world.log.partitions))

    def rehome(self):
        """An operator stops the workers and asks for the next partitions; perhaps not all is learned."""
        while self.workers:
            self.drain()
        with contextlib.suppress(ConfigurationError):
            self.place_on_more()

    def place_on_more(self):
        placement = self.world.store.placement(self.world.log.topic_id)
        if placement and placement.count < len(self.world.log.partitions):
            rehomed(self.world, 2 * placement.count)

    def gone(self, worker):
        kill(self.world, worker)
        self.workers.remove(worker)

    def end(self):
        """No more trouble: each model says something, and one worker after the other learns what is left."""
        self.losses = 0.0
        for name in NAMES:
            self.send(name)
        for worker in list(self.workers):
            self.gone(worker)
        for _ in range(3):
            worker = self.world.worker()
            for _ in range(40):
                self.time += 1.0
                worker.step()
            worker.stop()
            worker.run()
            self.place_on_more()

    def fates(self):
        """What must have become of the events: of each model those to be learned, in order, and positions of letters.

        By the rule on paper, without the product's code: the log is cut where partitions were added to the placement.
        """
        steps = msgspec.json.decode(self.world.store.placement(self.world.log.topic_id).encode())["steps"]
        learned, strays = {name: [] for name in NAMES}, set()
        for number, step in enumerate(steps):
            ends = steps[number + 1]["since"] if number + 1 < len(steps) else {}
            for partition in self.world.log.partitions[: step["count"]]:
                key = str(partition.number)
                end = int(ends.get(key, self.world.log.end(partition)))
                for record in self.world.log.read(partition, 0, 10_000)[int(step["since"].get(key, 0)) : end]:
                    event = msgspec.json.decode(record.value)
                    if zlib.crc32(event["model"].encode()) % step["count"] == partition.number:
                        learned[event["model"]].append([int(event[part][1:]) for part in PARTS])
                    else:
                        strays.add((partition.number, record.offset))
        return learned, strays


@pytest.mark.parametrize("seed", range(20))
def test_every_event_is_learned_once_and_in_order_or_is_one_letter(tmp_path, seed):
    random.seed(seed)
    life = Life(World(tmp_path), seed)
    for _ in range(140):
        life.happen()
    life.end()
    learned, strays = life.fates()
    assert {(letter.partition.number, letter.offset) for letter in letters(life.world)} == strays
    assert {letter.reason for letter in letters(life.world)} <= {"wrong_partition"}
    for name, rows in learned.items():
        alone = LOMDML(dims=dict(life.world.catalogue.dims), rank=2)
        alone.start(life.world.catalogue.features)
        alone.learn_many(np.array(rows), life.world.catalogue.features)
        kept = life.world.store.peek(name)
        assert (name, kept.version) == (name, len(rows))
        assert kept.state == alone.to_bytes()
