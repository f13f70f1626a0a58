"""What happens between a worker's steps: dead letters or a store that are away, a hand-over, an unexpected error."""

from __future__ import annotations

import pytest

from omdml.errors import SourceError, StoreError
from omdml.feedback import Triplet, encode
from omdml.streams.memory_log import MemorySource
from omdml.streams.protocols.log import CommitResult
from omdml.workers.configuration.config import WorkerConfig
from omdml.workers.events import decoding
from omdml.workers.learning.partition.owned_partition import OwnedPartition
from omdml.workers.model.judging.drift import Drift
from tests.support.learning.restored_stores import kept_checkpoints, put_checkpoints, put_id
from tests.support.worlds import (
    World,
    events,
    kill,
    learned_directly,
    letters,
    living_on,
    mark,
    paced,
    refuse,
    run_until_idle,
)

UNKNOWN = encode(Triplet(model="shop", query="i0", relevant="nobody", irrelevant="i3"))


def away(*_):
    """Raise SourceError, as dead letters that are out of reach do."""
    raise SourceError("letters/: away")


@pytest.mark.parametrize("refused", [b"{nonsense", UNKNOWN], ids=["not_json", "unknown_item"])
def test_a_worker_killed_without_letters_leaves_them_to_its_successor(tmp_path, monkeypatch, refused):
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


