"""Models whose checkpoints cannot be read: they fall back, or wait alone."""

from __future__ import annotations

import pytest

from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.configuration.config import WorkerConfig
from omdml.workers.operate import models, topics
from tests.support.learning.restored_stores import kept_checkpoints, put_checkpoints
from tests.support.learning.store_samples import checkpoint
from tests.support.worlds import (
    World,
    damage,
    damage_newest,
    events,
    extents,
    kill,
    learned_directly,
    letters,
    living_on,
    mark,
    other_than,
    run_until_idle,
    triplets,
    unreadable,
)


def waiting(worker, cause="damaged"):
    """Models whose checkpoints cannot be used, as Prometheus sees them."""
    return worker.services.metrics.registry.get_sample_value("omdml_worker_models_waiting", {"cause": cause})


@pytest.mark.parametrize("restarted", [False, True])
def test_a_model_with_damaged_checkpoints_waits_alone_until_they_are_restored(tmp_path, restarted):
    # Given two models, and nothing left to read of one of them
    world = World(tmp_path)
    feedback = {name: list(events(40, seed, model=name)) for seed, name in enumerate(("user-1", "user-2"))}
    first = world.worker()
    world.send(*feedback["user-1"][:10], *feedback["user-2"][:10])
    run_until_idle(first)
    kill(world, first)
    sound = damage(world, "user-1")
    # When events come for both, I expect the other model to learn, and the mark to stay where the first one's begin
    worker = world.worker()
    for part in (slice(10, 20), slice(20, 30)):
        world.send(*feedback["user-1"][part], *feedback["user-2"][part])
        run_until_idle(worker)
    assert (world.store.peek("user-2").version, mark(world)) == (30, 20)
    assert waiting(worker) == 1
    if restarted:
        kill(world, worker)
        worker = world.worker()
    # Once its checkpoints are restored, I expect it to learn all of them in order, and no model anything twice.
    put_checkpoints(world.store, "user-1", sound)
    world.send(*feedback["user-1"][30:], *feedback["user-2"][30:])
    run_until_idle(worker, 100)
    assert mark(world) == 80
    assert waiting(worker) == 0
    for seed, name in enumerate(feedback):
        twin = worker.services.specs.find(name).fresh()
        twin.learn_many(triplets(40, seed), world.catalogue.features)
        assert world.store.peek(name).state == twin.to_bytes()


def test_a_waiting_model_that_is_reset_begins_with_what_it_waited_for(tmp_path):
    world, _ = unreadable(tmp_path, "shop")
    worker = world.worker()
    world.send(*events(5, seed=1))
    run_until_idle(worker)
    world.store.delete("shop")
    world.send(*events(5, seed=2))
    run_until_idle(worker, 100)
    assert (world.store.peek("shop").version, mark(world)) == (10, 20)


def test_a_damaged_model_that_was_never_published_lets_its_worker_start(tmp_path):
    world = World(tmp_path)
    epoch = world.store.claim("shop").epoch
    world.store.save(checkpoint(5, state=b"no state"), epoch)
    worker = world.worker()
    world.send(*events(10, model="user-1"))
    run_until_idle(worker)
    assert world.store.peek("user-1").version == 10


@pytest.mark.parametrize("more", [0, 1], ids=["no event comes", "an event comes"])
def test_a_waiting_model_restored_from_an_older_copy_learns_the_rest(tmp_path, more):
    world = World(tmp_path)
    first = world.worker()
    world.send(*events(10, model="user-1"))
    run_until_idle(first)
    copy = kept_checkpoints(world.store, "user-1")
    world.send(*events(20, 1, model="user-1"))
    run_until_idle(first)
    kill(world, first)
    damage(world, "user-1")
    worker = world.worker()
    world.send(*events(10, 2, model="user-1"))
    run_until_idle(worker)
    put_checkpoints(world.store, "user-1", copy)
    world.send(*events(more, 3, model="user-1"))
    run_until_idle(worker, 40)
    assert (world.store.peek("user-1").version, mark(world)) == (40 + more, 40 + more)


