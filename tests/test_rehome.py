"""``omdml topics rehome``: models go on where their events come by, once what lies in their old home is learned."""

from __future__ import annotations

import itertools

import pytest

from streams.memory import MemoryLog, MemorySource
from tests.test_growth import grown, learn, sequential
from tests.test_worker_protocol import _no_waiting, kill, refuse  # noqa: F401
from tests.worlds import World, events, letters, rehomed, run_until_idle
from workers import growth
from workers.upkeep import reset


def test_a_model_with_events_to_be_learned_in_its_old_home_stays_and_the_others_move(tmp_path, monkeypatch):
    # Given two models at home in one partition, and events of one of them that nobody has learned
    world = World(tmp_path, partitions=2)
    old, new = world.log.partitions
    names = [name for name in (f"user-{number}" for number in range(20)) if world.log.home(name) == old][:2]
    worker = world.worker()
    for name in names:
        world.send(*events(10, model=name), key=name)
    run_until_idle(worker)
    worker.services.source.close()
    world.send(*events(5, seed=1, model=names[0]), key=names[0])
    monkeypatch.setattr(world.log, "home", lambda key, *_: new)
    # If they are to move, I expect the one to stay until a worker has learned it.
    assert rehomed(world) == ({names[1]: new}, {names[0]: old}, {})
    assert [world.store.positions(names)[name].home for name in names] == [old, new]
    worker = world.worker()
    run_until_idle(worker)
    worker.services.source.close()
    assert rehomed(world) == ({names[0]: new}, {}, {})


def test_a_model_whose_first_event_went_astray_keeps_no_other_model_of_its_partition_waiting(tmp_path, monkeypatch):
    # Given a model whose first event a client sent to another partition than the rest will come by, and a new worker
    world = World(tmp_path, partitions=2)
    wrong, right = world.log.partitions
    names = [name for name in (f"user-{number}" for number in range(20)) if world.log.home(name) == right][:2]
    worker = world.worker()
    with monkeypatch.context() as client:
        client.setattr(MemorySource, "home", lambda source, key, *_: right)
        client.setattr(world.log, "home", lambda key, *_: wrong)
        world.send(*events(1, model=names[0]), key=names[0])
        run_until_idle(worker)
    worker.services.source.close()
    worker = world.worker()

    # If the rest comes, I expect letters, and the other model to be learned.
    world.send(*events(5, seed=1, model=names[0]), key=names[0])
    world.send(*events(20, seed=2, model=names[1]), key=names[1])
    run_until_idle(worker)
    worker.services.source.close()
    assert [world.store.peek(name).version for name in names] == [1, 20]
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"] * 5


def test_a_second_rehome_that_looked_before_the_first_one_ended_takes_nothing_back(tmp_path, monkeypatch):
    # Given a model that was moved, and learned on in its new home
    world = World(tmp_path, partitions=2)
    old, new = world.log.partitions
    world.log.home = lambda key, *_: old
    worker = world.worker()
    world.send(*events(10, model="user-1"), key="user-1")
    run_until_idle(worker)
    worker.services.source.close()
    looked = world.store.positions(["user-1"])
    world.log.home = lambda key, *_: new
    assert rehomed(world).moved == {"user-1": new}
    world.send(*events(5, seed=1, model="user-1"), key="user-1")
    worker = world.worker()
    run_until_idle(worker)
    worker.services.source.close()
    # If another one goes on from what it saw before, I expect it to move nothing.
    monkeypatch.setattr(world.store, "positions", lambda names: looked)
    assert rehomed(world) == ({}, {}, {})
    assert (world.store.peek("user-1").next, world.store.peek("user-1").version) == (5, 15)


def ahead_of_its_mark(folder, monkeypatch):
    """A world of two partitions, and a model that has saved 10 events of the first, whose mark is behind."""
    world = World(folder, partitions=2)
    old, _ = world.log.partitions
    world.log.home = lambda key, *_: old
    growth.settle(world.store, old.topic_id, 2)
    world.send(*events(10, model="user-1"), key="user-1")
    worker = world.worker()
    with monkeypatch.context() as outage:
        outage.setattr(world.store, "move_mark", refuse)
        run_until_idle(worker)
        kill(world, worker)
    return world


def test_what_a_model_learned_before_it_was_moved_is_no_letter_when_its_old_home_is_read_again(tmp_path, monkeypatch):
    # Given a model that was learned and saved, and moved before its old partition's mark was
    world = ahead_of_its_mark(tmp_path, monkeypatch)
    old, new = world.log.partitions
    world.log.home = lambda key, *_: new
    assert rehomed(world).moved == {"user-1": new}
    # If a worker reads it again, and the model goes on, I expect each event to be learned once, and no letters;
    worker = world.worker()
    world.send(*events(5, seed=1, model="user-1"), key="user-1")
    run_until_idle(worker)
    assert (world.store.peek("user-1").version, letters(world)) == (15, [])
    # and what comes by there afterwards to be refused, whoever saved the model meanwhile.
    worker.stop()
    worker.run()
    world.log.home = lambda key, *_: old
    world.send(*events(1, seed=2, model="user-1"), key="user-1")
    world.log.home = lambda key, *_: new
    run_until_idle(world.worker())
    assert [(letter.reason, letter.offset) for letter in letters(world)] == [("wrong_partition", 10)]