def test_an_error_that_nobody_expected_saves_nothing_on_the_way_out(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    sent = list(events(30))
    world.send(*sent[:10])
    run_until_idle(worker)
    world.send(*sent[10:])

    def no_memory(*_):
        raise MemoryError("no room for scores")

    with monkeypatch.context() as full:
        # This is called after the learner's step, and before the model's position is set.
        full.setattr(Drift, "add", no_memory)
        with pytest.raises(MemoryError):
            worker.run()
    assert (world.store.peek("shop").version, mark(world)) == (10, 10)
    run_until_idle(world.worker())
    assert world.store.peek("shop").state == learned_directly(world, 30).to_bytes()


def test_a_hand_over_waits_once_for_a_store_that_is_away(tmp_path, monkeypatch):
    world = World(tmp_path, partitions=4)
    worker = world.worker()
    names = [living_on(world, partition) for partition in world.log.partitions]
    for name in names:
        world.send(*events(5, model=name), key=name)
    run_until_idle(worker)
    for name in names:
        world.send(*events(5, seed=1, model=name), key=name)
    saves = []

    def refused(*_):
        saves.append(1)
        raise StoreError("store memory: away")

    monkeypatch.setattr(world.store, "save", refused)
    for _ in range(8):
        worker.step()
    assert sum(bool(owned.models.unsaved) for owned in worker.partitions.values()) == 4
    saves.clear()
    worker._owned.revoked(list(worker.partitions))
    assert len(saves) == 1


def test_a_commit_that_was_refused_is_made_again(tmp_path, monkeypatch):
    world = World(tmp_path)
    source = MemorySource(world.log)
    worker = world.worker(source=source)
    world.send(*events(10))
    with monkeypatch.context() as rebalance:
        rebalance.setattr(source, "commit", lambda offsets: CommitResult.UNKNOWN)
        run_until_idle(worker)
    assert mark(world) == 10
    run_until_idle(worker)
    assert world.log.group("omdml").committed == {world.log.partitions[0]: 10}


def test_a_commit_that_is_refused_to_the_end_is_made_once_all_have_left(tmp_path, monkeypatch):
    world = World(tmp_path, partitions=2)
    sources = [MemorySource(world.log) for _ in range(2)]
    workers = [world.worker(source=source) for source in sources]
    for partition in world.log.partitions:
        name = living_on(world, partition)
        world.send(*events(10, model=name), key=name)
    for source in sources:
        monkeypatch.setattr(source, "commit", lambda offsets: CommitResult.UNKNOWN)
    for _ in range(20):
        for worker in workers:
            worker.step()
    for worker in workers:
        worker.stop()
        worker.run()
    # Only the last one to leave commits, and only what it had itself. Whoever leaves earlier commits nothing.
    assert [mark(world, number) for number in (0, 1)] == [10, 10]
    assert world.log.group("omdml").committed.items() <= dict.fromkeys(world.log.partitions, 10).items()
    assert world.log.group("omdml").committed


def test_a_partition_that_goes_elsewhere_while_the_worker_stops_is_saved(tmp_path):
    world = World(tmp_path)
    worker = paced(world.worker(), save=1000.0)
    world.send(*events(10))
    run_until_idle(worker, 5)
    worker.stop()
    # The turn that is under way goes on, and gives the partition up.
    worker._owned.revoked(list(worker.partitions))
    assert mark(world) == 10


@pytest.mark.parametrize("run", ["the same run", "another run"])
def test_a_model_claimed_just_after_its_store_was_brought_back_lacks_no_event(tmp_path, run):
    # Given a worker that has a partition and not its model in memory
    world, feedback = World(tmp_path), list(events(25))
    first = world.worker()
    world.send(*feedback[:10])
    run_until_idle(first)
    copies = {name: kept_checkpoints(world.store, name) for name in world.store.models()}
    marks_then = dict(world.store.database.groups["marks"])
    world.send(*feedback[10:20])
    run_until_idle(first)
    first.stop()
    first.run()
    worker = world.worker()
    run_until_idle(worker, 3)
    # When the store is brought back from a copy, or fails over to a replica that lacks the newest, and an event comes
    for name, checkpoints in copies.items():
        put_checkpoints(world.store, name, checkpoints)
    world.store.database.groups["marks"] = marks_then
    if run != "the same run":
        put_id(world.store, run)
    world.send(*feedback[20:])
    run_until_idle(worker)
    # Then what the copy lacks is learned before it.
    assert world.store.peek("shop").state == learned_directly(world, 25).to_bytes()


def test_a_worker_that_is_stopped_amid_a_backlog_ends_after_a_piece_of_it(tmp_path, monkeypatch):
    world = World(tmp_path)
    # One poll brings 100 comparisons, which are five pieces then.
    monkeypatch.setattr(decoding, "PIECE", 20)
    worker, take, taken = world.worker(), OwnedPartition.take, []
    worker.schedule.config = WorkerConfig(publish_interval_s=60.0)

    def take_and_stop(owned, records):
        taken.append(len(records))
        left = take(owned, records)
        worker.stop()
        return left

    world.send(*events(100))
    with monkeypatch.context() as stopped:
        stopped.setattr(OwnedPartition, "take", take_and_stop)
        worker.run()
    assert taken == [mark(world)]
    assert 0 < mark(world) < 50
    run_until_idle(world.worker())
    assert world.store.peek("shop").state == learned_directly(world, 100).to_bytes()


@pytest.mark.parametrize("killed", [False, True])
def test_an_event_that_a_checkpoint_skips_is_in_the_letters_for_sure(tmp_path, monkeypatch, killed):
    # Given a broker that has what it is sent only after a flush, and goes away before that
    world = World(tmp_path)
    worker = world.worker()
    dead_letters, on_the_way = worker.services.letters, []
    send = dead_letters._sink.send
    monkeypatch.setattr(dead_letters._sink, "send", lambda *sent, **key: on_the_way.append((sent, key)))
    monkeypatch.setattr(dead_letters, "flush", away)
    world.send(*events(5), UNKNOWN, *events(3, seed=1))
    run_until_idle(worker, 10)
    # If the worker is killed, or reaches the broker, I expect the letter once, and the other events to be learned once.
    if killed:
        kill(world, worker)
        worker = world.worker()
    else:
        for sent, key in on_the_way:
            send(*sent, **key)
        monkeypatch.undo()
    run_until_idle(worker)
    assert [letter.offset for letter in letters(world)] == [5]
    assert (world.store.peek("shop").version, mark(world)) == (8, 9)


def test_what_was_learned_goes_live_while_the_letters_are_away(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    with monkeypatch.context() as outage:
        for what in ("add", "flush"):
            outage.setattr(worker.services.letters, what, away)
        world.send(*events(5), UNKNOWN, *events(3, seed=1))
        run_until_idle(worker, 10)
        assert world.store.current("shop").version == 8
        assert world.store.peek("shop") is None
    run_until_idle(worker)
    assert (world.store.peek("shop").version, mark(world)) == (8, 9)


def test_an_only_event_that_was_saved_but_not_marked_is_not_learned_twice(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    world.send(*events(1))
    with monkeypatch.context() as outage:
        outage.setattr(world.store, "move_mark", refuse)
        run_until_idle(worker)
    kill(world, worker)
    run_until_idle(world.worker())
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 1).to_bytes()
