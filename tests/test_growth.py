"""Partitions that are added while a model is in no checkpoint yet: its events are learned once each, in order."""

from __future__ import annotations

import pytest

from streams.memory import MemoryLog
from tests.test_worker_protocol import _no_waiting, kill  # noqa: F401
from tests.worlds import World, events, extents, letters, rehomed, run_until_idle
from workers.config import WorkerConfig
from workers.topics import survey


def grown(folder, before=2, added=2, idle=True):
    """A world whose log had two partitions as a worker last looked, and the name of a model that goes elsewhere now."""
    world = World(folder, partitions=before)
    if idle:
        worker = world.worker()
        world.send(*events(3))
        run_until_idle(worker)
        worker.services.source.close()
    names = (f"user-{number}" for number in range(100))
    larger = MemoryLog(before + added)
    name = next(one for one in names if world.log.home(one).number != larger.home(one).number)
    return world, name


def sequential(folder, name, *parts):
    """The state after these events in one partition."""
    world = World(folder)
    for part in parts:
        world.send(*part, key=name)
    run_until_idle(world.worker())
    return world.store.peek(name).state


@pytest.mark.parametrize("first", ["old", "new"], ids=lambda first: f"{first} partition read first")
def test_events_of_a_model_that_nobody_knew_before_partitions_were_added_are_learned_in_order(tmp_path, first):
    # Given events of a new model, sent while no worker runs, some before and some after partitions were added
    world, name = grown(tmp_path)
    early, late = list(events(5, 1, model=name)), list(events(5, 2, model=name))
    world.send(*early, key=name)
    old = world.log.home(name)
    world.log.add_partitions(2)
    world.send(*late, key=name)
    new = world.log.home(name)
    # When a worker reads the log, from either end
    worker = world.worker()
    worker.services.source.poll(0, 0)
    if first == "new":
        worker._waiting = {new: world.log.read(new, 0, 100)}
        worker._take()
        assert world.store.positions([name]) == {}
    run_until_idle(worker)
    # Then the later ones wait for rehome, and all are learned after it; nothing is a letter.
    assert (world.store.peek(name).version, world.store.peek(name).home) == (5, tuple(old))
    worker.services.source.close()
    assert rehomed(world).moved[name] == new
    run_until_idle(world.worker())
    assert world.store.peek(name).state == sequential(tmp_path / "one", name, early, late)
    assert letters(world) == []


def test_rehome_without_a_worker_has_a_model_in_no_checkpoint_begin_where_its_first_events_lie(tmp_path):
    world, name = grown(tmp_path)
    early, late = list(events(5, 1, model=name)), list(events(5, 2, model=name))
    world.send(*early, key=name)
    old = world.log.home(name)
    world.log.add_partitions(2)
    world.send(*late, key=name)
    assert rehomed(world).left == {name: old}
    worker = world.worker()
    run_until_idle(worker)
    worker.services.source.close()
    assert rehomed(world).moved[name] == world.log.home(name)
    run_until_idle(world.worker())
    assert world.store.peek(name).state == sequential(tmp_path / "one", name, early, late)
    assert letters(world) == []


def test_a_model_whose_events_all_came_after_partitions_were_added_waits_for_rehome_alone(tmp_path):
    world, name = grown(tmp_path)
    world.log.add_partitions(2)
    said = list(events(5, 1, model=name))
    world.send(*said, key=name)
    worker = world.worker()
    run_until_idle(worker)
    assert world.store.positions([name]) == {}
    wrong = {line.wrong for line in survey(extents(world), world.store, world.log.home, [])}
    assert "partitions were added, models that are new may wait: omdml topics rehome" in wrong
    assert rehomed(world).left == {}
    run_until_idle(worker)
    assert world.store.peek(name).state == sequential(tmp_path / "one", name, said)
    assert not any("added" in line.wrong for line in survey(extents(world), world.store, world.log.home, []))


def test_a_model_that_a_worker_learned_and_did_not_save_before_partitions_were_added_loses_nothing(tmp_path):
    # Given a worker that is killed with a new model in no checkpoint, and partitions added
    world, name = grown(tmp_path)
    early, late = list(events(5, 1, model=name)), list(events(5, 2, model=name))
    worker = world.worker()
    worker.config = WorkerConfig(checkpoint_interval_s=10_000)
    worker.step()
    world.send(*early, key=name)
    worker.step()
    assert (len(worker.services.homes), world.store.positions([name])) == (1, {})
    kill(world, worker)
    world.log.add_partitions(2)
    world.send(*late, key=name)
    # If others go on, I expect its later events to wait for rehome, and to be learned after the earlier ones.
    worker = world.worker()
    run_until_idle(worker)
    worker.services.source.close()
    assert rehomed(world).moved[name] == world.log.home(name)
    run_until_idle(world.worker())
    assert world.store.peek(name).state == sequential(tmp_path / "one", name, early, late)
    assert letters(world) == []


def test_a_client_that_hashes_otherwise_has_its_model_learned_and_keeps_nobody_waiting_after_partitions_are_added(
    tmp_path,
):
    world, _ = grown(tmp_path)
    world.log.add_partitions(1)
    name = next(
        one for one in (f"user-{number}" for number in range(100)) if world.log.home(one) == world.log.home(one, 2)
    )
    astray = next(key for key in map(str, range(100)) if world.log.home(key) != world.log.home(name))
    world.send(*events(5, 1, model=name), key=astray)
    run_until_idle(world.worker())
    assert world.store.peek(name).version == 5
    assert world.store.peek(name).progress["astray"] == world.log.home(astray).number


def test_where_no_worker_ever_ran_partitions_count_as_they_are(tmp_path):
    world, name = grown(tmp_path, idle=False)
    world.log.add_partitions(2)
    world.send(*events(5, 1, model=name), key=name)
    run_until_idle(world.worker())
    assert world.store.peek(name).version == 5
