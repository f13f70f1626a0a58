"""A store that comes back older, or forgets, under a living worker: what it lacks is learned again from the log."""

from __future__ import annotations

import pytest

from omdml.streams.protocols.log import CommitResult
from tests.support.learning.restored_stores import (
    RestorableDirectory,
    RestorableMemory,
    kept_checkpoints,
    put_checkpoints,
)
from tests.support.worlds import World, events, learned_directly, run_until_idle


@pytest.fixture(params=["memory", "directory"])
def world(request, tmp_path):
    world = World(tmp_path)
    world.store = RestorableMemory() if request.param == "memory" else RestorableDirectory(tmp_path / "state")
    return world


@pytest.fixture
def memory_world(tmp_path):
    world = World(tmp_path)
    world.store = RestorableMemory()
    return world


def versions(world, *names):
    """The versions that a successor would resume from."""
    return [world.store.claim(name).checkpoint.version for name in names]


def test_an_older_store_under_a_living_worker_loses_no_event_of_an_idle_model(world, capsys):
    worker = world.worker()
    world.send(*events(10, seed=1, model="user-1"))
    world.send(*list(events(20))[:10])
    run_until_idle(worker)
    world.store.back_up()
    world.send(*events(10, seed=3, model="user-1"))
    run_until_idle(worker)
    world.store.restore()
    world.send(*list(events(20))[10:])
    run_until_idle(worker)
    assert versions(world, "user-1", "shop") == [20, 20]
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 20).to_bytes()
    assert "store_changed" in capsys.readouterr().out


def test_an_older_store_loses_no_event_of_a_model_its_worker_never_met(world):
    worker = world.worker()
    world.send(*events(10, model="user-1"))
    run_until_idle(worker)
    world.store.back_up()
    world.send(*events(10, seed=2, model="user-1"))
    run_until_idle(worker)
    world.log.expel(worker.services.source)
    successor = world.worker()
    run_until_idle(successor)
    world.store.restore()
    world.send(*events(5))
    run_until_idle(successor)
    assert versions(world, "user-1", "shop") == [20, 5]


def test_an_older_store_is_noticed_without_another_event(world):
    worker = world.worker()
    world.send(*events(10))
    run_until_idle(worker)
    world.store.back_up()
    world.send(*events(10, seed=1))
    run_until_idle(worker)
    world.store.restore()
    run_until_idle(worker)
    assert versions(world, "shop") == [20]
    assert world.store.load("shop")[1].version == 20
    assert world.store.marks(world.log.partitions)[world.log.partitions[0]] == 20


def test_a_store_older_than_its_first_claim_of_a_model_is_replayed_too(world):
    worker = world.worker()
    world.send(*events(10))
    run_until_idle(worker)
    world.store.back_up()
    world.send(*events(10, model="user-1"))
    world.send(*events(10, seed=1))
    run_until_idle(worker)
    world.store.restore()
    run_until_idle(worker)
    assert versions(world, "user-1", "shop") == [10, 20]


def test_a_store_that_forgot_its_claim_is_not_taken_for_a_second_owner(memory_world, capsys):
    # Given a store that was copied while another worker owned the model
    world = memory_world
    first = world.worker()
    world.send(*events(10))
    run_until_idle(first)
    world.store.back_up()
    world.log.expel(first.services.source)
    worker = world.worker()
    world.send(*events(10, seed=1))
    run_until_idle(worker)
    # When the copy takes its place
    world.store.restore()
    world.store.fail_over()
    world.send(*events(10, seed=2))
    run_until_idle(worker)
    # Then the worker logs that the store changed, and nothing is lost.
    output = capsys.readouterr().out
    assert "store_changed" in output
    assert "fenced" not in output
    assert versions(world, "shop") == [30]


@pytest.mark.parametrize("when", ["before the mark is moved", "after the mark is moved"])
def test_a_server_without_the_last_save_is_noticed_whatever_its_mark(memory_world, monkeypatch, when):
    world, store = memory_world, memory_world.store
    worker = world.worker()
    world.send(*events(10, model="user-1"))
    run_until_idle(worker)
    move_mark = store.move_mark

    def failing_over(*arguments):
        monkeypatch.setattr(store, "move_mark", move_mark)
        moved = when.startswith("after") and move_mark(*arguments)
        put_checkpoints(store, "user-1", kept_checkpoints(store, "user-1")[1:])
        store.fail_over()
        return moved or move_mark(*arguments)

    monkeypatch.setattr(store, "move_mark", failing_over)
    world.send(*events(10, seed=1, model="user-1"))
    run_until_idle(worker)
    assert versions(world, "user-1") == [20]


def test_a_member_expelled_while_the_store_changed_comes_back(memory_world):
    world = memory_world
    worker = world.worker()
    world.send(*events(10))
    run_until_idle(worker)
    world.store.fail_over()
    expelled = expel_at_first_error(world, worker)
    world.send(*events(10, seed=1))
    run_until_idle(worker)
    assert expelled
    assert versions(world, "shop") == [20]


def expel_at_first_error(world, worker):
    """Expel a worker from its group when it first fails to publish and save; returns the list that its errors go to."""
    publish_and_save, errors = worker.schedule.publish_and_save, []

    def wrapped():
        try:
            return publish_and_save()
        except Exception as error:
            if not errors:
                world.log.expel(worker.services.source)
            errors.append(error)
            raise

    worker.schedule.publish_and_save = wrapped
    return errors


def test_a_fenced_worker_that_was_expelled_lets_go_and_joins_again(memory_world, capsys):
    # Given a worker that was paused: another one owns its model, and it is no member of its group any more
    world = memory_world
    worker = world.worker()
    world.send(*events(10))
    run_until_idle(worker)
    world.store.claim("shop")
    world.send(*events(10, seed=1))
    expel_at_first_error(world, worker)
    # When it goes on
    run_until_idle(worker)
    # Then it has let go of what it had, has joined again, and has learned each event once.
    assert "expelled" in capsys.readouterr().out
    assert versions(world, "shop") == [20]


def test_a_fenced_worker_waits_until_it_is_known_whether_it_is_a_member(memory_world, monkeypatch, capsys):
    world = memory_world
    worker = world.worker()
    world.send(*events(10))
    run_until_idle(worker)
    world.store.claim("shop")
    with monkeypatch.context() as patch:
        patch.setattr(worker.services.source, "commit", lambda offsets: CommitResult.UNKNOWN)
        for seed in (1, 2):
            world.send(*events(10, seed=seed))
            run_until_idle(worker)
    assert "it is unknown for now" in capsys.readouterr().out
    run_until_idle(worker)
    assert versions(world, "shop") == [30]
