"""A large model is saved while it goes on learning."""

from __future__ import annotations

import pytest

from omdml import LOMDML
from omdml.errors import StoreError
from omdml.workers.learning.partition import models
from tests.support.late_saver import LateSaver
from tests.support.worlds import World, events, kill, mark, run_until_idle, triplets

COUNT = 30


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "LARGE", 0)
    return World(tmp_path)


@pytest.fixture
def saver():
    return LateSaver()


@pytest.fixture
def worker(world, saver):
    """A worker whose first save has begun, and that learned as many events again since."""
    worker, said = world.worker(saver=saver), events(2 * COUNT)
    for _ in range(2):
        world.send(*(next(said) for _ in range(COUNT)))
        run_until_idle(worker, turns=5)
    assert len(saver.waiting) == 1
    return worker


def learned(world, count):
    """The state after the first events, learned without any worker."""
    model = LOMDML(dims=dict(world.catalogue.dims), rank=3)
    model.learn_many(triplets(2 * COUNT)[:count], world.catalogue.features)
    return model.to_bytes()


def test_while_a_large_model_is_saved_what_it_learns_goes_live(world, worker):
    assert world.store.load("shop")[1].version == 2 * COUNT
    # The mark stays below all events that are in no checkpoint.
    assert world.store.positions(["shop"]) == {}
    assert not mark(world)


def test_a_save_holds_what_was_learned_when_it_began_and_the_mark_follows_it(world, worker, saver):
    saver.waiting[0].run()
    worker.rounds.turn()
    assert world.store.peek("shop").state == learned(world, COUNT)
    assert mark(world) == COUNT


def test_what_was_learned_during_a_save_is_saved_next(world, worker, saver):
    saver.is_done = lambda: True
    run_until_idle(worker, turns=5)
    assert world.store.peek("shop").state == learned(world, 2 * COUNT)
    assert mark(world) == 2 * COUNT


def test_a_save_that_failed_is_made_again(world, worker, saver, monkeypatch):
    def away(saves, placement):
        raise StoreError("store memory: away")

    with monkeypatch.context() as outage:
        outage.setattr(world.store, "save_all", away)
        saver.waiting[0].run()
    with pytest.raises(StoreError, match="away"):
        worker.rounds.turn()
    assert not mark(world)
    saver.is_done = lambda: True
    run_until_idle(worker, turns=5)
    assert world.store.peek("shop").state == learned(world, 2 * COUNT)
    assert mark(world) == 2 * COUNT


def test_a_worker_that_is_told_to_stop_waits_for_the_save_and_saves_the_rest(world, worker):
    worker.stop()
    worker.run()
    assert world.store.peek("shop").state == learned(world, 2 * COUNT)
    assert mark(world) == 2 * COUNT


def test_a_save_that_ends_after_another_worker_claimed_the_model_changes_nothing(world, worker, saver):
    kill(world, worker)
    run_until_idle(world.worker(), turns=5)
    saver.waiting[0].run()
    assert world.store.peek("shop").state == learned(world, 2 * COUNT)
    assert mark(world) == 2 * COUNT


def test_a_model_deleted_while_it_is_saved_begins_again_with_the_events_of_that_save(world, worker, saver):
    saver.is_done = lambda: True
    run_until_idle(worker, turns=5)
    saver.is_done = lambda: False
    world.send(*events(COUNT, seed=1))
    run_until_idle(worker, turns=5)
    assert len(saver.waiting) == 1
    world.store.delete("shop")
    saver.is_done = lambda: True
    run_until_idle(worker, turns=10)
    again = LOMDML(dims=dict(world.catalogue.dims), rank=3)
    again.learn_many(triplets(COUNT, seed=1), world.catalogue.features)
    assert world.store.peek("shop").state == again.to_bytes()
    assert mark(world) == 3 * COUNT