def test_a_model_that_is_moved_back_goes_on_from_where_it_left(tmp_path, monkeypatch):
    # Given a model that was learned, and moved, before its partition's mark was
    world = ahead_of_its_mark(tmp_path, monkeypatch)
    old, new = world.log.partitions
    for home in (new, old):
        monkeypatch.setattr(world.log, "home", lambda key, *_, home=home: home)
        assert rehomed(world).moved == {"user-1": home}
    world.send(*events(5, seed=1, model="user-1"), key="user-1")
    run_until_idle(world.worker())
    assert world.store.peek("user-1").version == 15


def test_a_model_whose_first_event_went_astray_stops_no_partition_once_it_is_reset(tmp_path):
    world = World(tmp_path, partitions=2)
    wrong, right = world.log.partitions
    world.log.home = lambda key, *_: wrong
    world.send(*events(1, model="user-1"), key="user-1")
    world.log.home = lambda key, *_: right
    worker = world.worker()
    world.send(*events(5, 1, model="user-1"), key="user-1")
    world.send(*events(5, model="user-2"), key="user-2")
    run_until_idle(worker)
    reset(world.store, worker.services.specs.find("user-1"), "user-1", "here")
    for seed in (2, 3):
        world.send(*events(5, seed, model="user-1"), key="user-1")
        world.send(*events(5, seed, model="user-2"), key="user-2")
        run_until_idle(worker)
    assert world.store.peek("user-2").version == 15


def test_a_deleted_model_begins_anew_where_its_next_event_comes_by(tmp_path):
    # Given two workers, and a model that is at home with the one, whose other events come by the other
    world = World(tmp_path, partitions=2)
    right = world.log.home("user-1")
    astray = next(key for key in map(str, range(100)) if world.log.home(key) != right)
    workers = [world.worker(), world.worker()]

    def learned(seed, key):
        world.send(*events(5, seed, model="user-1"), key=key)
        for worker in workers * 3:
            run_until_idle(worker, 5)

    learned(1, astray)
    learned(2, "user-1")
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"] * 5
    # If it is deleted, I expect the next of these to begin it.
    world.store.delete("user-1")
    learned(3, "user-1")
    assert (world.store.peek("user-1").version, world.store.peek("user-1").home) == (5, tuple(right))
    assert len(letters(world)) == 5


def going(*homes):
    """Names of models that come by these partitions, among two and among three of them."""
    for name in map("user-{}".format, range(1000)):
        if homes == tuple(MemoryLog(count).home(name).number for count in (2, 3)):
            yield name


@pytest.mark.parametrize("restarted", [False, True])
def test_models_that_wait_for_a_rehome_wait_alone_and_hold_the_mark(tmp_path, restarted):
    # Given models that go by now to a partition that another one was always in
    world, _ = grown(tmp_path)
    names, stays = list(itertools.islice(going(1, 0), 3)), next(going(0, 0))
    said = {one: [list(events(5, 10 * seed + part, model=one)) for part in range(2)]
            for seed, one in enumerate([*names, stays])}  # fmt: skip
    for one in said:
        world.send(*said[one][0], key=one)
    learn(world)
    world.log.add_partitions(1)
    for one in said:
        world.send(*said[one][1], key=one)
    # When a worker reads what came since, I expect the other one to go on, the mark to stay where the first waits,
    worker = world.worker()
    run_until_idle(worker)
    assert [world.store.peek(one).version for one in said] == [5, 5, 5, 10]
    assert worker.services.metrics.registry.get_sample_value("omdml_models_waiting") == 3
    (at,) = {world.log.home(one) for one in names}
    first = next(one.offset for one in world.log.read(at, 0, 1000) if one.key == names[0].encode())
    assert world.store.marks([at])[at] == first
    if restarted:
        kill(world, worker)
        worker = world.worker()
        run_until_idle(worker)
    # and all to be learned by itself once they are moved.
    assert set(rehomed(world).moved) == set(names)
    run_until_idle(worker)
    assert worker.services.metrics.registry.get_sample_value("omdml_models_waiting") == 0
    for number, (one, parts) in enumerate(said.items()):
        assert world.store.peek(one).state == sequential(tmp_path / str(number), one, *parts)
    assert letters(world) == []
