"""A model that is replaced from outside under a living worker: what the replacement lacks is learned again."""

from __future__ import annotations

import pytest

from omdml.streams.letters import DeadLetters
from omdml.streams.memory_log import MemorySink, MemorySource
from omdml.streams.placement import Placement
from omdml.streams.stores.folder import marks
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.configuration.specs import Specs
from omdml.workers.operate import published_replay
from omdml.workers.operate.replay import ReplayedModel, read_whole, replayed_spec
from tests.support.worlds import World, events, paced, run_until_idle


def replayed(world, name="shop"):
    """A model that has learned the log as it is now."""
    spec = replayed_spec(Specs(world.configuration, {"items": world.catalogue}), name)
    model = ReplayedModel(name, spec.fresh(), spec, Placement.first("crc32", 1))
    for records in read_whole(MemorySource(world.log, f"replay of {name}")):
        model.learn(records)
    model.finish()
    return model


def replace(world, model):
    published_replay.publish(model, world.store, DeadLetters(MemorySink(world.graves)), "test", replace=True)


def replaced_before_the_mark_moves(world, model):
    """Have the model replaced when a worker has saved, and is about to move its mark."""
    move_mark = world.store.move_mark

    def replace_first(*arguments):
        world.store.move_mark = move_mark
        replace(world, model)
        return move_mark(*arguments)

    world.store.move_mark = replace_first


def final_version(world, worker):
    """The model's version after a worker has learned everything and ended."""
    run_until_idle(worker)
    worker.stop()
    worker.run()
    return world.store.peek("shop").version


def test_a_partition_without_a_mark_is_read_again_from_where_its_owner_began(tmp_path):
    world = World(tmp_path)
    world.send(*events(100))
    model = replayed(world)
    world.send(*events(30, seed=9))
    replaced_before_the_mark_moves(world, model)
    assert final_version(world, world.worker()) == 130


@pytest.mark.parametrize("fenced_by", ["another replacement", "a claim alone"])
def test_a_worker_that_starts_over_twice_begins_both_times_where_it_must(tmp_path, fenced_by):
    world = World(tmp_path)
    world.send(*events(20, model="user-1"), *events(100))
    worker = world.worker()
    run_until_idle(worker)
    model = replayed(world)
    world.send(*events(30, seed=9))
    replaced_before_the_mark_moves(world, model)
    while not worker._owned.doubt:
        worker.step()
    # It starts over, and learns the thirty again without saving them.
    paced(worker, save=1e9)
    worker.step()
    if fenced_by == "a claim alone":
        world.store.claim("shop")
    else:
        replace(world, replayed(world, "user-1"))
    paced(worker)
    world.send(*events(5, seed=4))
    assert final_version(world, worker) == 135


def test_what_a_killed_worker_passed_over_is_learned_again_without_a_commit(tmp_path):
    world = World(tmp_path)
    world.send(*events(100))
    assert final_version(world, world.worker()) == 100
    world.log.group("omdml").committed.clear()
    model = replayed(world)
    world.send(*events(30, seed=9))
    worker, move_mark = world.worker(), world.store.move_mark

    def replace_and_die(*arguments):
        world.store.move_mark = move_mark
        replace(world, model)
        move_mark(*arguments)
        raise KeyboardInterrupt

    world.store.move_mark = replace_and_die
    with pytest.raises(KeyboardInterrupt):
        run_until_idle(worker)
    world.log.expel(worker.services.source)
    assert final_version(world, world.worker()) == 130


@pytest.mark.parametrize("killed", [False, True])
def test_a_mark_written_late_does_not_hide_that_a_model_was_replaced(tmp_path, monkeypatch, killed):
    world = World(tmp_path)
    world.store, put = DirectoryStore(tmp_path / "state"), marks.put
    world.send(*events(100))
    worker = world.worker()
    run_until_idle(worker)
    model = replayed(world)
    world.send(*events(30, seed=9))
    run_until_idle(worker)
    world.send(*events(5, seed=4))

    def asleep(path, data):
        # The worker sleeps between its look at the mark and its write
        if path.parent.name == "marks":
            monkeypatch.undo()
            replace(world, model)
            put(path, data)
            if killed:
                raise KeyboardInterrupt
        else:
            put(path, data)

    monkeypatch.setattr(marks, "put", asleep)
    if killed:
        with pytest.raises(KeyboardInterrupt):
            run_until_idle(worker)
        world.log.expel(worker.services.source)
        worker = world.worker()
    assert final_version(world, worker) == 135
