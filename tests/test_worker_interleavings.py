"""What happens between a worker's steps: a log that is cut, a model that moves, an error out of nowhere."""

from __future__ import annotations

import copy

import pytest

from omdml.errors import GapError, SourceError, StoreError
from omdml.feedback import Triplet, encode
from streams.kafka.extents import Extent
from streams.memory import MemorySource
from tests.store_samples import checkpoint
from tests.test_worker_protocol import _no_waiting, key_for, kill, mark, refuse  # noqa: F401
from tests.worlds import World, events, learned_directly, letters, run_until_idle, triplets
from workers import intake, topics
from workers.drift import Drift
from workers.partition import OwnedPartition

UNKNOWN = encode(Triplet(model="shop", query="i0", relevant="nobody", irrelevant="i3"))


def away(*_):
    """What dead letters that are out of reach answer."""
    raise SourceError("letters/: away")


def cut(world, end):
    """A log that lost everything from ``end`` on, and sources that tell of positions past that."""
    (partition,) = world.log.partitions
    with world.log.changed:
        del world.log._records[partition][end:]
    source = MemorySource(world.log)
    poll = source.poll

    def told(*arguments):
        position = source._positions.get(partition)
        if position is not None and position > world.log.end(partition):
            raise GapError("cut", partition=partition, position=position, available=(0, world.log.end(partition)))
        return poll(*arguments)

    source.poll = told
    return source


@pytest.mark.parametrize("refused", [b"{nonsense", UNKNOWN], ids=["not_json", "unknown_item"])
def test_a_worker_killed_while_the_letters_are_away_leaves_them_to_its_successor(tmp_path, monkeypatch, refused):
    world = World(tmp_path)
    worker = world.worker()
    with monkeypatch.context() as outage:
        outage.setattr(worker.services.letters, "flush", away)
        world.send(*events(5), refused, *events(3, seed=1))
        run_until_idle(worker)
        kill(world, worker)
    letters_before = [letter.offset for letter in letters(world)]
    run_until_idle(world.worker())
    assert {letter.offset for letter in letters(world)} == {5} >= set(letters_before)
    assert (world.store.peek("shop").version, mark(world)) == (8, 9)


def test_what_is_written_on_behind_a_cut_is_learned_however_little_comes_at_once(tmp_path):
    world = World(tmp_path)
    world.send(*events(20))
    first = world.worker()
    run_until_idle(first)
    kill(world, first)
    worker = world.worker(source=cut(world, 10))
    worker.accept_gap = True
    run_until_idle(worker, 5)
    for seed in range(1, 5):
        world.send(*events(5, seed=seed))
        run_until_idle(worker, 8)
    assert (world.store.peek("shop").version, mark(world)) == (40, 30)


def test_a_model_that_is_idle_while_a_cut_is_accepted_learns_what_comes_after_a_restart(tmp_path):
    world = World(tmp_path)
    first = world.worker()
    world.send(*events(20))
    run_until_idle(first)
    kill(world, first)
    worker = world.worker(source=cut(world, 10))
    worker.accept_gap = True
    run_until_idle(worker, 5)
    worker.stop()
    worker.run()
    world.send(*events(5, seed=1))
    run_until_idle(world.worker())
    assert (world.store.peek("shop").version, mark(world)) == (25, 15)


def test_a_gap_that_retention_made_has_nothing_learned_twice(tmp_path, monkeypatch):
    # Given a model that is further than its partition's mark
    world = World(tmp_path)
    first = world.worker()
    world.send(*events(20))
    with monkeypatch.context() as outage:
        outage.setattr(world.store, "move_mark", refuse)
        run_until_idle(first)
        kill(world, first)
    # When retention passes the mark, and that is accepted
    (partition,) = world.log.partitions
    gap, source = GapError("retention", partition=partition, position=0, available=(10, 20)), MemorySource(world.log)
    told, poll = [gap], source.poll

    def told_once(*arguments):
        if told and source._positions:
            raise told.pop()
        return poll(*arguments)

    source.poll = told_once
    worker = world.worker(source=source)
    worker.accept_gap = True
    run_until_idle(worker)
    # Then what lies behind it and was learned is not learned again.
    assert (world.store.peek("shop").version, mark(world)) == (20, 20)


