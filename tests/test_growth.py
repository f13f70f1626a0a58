"""Partitions that are added while a model is in no checkpoint yet: its events are learned once each, in order."""

from __future__ import annotations

import itertools

import pytest

from streams.memory import MemoryLog
from streams.stores.checkpoints import none_left
from tests.test_worker_protocol import _no_waiting, kill  # noqa: F401
from tests.test_worker_store import KeptMemory
from tests.worlds import World, events, extents, letters, reading, rehomed, run_until_idle
from workers import growth
from workers.config import WorkerConfig
from workers.topics import rewind, survey


def grown(folder, before=2, added=2, idle=True):
    """A world whose log had two partitions as a worker last looked, and the name of a model that goes elsewhere now."""
    world = World(folder, partitions=before)
    if idle:
        worker = world.worker()
        world.send(*events(3))
        run_until_idle(worker)
        worker.services.source.close()
    return world, next(movers(before, before + added))


def movers(*counts):
    """Names of models that come by another partition each time, among so many."""
    for name in map("user-{}".format, range(1000)):
        if len({MemoryLog(count).home(name).number for count in counts}) == len(counts):
            yield name


def sequential(folder, name, *parts):
    """The state after these events in one partition."""
    world = World(folder)
    for part in parts:
        world.send(*part, key=name)
    run_until_idle(world.worker())
    return world.store.peek(name).state


def growing(world, name):
    """Five events of a model before two partitions are added, and five after; answers both."""
    early, late = list(events(5, 1, model=name)), list(events(5, 2, model=name))
    world.send(*early, key=name)
    world.log.add_partitions(2)
    world.send(*late, key=name)
    return early, late


def learn(world, save_every_s=1.0):
    """A worker that takes everything there is, and leaves."""
    worker = world.worker()
    worker.config = WorkerConfig(checkpoint_interval_s=save_every_s)
    run_until_idle(worker)
    worker.services.source.close()


def rehomed_at_last(world):
    """Rehome until nothing is left, as its error says, a worker learning between two; answers how often."""
    for turn in range(1, 5):
        if not rehomed(world).left:
            return turn
        learn(world)
    raise AssertionError("rehome leaves something for ever")


@pytest.mark.parametrize("first", ["old", "new"], ids=lambda first: f"{first} partition read first")
def test_events_of_a_model_that_nobody_knew_before_partitions_were_added_are_learned_in_order(tmp_path, first):
    # Given events of a new model, sent while no worker runs, some before and some after partitions were added
    world, name = grown(tmp_path)
    old = world.log.home(name)
    early, late = growing(world, name)
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
    old = world.log.home(name)
    early, late = growing(world, name)
    assert rehomed(world).left == {name: old}
    assert growth.settled(world.store, world.log.topic_id) == 2
    learn(world)
    assert rehomed(world).moved[name] == world.log.home(name)
    learn(world)
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
    assert any(line.startswith("partitions were added, models that are new may wait") for line in wrong)
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
    learn(world)
    assert rehomed(world).moved[name] == world.log.home(name)
    learn(world)
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


def test_one_worker_that_polls_both_parts_of_a_new_model_before_it_saves_makes_no_letters(tmp_path):
    world, name = grown(tmp_path)
    early, late = growing(world, name)
    world.now = lambda: 0.0  # so that all that is polled is taken in one turn
    worker = world.worker()
    worker.config = WorkerConfig(checkpoint_interval_s=10_000)
    for _ in range(4):
        worker.step()
    assert letters(world) == []
    worker.services.source.close()
    rehomed_at_last(world)
    learn(world)
    assert world.store.peek(name).state == sequential(tmp_path / "one", name, early, late)


