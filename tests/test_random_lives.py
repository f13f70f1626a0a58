"""Whatever happens in whatever order, every model ends with the bytes of a run that nothing interrupted."""

from __future__ import annotations

import contextlib
import itertools
import random

import numpy as np
import pytest

from omdml import LOMDML
from omdml.errors import Fenced, OmdmlError, StoreError
from omdml.feedback import Triplet, encode
from streams.memory import MemoryLog, MemorySource
from streams.stores.memory import MemoryStore
from tests.test_worker_protocol import _no_waiting, kill  # noqa: F401
from tests.worlds import World, letters, rehomed, run_until_idle, triplets
from workers.config import WorkerConfig


def straight(name):
    """Whether a model never comes back to a partition as others are added: else its events have no order there."""
    path = [number for number, _ in itertools.groupby(MemoryLog(count).home(name).number for count in range(2, 7))]
    return len(path) == len(set(path))


NAMES = list(itertools.islice(filter(straight, map("user-{}".format, range(1000))), 7))
UNSTEADY = ("claim", "positions", "save", "marks", "move_mark", "publish", "current", "load", "note", "peek")
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
    "rehome": 2,
}


class Unsteady:
    """A store that loses calls, and answers, as often as its life says."""

    def __init__(self, store, life):
        self.store, self.life = store, life

    def __getattr__(self, name):
        method = getattr(self.store, name)
        return self.lossy(method) if name in UNSTEADY else method

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

    def home(self, key, partitions=None, /):
        return super().home(key, partitions or self.partitions)


class Life:
    """A world in which things happen by chance; what was said in it, in the order of each model."""

    def __init__(self, world, seed):
        world.log, world.store, world.graves = MemoryLog(2), MemoryStore(), MemoryLog()
        self.world, self.chance, self.time, self.losses, self.grown = world, random.Random(seed), 0.0, 0.0, 0
        self.said = {name: [] for name in NAMES}
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

    def send(self, name=None):
        query, relevant, irrelevant = next(self.triplets)
        name = name or self.chance.choice(NAMES)
        event = Triplet(model=name, query=f"i{query}", relevant=f"i{relevant}", irrelevant=f"i{irrelevant}", at=1.0)
        self.world.send(encode(event), key=name)
        self.said[name].append((query, relevant, irrelevant))

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
            self.world.log.add_partitions(self.chance.choice([1, 2]))

    def rehome(self):
        with contextlib.suppress(Fenced):  # a worker was quicker
            rehomed(self.world)

    def gone(self, worker):
        kill(self.world, worker)
        self.workers.remove(worker)

    def end(self):
        """No more trouble: each model says something, and one worker learns what is left."""
        self.losses = 0.0
        for name in NAMES:
            self.send(name)
        for worker in list(self.workers):
            self.gone(worker)
        worker = self.world.worker()
        for _ in range(5):
            for _ in range(30):
                self.time += 1.0
                worker.step()
            left = rehomed(self.world).left
        self.time += 20.0
        run_until_idle(worker)
        assert left == {}


@pytest.mark.parametrize("seed", range(20))
def test_every_event_is_learned_once_and_in_order_whatever_happens(tmp_path, seed):
    random.seed(seed)
    life = Life(World(tmp_path), seed)
    for _ in range(140):
        life.happen()
    life.end()
    assert letters(life.world) == []
    for name, said in life.said.items():
        alone = LOMDML(dims=dict(life.world.catalogue.dims), rank=2)
        alone.start(life.world.catalogue.features)
        alone.learn_many(np.array(said), life.world.catalogue.features)
        kept = life.world.store.peek(name)
        assert (name, kept.version) == (name, len(said))
        assert kept.state == alone.to_bytes()