def test_a_model_that_was_moved_to_another_partition_learns_on_there_in_the_same_worker(tmp_path, monkeypatch):
    # Given a worker that has a model in memory, whose key goes elsewhere once partitions were added
    world = World(tmp_path, partitions=2)
    old, new = world.log.partitions
    home = [old]
    monkeypatch.setattr(world.log, "home", lambda key: home[0])
    worker = world.worker()
    world.send(*events(10, model="user-1"), key="user-1")
    run_until_idle(worker)
    home[0] = new
    world.send(*events(5, seed=1, model="user-1"), key="user-1")
    run_until_idle(worker, 5)
    # When it is rehomed, as that worker asks for
    extents = [
        Extent(partition, world.log.start(partition), world.log.end(partition), None) for partition in (old, new)
    ]

    def read(starts):
        return [world.log.read(at, start, 1000) for at, start in starts.items()]

    assert topics.rehome(extents, world.store, world.log.home, read).moved == {"user-1": new}
    run_until_idle(worker, 10)
    world.send(*events(5, seed=2, model="user-1"), key="user-1")
    run_until_idle(worker)
    # Then all is learned, and nothing became a letter.
    assert (world.store.peek("user-1").version, world.store.peek("user-1").home) == (20, tuple(new))
    assert letters(world) == []


def test_an_event_that_came_astray_before_its_model_was_moved_there_is_the_only_one_lost_to_the_letters(tmp_path):
    world = World(tmp_path, partitions=2)
    old, new = world.log.partitions
    worker = world.worker()
    world.send(*events(10, model="user-1"), key=key_for(world, old))
    run_until_idle(worker)
    world.send(*events(1, seed=1, model="user-1"), key=key_for(world, new))
    run_until_idle(worker)
    topics.move(world.store, "user-1", topics.Position(new, world.log.end(new)))
    world.send(*events(5, seed=2, model="user-1"), key=key_for(world, new))
    run_until_idle(worker)
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"]
    assert world.store.peek("user-1").version == 15