@pytest.mark.parametrize("known", [True, False], ids=["a model with a checkpoint", "a model without one"])
def test_a_log_that_grows_twice_before_a_rehome_has_its_models_go_through_the_partition_in_between(tmp_path, known):
    # Given events of a model in three partitions, since some were added twice
    world, _ = grown(tmp_path)
    name = next(movers(2, 3, 4))
    parts = [list(events(5, seed, model=name)) for seed in range(3)]
    world.send(*parts[0], key=name)
    if known:
        learn(world)
    for part in parts[1:]:
        world.log.add_partitions(1)
        world.send(*part, key=name)
    # If rehome and workers take turns, I expect all to be learned in order, and nothing to be refused.
    learn(world)
    assert rehomed_at_last(world) == 2
    learn(world)
    assert world.store.peek(name).home == tuple(world.log.home(name))
    assert world.store.peek(name).state == sequential(tmp_path / "one", name, *parts)
    assert letters(world) == []


@pytest.mark.parametrize("some", [True, False], ids=["one said something", "none did"])
def test_a_rewind_of_a_log_that_grew_has_models_that_said_nothing_since_wait_where_they_go_by_now(tmp_path, some):
    # Given a log that grew and was settled, and of two models one, or none, that said something since
    world, _ = grown(tmp_path)
    names = list(itertools.islice(movers(2, 4), 2))
    said = {one: list(events(5, seed, model=one)) for seed, one in enumerate(names)}
    late = {one: list(events(5, seed, model=one)) for seed, one in enumerate(names, start=2)}
    for one in names:
        world.send(*said[one], key=one)
    learn(world)
    world.log.add_partitions(2)
    if some:
        world.send(*late[names[0]], key=names[0])
    learn(world)
    rehomed_at_last(world)
    learn(world)
    # When all is learned anew, and the others go on
    deleted, again = rewind(extents(world), world.store, world.log.home, reading(world), None)
    assert (set(names) <= set(deleted), again) == (True, True)
    for one in names[1:] if some else names:
        world.send(*late[one], key=one)
    learn(world)
    rehomed_at_last(world)
    learn(world)
    # Then all are as they were sent.
    for one in names:
        assert world.store.peek(one).state == sequential(tmp_path / one, one, said[one], late[one])
    assert letters(world) == []


@pytest.mark.parametrize("count", [3, 30])
def test_a_rewind_where_senders_hash_otherwise_waits_for_nobody(tmp_path, count):
    world = World(tmp_path, partitions=4)
    for number in range(count):
        world.send(*events(1, number, model=f"user-{number}"), key=f"another hash of {number}")
    learn(world)
    assert not rewind(extents(world), world.store, world.log.home, reading(world), None)[1]
    learn(world)
    assert len(world.store.positions([f"user-{number}" for number in range(count)])) == count


@pytest.mark.parametrize("living", [True, False], ids=["under a living worker", "under none"])
def test_a_copy_of_the_store_from_before_partitions_were_added_can_be_brought_back(tmp_path, living):
    world = World(tmp_path, partitions=2)
    world.store, name = KeptMemory(), next(movers(2, 4))
    early, late = list(events(5, 1, model=name)), list(events(5, 2, model=name))
    world.send(*early, key=name)
    learn(world)
    world.store.back_up()
    world.log.add_partitions(2)
    world.send(*late, key=name)
    learn(world)
    rehomed_at_last(world)
    learn(world)
    worker = world.worker()
    run_until_idle(worker)
    if not living:
        worker.services.source.close()
    world.store.restore()
    world.store.fail_over()
    if living:
        run_until_idle(worker)
        worker.services.source.close()
    learn(world)
    rehomed_at_last(world)
    learn(world)
    assert world.store.peek(name).state == sequential(tmp_path / "one", name, early, late)


def test_rehome_moves_the_others_where_a_model_in_no_checkpoint_cannot_be_read(tmp_path, monkeypatch):
    # Given a model that was saved and of which nothing is left, as others were learned before partitions were added
    world, _ = grown(tmp_path)
    name, other = itertools.islice(movers(2, 4), 2)
    world.send(*events(5, 3, model=other), key=other)
    learn(world)
    world.log.add_partitions(2)
    world.send(*events(5, 2, model=name), key=name)
    claim = world.store.claim

    def claimed(model):
        if model == name:
            raise none_left(name, "here")
        return claim(model)

    monkeypatch.setattr(world.store, "claim", claimed)
    # Then these are moved all the same.
    moved, left, damaged = rehomed(world)
    assert (moved[other], left, set(damaged)) == (world.log.home(other), {}, {name})