def test_an_older_checkpoint_put_in_place_by_hand_learns_what_it_lacks(tmp_path):
    # Given a model that another program put back to an earlier checkpoint, and a mark far beyond that
    world = World(tmp_path)
    first = world.worker()
    world.send(*events(10, model="user-1"))
    run_until_idle(first)
    copy = kept_checkpoints(world.store, "user-1")
    world.send(*events(20, 1, model="user-1"), *events(5, 2, model="user-2"))
    run_until_idle(first)
    kill(world, first)
    put_checkpoints(world.store, "user-1", copy)
    # When the next event comes for it, I expect it to learn first what it lacks, and no other model to learn anything.
    worker = world.worker()
    world.send(*events(1, 3, model="user-1"))
    run_until_idle(worker, 40)
    assert mark(world) == 36
    assert world.store.peek("user-2").version == 5
    twin = worker.services.specs.find("user-1").fresh()
    for count, seed in ((10, 0), (20, 1), (1, 3)):
        twin.learn_many(triplets(count, seed), world.catalogue.features)
    assert world.store.peek("user-1").state == twin.to_bytes()


@pytest.mark.parametrize("remedy", ["restored", "reset"])
def test_a_waiting_model_without_events_goes_on_once_restored_or_reset(tmp_path, remedy):
    # Given a model that waits, and another one that goes on learning
    world, sound = unreadable(tmp_path, "user-1", "user-2")
    worker = world.worker()
    world.send(*events(10, 1, model="user-1"))
    run_until_idle(worker)
    # If it is mended, I expect its events to be learned, and the mark to move on.
    if remedy == "restored":
        put_checkpoints(world.store, "user-1", sound)
    else:
        models.reset(world.store, worker.services.specs.find("user-1"), "user-1", "here")
    for seed in range(3):
        world.send(*events(10, 2 + seed, model="user-2"))
        run_until_idle(worker, 30)
    assert world.store.peek("user-1").version == (20 if remedy == "restored" else 10)
    assert (mark(world), waiting(worker)) == (60, 0)


@pytest.mark.parametrize("checkpoints", ["gone", "damaged"])
def test_a_rewind_begins_models_again_that_have_no_checkpoint_to_read(tmp_path, checkpoints):
    world = World(tmp_path)
    worker = world.worker()
    for name in ("user-1", "user-2"):
        world.send(*events(10, model=name), key=name)
    run_until_idle(worker)
    # A model that this log's events do not name keeps what it has.
    world.store.claim("another log's")
    worker.stop()
    worker.run()
    damage(world, "user-1")
    if checkpoints == "gone":
        put_checkpoints(world.store, "user-1", [])
    rewound = topics.rewind(extents(world), world.store, "crc32", ["user-1", "user-2"], None)
    assert rewound == ["user-1", "user-2"]
    run_until_idle(world.worker())
    assert [world.store.peek(name).version for name in ("user-1", "user-2")] == [10, 10]


@pytest.mark.parametrize("newest", ["damaged", "replaced"])
def test_a_model_that_would_fall_back_to_before_the_log_begins_waits_alone(tmp_path, newest):
    # Given a model whose newest checkpoint is damaged, or gave way to an older one by hand. The one that is left ends
    # where the log no longer reaches.
    world = World(tmp_path)
    (partition,) = world.log.partitions
    first = world.worker()
    world.send(*events(10, model="user-1"))
    run_until_idle(first)
    copy = kept_checkpoints(world.store, "user-1")
    world.send(*events(10, 1, model="user-1"))
    run_until_idle(first)
    world.send(*events(10, model="user-2"))
    run_until_idle(first)
    kill(world, first)
    if newest == "damaged":
        damage_newest(world, "user-1")
    else:
        put_checkpoints(world.store, "user-1", copy)
    world.log.trim(partition, 15)
    # If events come for both, I expect the other one to learn, and this one to wait.
    worker = world.worker()
    world.send(*events(5, 2, model="user-1"), *events(5, 2, model="user-2"))
    run_until_idle(worker, 40)
    assert (world.store.peek("user-2").version, mark(world)) == (15, 30)
    assert (world.store.peek("user-1").version, waiting(worker)) == (10, 1)
    # If it is reset, I expect it to begin again with what waited.
    models.reset(world.store, worker.services.specs.find("user-1"), "user-1", "here")
    run_until_idle(worker, 40)
    assert (world.store.peek("user-1").version, mark(world)) == (5, 40)


def test_a_model_that_waits_for_longer_than_the_log_reaches_back_stops_no_other(tmp_path):
    world, _ = unreadable(tmp_path, "user-1", "user-2")
    (partition,) = world.log.partitions
    worker = world.worker()
    world.send(*events(10, 1, model="user-1"), *events(30, 1, model="user-2"))
    run_until_idle(worker)
    assert mark(world) == 20
    # When retention passes the mark
    world.log.trim(partition, 40)
    run_until_idle(worker, 40)
    assert mark(world) == 40
    kill(world, worker)
    # I expect the next worker to start, and all that the log holds to be learned.
    worker = world.worker()
    world.send(*events(5, 2, model="user-2"))
    run_until_idle(worker)
    assert (world.store.peek("user-2").version, mark(world)) == (45, 65)