def test_an_error_that_nobody_expected_saves_nothing_on_the_way_out(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    said = list(events(30))
    world.send(*said[:10])
    run_until_idle(worker)
    world.send(*said[10:])

    def no_memory(*_):
        raise MemoryError("no room for scores")

    with monkeypatch.context() as full:
        full.setattr(Drift, "add", no_memory)  # after the learner's step, before the model's position
        with pytest.raises(MemoryError):
            worker.run()
    assert (world.store.peek("shop").version, mark(world)) == (10, 10)
    run_until_idle(world.worker())
    assert world.store.peek("shop").state == learned_directly(world, 30).to_bytes()


def test_a_hand_over_does_not_wait_for_a_store_that_is_away_partition_by_partition(tmp_path, monkeypatch):
    world = World(tmp_path, partitions=4)
    worker = world.worker()
    for number, partition in enumerate(world.log.partitions):
        world.send(*events(5, model=f"user-{number}"), key=key_for(world, partition))
    run_until_idle(worker)
    for number, partition in enumerate(world.log.partitions):
        world.send(*events(5, seed=1, model=f"user-{number}"), key=key_for(world, partition))
    asked = []

    def refused(*_):
        asked.append(1)
        raise StoreError("store memory: away")

    monkeypatch.setattr(world.store, "save", refused)
    worker.step()
    asked.clear()
    worker.revoked(list(worker.partitions))
    assert len(asked) == 1


def test_a_commit_that_was_refused_is_made_again(tmp_path, monkeypatch):
    world = World(tmp_path)
    source = MemorySource(world.log)
    worker = world.worker(source=source)
    world.send(*events(10))
    with monkeypatch.context() as rebalance:
        rebalance.setattr(source, "commit", lambda offsets: None)
        run_until_idle(worker)
    assert mark(world) == 10
    run_until_idle(worker)
    assert world.log.group("omdml").committed == {world.log.partitions[0]: 10}


@pytest.mark.parametrize("run", ["the same run", "another run"])
def test_a_model_claimed_just_after_its_store_was_brought_back_lacks_no_event(tmp_path, run):
    # Given a worker that has a partition and not its model in memory
    world, said = World(tmp_path), list(events(25))
    first = world.worker()
    world.send(*said[:10])
    run_until_idle(first)
    kept = copy.deepcopy({name: model.checkpoints for name, model in world.store._models.items()})
    mark_then = dict(world.store._marks)
    world.send(*said[10:20])
    run_until_idle(first)
    first.stop()
    first.run()
    worker = world.worker()
    run_until_idle(worker, 3)
    # When the store is brought back from a copy, or fails over to a replica that lacks the newest, and an event comes
    for name, checkpoints in kept.items():
        world.store._models[name].checkpoints = checkpoints
    world.store._marks = mark_then
    world.store._store_id = world.store._store_id if run == "the same run" else run
    world.send(*said[20:])
    run_until_idle(worker)
    # Then what the copy lacks is learned before it.
    assert world.store.peek("shop").state == learned_directly(world, 25).to_bytes()


def test_a_worker_that_is_stopped_amid_a_backlog_ends_after_a_piece_of_it(tmp_path, monkeypatch):
    world = World(tmp_path)
    monkeypatch.setattr(intake, "PIECE", 20)  # comparisons, of one poll's 100
    worker, take, taken = world.worker(), OwnedPartition.take, []

    def take_and_stop(owned, records):
        taken.append(len(records))
        take(owned, records)
        worker.stop()

    world.send(*events(100))
    with monkeypatch.context() as stopped:
        stopped.setattr(OwnedPartition, "take", take_and_stop)
        worker.run()
    assert taken == [mark(world)]
    assert 0 < mark(world) < 50
    run_until_idle(world.worker())
    assert world.store.peek("shop").state == learned_directly(world, 100).to_bytes()


def damage(world, model):
    """Cut the end off every checkpoint of a model; answers them as they were."""
    sound = world.store._models[model].checkpoints
    world.store._models[model].checkpoints = [(saved, data[:-9]) for saved, data in sound]
    return sound


@pytest.mark.parametrize("restarted", [False, True])
def test_a_model_whose_checkpoints_are_damaged_waits_alone_and_goes_on_once_they_are_restored(tmp_path, restarted):
    # Given two models, and nothing left to read of one of them
    world = World(tmp_path)
    said = {name: list(events(40, seed, model=name)) for seed, name in enumerate(("user-1", "user-2"))}
    first = world.worker()
    world.send(*said["user-1"][:10], *said["user-2"][:10])
    run_until_idle(first)
    kill(world, first)
    sound = damage(world, "user-1")
    # When events come for both, I expect the other one to learn, and the mark to stay where this one's begin
    worker = world.worker()
    for part in (slice(10, 20), slice(20, 30)):
        world.send(*said["user-1"][part], *said["user-2"][part])
        run_until_idle(worker)
    assert (world.store.peek("user-2").version, mark(world)) == (30, 20)
    assert worker.services.metrics.waiting._value.get() == 1
    if restarted:
        kill(world, worker)
        worker = world.worker()
    # And once its checkpoints are restored, that it learns all of them, in order, and nobody anything twice.
    world.store._models["user-1"].checkpoints = sound
    world.send(*said["user-1"][30:], *said["user-2"][30:])
    run_until_idle(worker, 100)
    assert mark(world) == 80
    assert worker.services.metrics.waiting._value.get() == 0
    for seed, name in enumerate(said):
        twin = worker.services.specs.find(name).fresh()
        twin.learn_many(triplets(40, seed), world.catalogue.features)
        assert world.store.peek(name).state == twin.to_bytes()


def test_a_waiting_model_that_is_reset_begins_anew_with_the_first_event_it_waited_for(tmp_path):
    world = World(tmp_path)
    first = world.worker()
    world.send(*events(10))
    run_until_idle(first)
    kill(world, first)
    damage(world, "shop")
    worker = world.worker()
    world.send(*events(5, seed=1))
    run_until_idle(worker)
    world.store.delete("shop")
    world.send(*events(5, seed=2))
    run_until_idle(worker, 100)
    assert (world.store.peek("shop").version, mark(world)) == (10, 20)


def test_a_named_model_that_was_never_published_and_is_damaged_does_not_keep_its_worker_from_starting(tmp_path):
    world = World(tmp_path)
    epoch = world.store.claim("shop").epoch
    world.store.save(checkpoint(5, state=b"no state"), epoch)
    worker = world.worker()
    world.send(*events(10, model="user-1"))
    run_until_idle(worker)
    assert world.store.peek("user-1").version == 10
