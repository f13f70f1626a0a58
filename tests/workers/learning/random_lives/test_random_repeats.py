"""Events that bring an id and are sent again are learned once, whatever happens to workers, the store and the log."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import numpy as np
import pytest
from msgspec.structs import replace

from omdml import LOMDML
from omdml.feedback import Triplet, encode
from omdml.streams.letters import DeadLetters
from omdml.streams.memory_log import MemorySink
from omdml.workers.operate import topics
from omdml.workers.operate.published_replay import publish
from omdml.workers.operate.replay import ReplayedModel
from tests.support.deep import deep_after
from tests.support.learning.audits import audited
from tests.support.learning.restored_stores import RestorableMemory
from tests.support.worlds import World, extents, living_on
from tests.workers.learning.random_lives.life import NAMES, PARTS, WEIGHTS, Life

# With this chance, the next event is one that was sent before.
REPEATED = 0.4


class RestorableWithPlacements(RestorableMemory):
    """A store of which copies are made and brought back, together with the record of where models live."""

    copy = None
    restored = (*RestorableMemory.restored, "placements")

    def restore(self):
        super().restore()
        self.fail_over()


class Repeating(Life):
    """A life in which clients send events again, by any partition, and operators restore the store, rewind the log and
    replay models."""

    weights = WEIGHTS | {"send": 12, "back_up": 0.5, "restore": 0.3, "rewind": 0.3, "replay": 0.8}
    stores = RestorableWithPlacements

    def __init__(self, world, seed):
        self.payloads = defaultdict(list)
        super().__init__(world, seed)

    def send(self, name=None, partition=None, item=None):
        name = name or self.chance.choice(NAMES)
        payloads = self.payloads[name]
        if not payloads or self.chance.random() > REPEATED:
            query, relevant, irrelevant = next(self.triplets)
            event = Triplet(model=name, query=f"i{query}", relevant=f"i{relevant}", irrelevant=f"i{irrelevant}", at=1.0)
            payloads.append(encode(replace(event, id=f"request {len(payloads)}")))
            payload = payloads[-1]
        else:
            payload = self.chance.choice(payloads[-5:])
        key = name if partition is None else living_on(self.world, self.world.log.partitions[partition])
        self.world.log.send(payload, key)

    def back_up(self):
        self.world.store.back_up()

    def restore(self):
        """An operator stops the workers, and puts the last copy in the place of the store."""
        while self.workers:
            self.drain()
        if self.world.store.copy:
            self.world.store.restore()

    def rewind(self):
        """An operator stops the workers, and has everything learned again."""
        while self.workers:
            self.drain()
        topics.rewind(extents(self.world), self.world.store, "crc32", [], None)

    def replay(self):
        """An operator stops the workers, and has a model learned again in the place of what it learned."""
        while self.workers:
            self.drain()
        placement, names = self.world.store.placement(self.world.log.topic_id), self.world.store.models()
        if placement is None or not names:
            return
        spec = self.world.worker().services.specs.of(name := self.chance.choice(names))
        model, below = ReplayedModel(name, spec.fresh(), spec, placement, self.world.store.secret()), 0
        for step in placement.steps:
            for partition in self.world.log.partitions[below : step.count]:
                if records := self.world.log.read(partition, 0, 10_000):
                    model.learn(records)
            below = step.count
        if model.home is not None:
            publish(model, self.world.store, DeadLetters(MemorySink(self.world.graves)), "test", replace=True)


@pytest.mark.parametrize("seed", deep_after(4, range(40)))
def test_an_event_with_an_id_is_learned_once_however_often_it_is_sent(tmp_path, seed):
    random.seed(seed)
    life = Repeating(World(tmp_path), seed)
    for _ in range(140):
        life.happen()
    life.end()
    oracle = life.oracle()
    assert oracle.unread == []
    assert audited(life.world)[1].wrong == {}
    repeated = 0
    for name, taken in oracle.taken.items():
        payloads = [json.loads(event.value) for event in taken]
        once = {}
        for payload in payloads:
            once.setdefault(payload["id"], payload)
        repeated += len(payloads) - len(once)
        alone = LOMDML(dims=dict(life.world.catalogue.dims), rank=2)
        alone.start(life.world.catalogue.features)
        alone.learn_many(
            np.array([[int(payload[part][1:]) for part in PARTS] for payload in once.values()]),
            life.world.catalogue.features,
        )
        assert life.world.store.peek(name).state == alone.to_bytes()
    assert repeated
