"""Models in parts: what an oracle makes of a log that learns each partition alone, and worlds that hold one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from omdml import DCA
from omdml.streams.protocols.log import Record
from omdml.workers.configuration.config import GuardConfig
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.specs import Specs
from omdml.workers.model.parts.vector import Vector
from tests.support.records import Event
from tests.support.worlds import World, events, is_held_out

HOT = {"hot": {"learner": "dca", "coordinates": "features", "rank": 6, "parts": True}}
SUMS = ("near", "far", "middle", "centre", "sums")


def hot_world(folder, partitions=4, models=None, guard=None) -> World:
    """A world with a model in parts; every event is learned unless there is a guard."""
    world = World(folder, partitions, models=models or HOT)
    if guard is not None:
        world.configuration = msgspec.structs.replace(world.configuration, guard=guard)
    return world


def with_models(world, models) -> None:
    """Configure these models from now on, as a new configuration file would."""
    catalogues = {"items": {"path": world.configuration.catalogues["items"].path}}
    world.configuration = load(None, {}, {"catalogues": catalogues, "models": models, "guard": {"on": False}})


GUARD = GuardConfig(hold_out=5)


def scatter(world, count, seed=0, model="hot"):
    """Send events with keys of all kinds, so that they come by any partition."""
    for number, payload in enumerate(events(count, seed=seed, model=model)):
        world.log.send(payload, f"{seed}-{number}")


def drained(world, *workers, turns=60):
    """Let workers take turns, and end them."""
    for _ in range(turns):
        for worker in workers:
            worker.step()
    for worker in workers:
        worker.stop()
        worker.run()


def published(world):
    """The live snapshot and its vector."""
    _, snapshot = world.store.load("hot")
    return snapshot, Vector.of_text(snapshot.vector)


def whole(world) -> DCA:
    """The learner in the newest checkpoint of the merged model."""
    return DCA.from_bytes(world.store.peek("hot").state)


def spec_of(world):
    """The specification of the model in parts."""
    return Specs(world.configuration, {"items": world.catalogue}).of("hot")


def rows_of(records: Iterable[Record | Event], model="hot") -> np.ndarray:
    """The triplets of a model among these records, as rows of the catalogue."""
    payloads = [json.loads(record.value) for record in records]
    names = ("query", "relevant", "irrelevant")
    return np.array([[int(event[name][1:]) for name in names] for event in payloads if event["model"] == model])


def alone(start: DCA, records: Iterable[Record | Event], features: Mapping[str, np.ndarray], model: str = "hot") -> DCA:
    """A copy of a learner that has learned the events of one partition, in order."""
    learner = DCA.from_bytes(start.to_bytes())
    rows = rows_of(records, model)
    if len(rows):
        learner.learn_many(rows, features)
    return learner


def summed_in_order(learners: Iterable[DCA]) -> dict[str, np.ndarray]:
    """The sums of learners, added one after the other in float64."""
    total: dict[str, np.ndarray] = {}
    for learner in learners:
        moments = learner._engine.moments()
        for name in SUMS:
            total[name] = moments._asdict()[name] + total[name] if name in total else moments._asdict()[name].copy()
    return total


def same_sums(learner: DCA, total: Mapping[str, np.ndarray]) -> bool:
    """Whether a learner holds exactly these sums."""
    moments = learner._engine.moments()._asdict()
    upper = np.triu_indices(len(moments["near"]))
    return all(
        np.array_equal(moments[name][upper], total[name][upper]) if moments[name].ndim == 2
        else np.array_equal(moments[name], total[name])
        for name in SUMS
    )  # fmt: skip


def expected(world, ends, guard=None) -> dict[str, np.ndarray]:
    """The oracle's sums of a world's log, of each partition up to the offset that ``ends`` has."""
    features = world.catalogue.features
    start = DCA(dims=dict(world.catalogue.dims), rank=6)
    start.start(features)
    learners = []
    for partition in world.log.partitions:
        records = world.log.read(partition, 0, 100_000)
        records = [record for record in records if record.offset < ends.get(partition.number, 0)]
        if guard is not None:
            secret, name = world.store.secret(), f"hot::part-{partition.number}"
            records = [record for record in records
                       if not is_held_out(secret, name, partition.number, record.offset, guard.every)]  # fmt: skip
        if records:
            learners.append(alone(start, records, features))
    return summed_in_order(learners)
