"""The worker in one process, on memory twins: what it survives, and what ends it with a sentence."""

from __future__ import annotations

import pytest

from tests.support.learning.restored_stores import kept_checkpoints, put_checkpoints
from tests.support.worlds import World, events, learned_directly, letters, living_on, other_than, run_until_idle


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_a_worker_that_vanishes_is_succeeded_without_losing_or_doubling(tmp_path, batch):
    world = World(tmp_path)
    for start in range(0, 300, 60):
        world.send(*list(events(300))[start : start + 60])
        worker = world.worker()
        worker.schedule.config = type(worker.schedule.config)(max_poll_records=batch, checkpoint_interval_s=4.0)
        for _ in range(9):
            worker.step()
        # It is killed: it saves nothing and reports nothing.
        world.log.expel(worker.services.source)
    run_until_idle(world.worker(), turns=400)
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 300).to_bytes()


def test_published_versions_never_go_back_across_a_crash(tmp_path):
    world = World(tmp_path)
    world.send(*events(200))
    versions = []
    for _ in range(6):
        worker = world.worker()
        worker.schedule.config = type(worker.schedule.config)(max_poll_records=20, checkpoint_interval_s=30.0)
        for _ in range(6):
            worker.step()
            versions.append(world.store.current("shop").version if world.store.current("shop") else -1)
        world.log.expel(worker.services.source)
    assert versions == sorted(versions)
    assert versions[-1] > 0


def test_a_fenced_worker_starts_again_from_what_is_stored(tmp_path):
    world = World(tmp_path)
    world.send(*list(events(60))[:30])
    worker = world.worker()
    run_until_idle(worker)
    # Another worker claims the model.
    world.store.claim("shop")
    world.send(*list(events(60))[30:])
    run_until_idle(worker)
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 60).to_bytes()


def test_a_worker_fenced_before_its_first_save_loses_nothing(tmp_path):
    world = World(tmp_path)
    world.send(*events(30))
    worker = world.worker()
    worker.schedule.config = type(worker.schedule.config)(checkpoint_interval_s=1e9)
    worker.schedule.saved_at = float(world.now())
    worker.step()
    # Another worker claims the model.
    world.store.claim("shop")
    world.send(b"{nonsense")
    worker.schedule.config = type(worker.schedule.config)()
    run_until_idle(worker)
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 30).to_bytes()


def test_freshness_is_not_counted_from_events_that_were_live_before_a_crash(tmp_path):
    world = World(tmp_path)
    old = [event.replace(b'"at":1.0', b'"at":5.0') for event in events(20)]
    new = [event.replace(b'"at":1.0', b'"at":9.0') for event in events(5, seed=1)]
    world.send(*old)
    worker = world.worker()
    worker.schedule.config = type(worker.schedule.config)(checkpoint_interval_s=1e9)
    worker.schedule.saved_at = 0.0
    for _ in range(5):
        worker.step()
    assert world.store.current("shop").version == 20
    world.log.expel(worker.services.source)
    world.send(*new)
    successor = world.worker()
    successor.schedule.config = type(worker.schedule.config)(max_poll_records=20)
    run_until_idle(successor)
    snapshot = world.store.load("shop")[1]
    assert (snapshot.version, snapshot.oldest_event_time) == (25, 9.0)


def test_a_commit_behind_the_mark_is_where_a_successor_begins(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    for seed in range(2):
        world.send(*events(10, seed, model="user-1"))
        run_until_idle(worker)
    # The worker ends after the mark and before the commit. Then another server takes over.
    world.log.expel(worker.services.source)
    world.log.group("omdml").committed[world.log.partitions[0]] = 10
    put_checkpoints(world.store, "user-1", kept_checkpoints(world.store, "user-1")[1:])
    run_until_idle(world.worker())
    assert world.store.claim("user-1").checkpoint.version == 20


def test_the_oldest_change_is_saved_first(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    for name in ("user-1", "user-2"):
        world.send(*events(5, model=name))
    run_until_idle(worker)
    worker.schedule.saved_at = 1e9
    for name in ("user-2", "user-1", "user-2"):
        world.send(*events(5, model=name))
        worker.step()
    saved, save = [], world.store.save

    def noted(checkpoint, *arguments):
        saved.append(checkpoint.model)
        return save(checkpoint, *arguments)

    monkeypatch.setattr(world.store, "save", noted)
    worker.schedule.saved_at = 0.0
    run_until_idle(worker)
    assert saved == ["user-2", "user-1"]


def test_a_successor_goes_on_with_event_time_and_prequential_figures(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    world.send(*(event.replace(b'"at":1.0', b'"at":5.0') for event in events(30)))
    run_until_idle(worker)
    before = world.store.claim("shop").checkpoint
    world.log.expel(worker.services.source)
    world.send(*events(10, seed=1))
    run_until_idle(world.worker())
    after = world.store.claim("shop").checkpoint
    assert (before.event_time, after.event_time) == (5.0, 5.0)
    before, after = before.progress["mistakes"], after.progress["mistakes"]
    assert (before["count"], after["count"]) == (30, 40)
    assert after["mistakes"] >= before["mistakes"] > 0


def test_a_stray_event_does_not_hide_its_model_from_its_home(tmp_path):
    world = World(tmp_path, partitions=2)
    worker = world.worker()
    world.send(*list(events(20, model="user-1"))[:10], key="user-1")
    run_until_idle(worker)
    world.log.expel(worker.services.source)
    key = living_on(world, other_than(world, "user-1"))
    successor = world.worker()
    world.send(*events(5, seed=1, model="user-1"), key=key)
    run_until_idle(successor)
    world.send(*list(events(20, model="user-1"))[10:], key="user-1")
    run_until_idle(successor)
    assert [letter.reason for letter in letters(world)] == ["wrong_partition"] * 5
    assert world.store.claim("user-1").checkpoint.version == 20
