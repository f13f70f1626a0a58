"""A life by chance: workers come and go, calls are lost, partitions are added, and senders go on."""

from __future__ import annotations

import contextlib
import random
import zlib

from omdml.errors import ConfigurationError, Fenced, OmdmlError, StoreError
from omdml.feedback import Triplet, encode
from omdml.streams.memory_log import MemoryLog, MemorySource
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.configuration.config import WorkerConfig
from tests.support.oracle import Oracle, Placement, murmur2
from tests.support.records import Event
from tests.support.worlds import kill, living_on, rehomed, run_until_idle, triplets

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
# The log has so many partitions at first.
PARTITIONS = 2
# So many workers run at the same time.
FEWEST, MOST = 2, 4
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
    "keyless": 1,
    "foreign": 0.5,
    "late": 0.5,
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

        def called(items, *arguments):
            answers = []
            for item in items:
                answers += self.lossy(method)([item], *arguments)
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
    """A world in which things happen by chance: each method named in ``weights`` is one of them."""

    weights = WEIGHTS
    stores = MemoryStore

    def __init__(self, world, seed):
        world.log, world.store, world.graves = MemoryLog(PARTITIONS), self.stores(), MemoryLog()
        self.world, self.chance, self.time, self.losses, self.grown = world, random.Random(seed), 0.0, 0.0, 0
        self.triplets = iter(triplets(3000, seed=seed).tolist())
        world.now = self.now
        self.step_s = self.chance.choice([0.0, 0.001, 0.1, 1.0])
        self.sent = 0
        self.workers = [self.worker()]
        self.workers[0].step()

    def now(self):
        self.time += self.step_s
        return self.time

    def lose(self, what):
        if self.chance.random() < self.losses:
            raise StoreError(f"{what} lost")

    def worker(self):
        worker = self.world.worker(store=Unsteady(self.world.store, self), source=Behind(self.world.log))
        worker.schedule.config = WorkerConfig(
            publish_interval_s=0.02,
            checkpoint_interval_s=self.chance.choice([1, 20, 60]),
            max_poll_records=self.chance.choice([3, 20, 500]),
        )
        return worker

    def happen(self):
        """Let one thing happen, chosen at random; then begin workers until there are enough."""
        getattr(self, *self.chance.choices(list(self.weights), list(self.weights.values())))()
        while len(self.workers) < FEWEST:
            self.workers.append(self.worker())

    def send(self, name=None, partition=None, item=None):
        query, relevant, irrelevant = next(self.triplets)
        name = name or self.chance.choice(NAMES)
        item = item or f"i{relevant}"
        event = Triplet(model=name, query=f"i{query}", relevant=item, irrelevant=f"i{irrelevant}", at=1.0)
        key = name if partition is None else living_on(self.world, self.world.log.partitions[partition])
        self.world.log.send(encode(event), key, [("number", str(self.sent).encode())])
        self.sent += 1

    def keyless(self):
        """A sender without keys: its events come by any partition."""
        self.send(partition=self.chance.randrange(len(self.world.log.partitions)))

    def foreign(self):
        """Send as a sender with another partitioner would."""
        name = self.chance.choice(NAMES)
        self.send(name, murmur2(name.encode()) % len(self.world.log.partitions))

    def late(self):
        """A sender that knows only the partitions that there were at first."""
        name = self.chance.choice(NAMES)
        self.send(name, zlib.crc32(name.encode()) % PARTITIONS)

    def step(self):
        worker = self.chance.choice(self.workers)
        try:
            run_until_idle(worker, self.chance.randint(1, 4))
        except Fenced:
            self.remove(worker)

    def waits(self):
        self.time += self.chance.choice([0.5, 1.5, 30])

    def kill(self):
        self.remove(self.chance.choice(self.workers))

    def join(self):
        if len(self.workers) < MOST:
            self.workers.append(self.worker())

    def expel(self):
        self.world.log.expel(self.chance.choice(self.workers).services.source)

    def drain(self):
        worker = self.chance.choice(self.workers)
        worker.stop()
        with contextlib.suppress(OmdmlError):
            # The worker saved nothing, or not everything.
            worker.run()
        self.remove(worker)

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

    def remove(self, worker):
        """Remove a worker that is killed now, or that has ended."""
        kill(self.world, worker)
        self.workers.remove(worker)

    def end(self):
        """No more trouble: each model says something, and one worker after the other learns what is left."""
        self.losses = 0.0
        for name in NAMES:
            self.send(name)
        for worker in list(self.workers):
            self.remove(worker)
        for _ in range(3):
            worker = self.world.worker()
            for _ in range(40):
                self.time += 1.0
                worker.step()
            worker.stop()
            worker.run()
            self.place_on_more()

    def log(self):
        """The log, as the oracle reads it."""
        for partition in self.world.log.partitions:
            for record in self.world.log.read(partition, 0, 10_000):
                yield Event(partition.number, record.offset, record.value, dict(record.headers))

    def oracle(self):
        """The oracle that says what must have become of every event."""
        return Oracle(self.log(), Placement.read(self.world.store.placement(self.world.log.topic_id).encode()))