def test_a_waiting_model_leaves_no_trace_of_each_look_at_it(tmp_path):
    world = World(tmp_path)
    world.store = DirectoryStore(tmp_path / "state")
    first = world.worker()
    world.send(*events(10, model="user-1"))
    run_until_idle(first)
    kill(world, first)
    for path in (tmp_path / "state").rglob("*.checkpoint"):
        path.write_bytes(b"rubbish")
    worker = world.worker()
    world.send(*events(5, 1, model="user-1"))
    run_until_idle(worker)
    assert waiting(worker) == 1
    epochs = sorted((tmp_path / "state" / "models" / "user-1" / "checkpoints").iterdir())
    assert epochs
    run_until_idle(worker, 100)
    assert sorted((tmp_path / "state" / "models" / "user-1" / "checkpoints").iterdir()) == epochs
    assert waiting(worker) == 1


@pytest.mark.parametrize("remedy", ["restored", "reset"])
def test_models_that_waited_go_on_without_passing_over_events_of_another(tmp_path, remedy):
    # Given two models of which no checkpoint can be read; the second waits for events far behind those of the first
    world, names = World(tmp_path), ("user-1", "user-2")
    first = world.worker()
    for name in names:
        world.send(*events(10, model=name))
    run_until_idle(first)
    kill(world, first)
    sound = {name: damage(world, name) for name in names}
    worker = world.worker()
    worker.schedule.config = WorkerConfig(max_poll_records=5)
    for name, count in zip(names, (60, 5), strict=True):
        world.send(*events(count, 1, model=name))
        run_until_idle(worker, 30)
    # If both can be read again, I expect the second one's turn to skip nothing that the first has not read yet.
    for name, checkpoints in sound.items():
        if remedy == "restored":
            put_checkpoints(world.store, name, checkpoints)
        else:
            models.reset(world.store, worker.services.specs.find(name), name, "here")
    run_until_idle(worker, 120)
    versions = [world.store.peek(name).version for name in names]
    assert versions == ([70, 15] if remedy == "restored" else [60, 5])
    assert mark(world) == 85


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(tmp_path, capsys):
    world = World(tmp_path)
    world.store = DirectoryStore(tmp_path / "state")
    sent = list(events(300))
    for start in (0, 100):
        world.send(*sent[start : start + 100])
        worker = world.worker()
        run_until_idle(worker)
        world.log.expel(worker.services.source)
    newest = max((tmp_path / "state").rglob("*.checkpoint"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-50])
    world.send(*sent[200:])
    run_until_idle(world.worker())
    assert "checkpoint_damaged_previous_used" in capsys.readouterr().out
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 300).to_bytes()


def test_a_damaged_checkpoint_in_one_partition_drops_nothing_of_another(tmp_path):
    world = World(tmp_path, partitions=2)
    world.store = DirectoryStore(tmp_path / "state")
    worker = world.worker()
    damaged, sound = (living_on(world, partition) for partition in world.log.partitions)
    for start in (0, 10):
        for name in (damaged, sound):
            world.send(*list(events(30, model=name))[start : start + 10], key=name)
        run_until_idle(worker)
    worker.services.source.close()
    folder = tmp_path / "state" / "models" / damaged
    newest = max(folder.rglob("*.checkpoint"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-50])
    for name in (damaged, sound):
        world.send(*list(events(30, model=name))[20:], key=name)
    run_until_idle(world.worker())
    assert {name: world.store.claim(name).checkpoint.version for name in (damaged, sound)} == {damaged: 30, sound: 30}


@pytest.mark.parametrize("name", ["user-1", "shop"])
def test_a_stray_event_and_a_damaged_checkpoint_rewind_only_the_home(tmp_path, name):
    world = World(tmp_path, partitions=2)
    world.store = DirectoryStore(tmp_path / "state")
    worker = world.worker()
    sent = list(events(35, model=name))
    for start in (0, 10, 20):
        world.send(*sent[start : start + 10], key=name)
        run_until_idle(worker)
    world.log.expel(worker.services.source)
    newest = max((tmp_path / "state").rglob("*.checkpoint"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-7])
    key = living_on(world, other_than(world, name))
    world.send(*events(5, seed=9, model=name), key=key)
    successor = world.worker()
    run_until_idle(successor)
    world.send(*sent[30:], key=name)
    run_until_idle(successor)
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"] * 5
    assert world.store.claim(name).checkpoint.version == 35
