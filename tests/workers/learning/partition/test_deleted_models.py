"""Models deleted at the worst moments under a living worker: they begin again, and no other one loses its save."""

from __future__ import annotations

import pytest

from omdml.streams.memory_log import MemorySource
from tests.support.learning.reconfigured import changed, learned
from tests.support.servers.listeners import Bystander
from tests.support.worlds import NEVER, World, events, living_on, mark, paced, run_until_idle


def deleted_before(world, monkeypatch, step, name="shop"):
    """Delete a model once, right before this method of the store is called."""
    method = getattr(world.store, step)

    def wrapped(*arguments, **options):
        monkeypatch.setattr(world.store, step, method)
        world.store.delete(name)
        return method(*arguments, **options)

    monkeypatch.setattr(world.store, step, wrapped)


@pytest.mark.parametrize("step", ["note", "save_all"])
def test_a_model_deleted_amid_adoption_begins_with_the_events_at_hand(tmp_path, monkeypatch, step):
    world = changed(learned(tmp_path), tmp_path, eta=0.5)
    world.send(*events(10, 1))
    deleted_before(world, monkeypatch, step)
    run_until_idle(world.worker())
    assert (world.store.peek("shop").version, world.store.peek("shop").next) == (10, 55)


def test_a_model_deleted_while_its_first_version_is_published_ends_no_worker(tmp_path, monkeypatch):
    world = World(tmp_path)
    world.send(*events(5, model="user-1"))
    run_until_idle(first := world.worker())
    first.services.source.close()
    world.store.delete("shop")
    deleted_before(world, monkeypatch, "publish")
    world.send(*events(10))
    run_until_idle(world.worker())
    assert world.store.peek("shop").version == 10


def learned_on_each(folder):
    """A worker that learned ten events on each of four partitions, and saved five of each."""
    world = World(folder, partitions=4)
    names = [living_on(world, partition) for partition in world.log.partitions]
    worker = world.worker()
    for seed, save in enumerate((1.0, NEVER)):
        paced(worker, save=save)
        for name in names:
            world.send(*events(5, seed, model=name), key=name)
        run_until_idle(worker, 10)
    assert [world.store.peek(name).version for name in names] == [5] * 4
    return world, worker, names


def test_a_model_deleted_amid_a_rebalance_lets_others_be_saved(tmp_path):
    world, worker, names = learned_on_each(tmp_path)
    joining = [MemorySource(world.log) for _ in range(3)]
    for source in joining:
        source.subscribe(Bystander())
        source.poll(1, 0.0)
    # Given a worker that gives up three partitions, a model of the first of which was deleted
    given_up = sorted(worker.partitions)[1:]
    gone = next(name for name in names if world.log.home(name) == given_up[0])
    world.store.delete(gone)
    worker.services.source.poll(1, 0.0)
    # Then the others are saved, and the model begins again with the event that came after its last save.
    assert list(worker.partitions) == [world.log.partitions[0]]
    checkpoints = {name: world.store.peek(name) for name in names if world.log.home(name) in given_up[1:]}
    assert [checkpoint.version for checkpoint in checkpoints.values()] == [10, 10]
    assert [mark(world, partition.number) for partition in given_up] == [5, 10, 10]


def test_a_stopped_worker_saves_the_partitions_beside_a_deleted_model(tmp_path):
    world, worker, names = learned_on_each(tmp_path)
    world.store.delete(names[0])
    worker.stop()
    worker.run()
    assert [world.store.peek(name).version for name in names[1:]] == [10] * 3
    run_until_idle(world.worker())
    assert world.store.peek(names[0]).version == 5