def test_a_model_whose_first_event_went_astray_keeps_nobody_waiting_where_the_next_came_before_it_was_saved(tmp_path):
    world = World(tmp_path, partitions=2)
    right = world.log.home("user-1")
    astray = next(key for key in map(str, range(100)) if world.log.home(key) != right)
    worker = world.worker()
    worker.config = WorkerConfig(checkpoint_interval_s=10_000)
    worker.step()
    world.now = lambda: 1.0
    world.send(*events(1, 1, model="user-1"), key=astray)
    worker.step()
    world.send(*events(5, 2, model="user-1"), key="user-1")
    worker.step()
    assert world.store.positions(["user-1"]) == {}
    worker.config = WorkerConfig()
    world.now = lambda: 10_000_000.0
    run_until_idle(worker, 3)
    assert world.store.peek("user-1").version == 1
    world.send(*events(5, 3, model="user-1"), key="user-1")
    run_until_idle(worker)
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"] * 10


def test_models_whose_senders_hash_otherwise_stay_and_are_nothing_wrong_until_it_is_asked_that_they_move(tmp_path):
    # Given a model whose events all come by another partition than the log's partitioner would choose
    world = World(tmp_path, partitions=2)
    right = world.log.home("user-1")
    astray = next(key for key in map(str, range(100)) if world.log.home(key) != right)
    world.send(*events(5, 1, model="user-1"), key=astray)
    learn(world)
    # Then nobody is told to move it, and rehome leaves it alone,
    assert [line.wrong for line in survey(extents(world), world.store, world.log.home, [])] == ["", ""]
    assert rehomed(world) == ({}, {}, {})
    # until its senders hash as the log does.
    assert rehomed(world, astray=True).moved == {"user-1": right}
    world.send(*events(5, 2, model="user-1"), key="user-1")
    learn(world)
    assert (world.store.peek("user-1").version, letters(world)) == (10, [])


def test_a_model_that_comes_back_to_a_partition_when_the_log_grows_again_is_moved_once_each_time(tmp_path):
    # Given events of a model that moves away as partitions are added, and back as others are
    world, _ = grown(tmp_path)
    sizes = (2, 3, 4)
    name = next(
        one for one in map("user-{}".format, range(1000))
        if [MemoryLog(count).home(one).number for count in sizes] == [0, 2, 0]
    )  # fmt: skip
    for seed in range(3):
        world.log.add_partitions(min(seed, 1))
        world.send(*events(5, seed, model=name), key=name)
    learn(world)
    assert rehomed_at_last(world) == 2
    learn(world)
    assert (world.store.peek(name).version, world.store.peek(name).home[1]) == (15, 0)
    assert letters(world) == []


def test_a_model_whose_path_meets_its_home_again_is_moved_on(tmp_path):
    # Given a log that grew by two at once, and a model that would have come back home with one of them
    world, _ = grown(tmp_path)
    name = next(
        one for one in map("user-{}".format, range(1000))
        if [MemoryLog(count).home(one).number for count in (2, 4, 5)] == [0, 0, 1]
    )  # fmt: skip
    parts = [list(events(5, seed, model=name)) for seed in range(3)]
    world.send(*parts[0], key=name)
    learn(world)
    world.send(*parts[1], key=name)
    world.log.add_partitions(3)
    world.send(*parts[2], key=name)
    assert rehomed(world).left == {name: world.log.home(name, 2)}
    assert rehomed_at_last(world) == 2
    learn(world)
    assert world.store.peek(name).state == sequential(tmp_path / "one", name, *parts)
    assert letters(world) == []
