"""While the store works on a save, the worker goes on learning and publishing."""

from __future__ import annotations

import pytest

from omdml.errors import StoreError
from tests.support.learning.late_answers import LateAnswers
from tests.support.worlds import World, events, kill, learned_directly, mark, paced, run_until_idle, stop

EVENTS = list(events(30))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def saving(world):
    """A worker that has learned and published ten events, and whose store still works on saving them."""
    world.send(*EVENTS[:10])
    worker = paced(world.worker(aside=LateAnswers()), save=0.0)
    while not worker.services.aside.unanswered:
        worker.step()
    assert (mark(world), world.store.current("shop").version) == (None, 10)
    return worker


def test_what_is_learned_while_the_store_saves_goes_live_before_the_answer(world, saving):
    world.send(*EVENTS[10:])
    run_until_idle(saving, turns=3)
    assert world.store.current("shop").version == 30
    assert world.store.peek("shop") is None
    assert mark(world) is None


def test_after_the_answer_the_mark_stays_below_what_was_learned_since(world, saving):
    world.send(*EVENTS[10:])
    run_until_idle(saving, turns=3)
    (save,) = saving.services.aside.unanswered
    save.answer()
    saving.step()
    assert (mark(world), world.store.peek("shop").version) == (10, 10)
    stop(saving)
    assert (mark(world), world.store.peek("shop").version) == (30, 30)


@pytest.mark.parametrize("answered", [True, False])
def test_a_kill_while_the_store_saves_loses_and_doubles_nothing(world, saving, answered):
    world.send(*EVENTS[10:])
    run_until_idle(saving, turns=3)
    kill(world, saving)
    if answered:
        # The store gets the request of a worker that is dead.
        saving.services.aside.unanswered[0].answer()
    stop(world.worker())
    assert world.store.peek("shop").state == learned_directly(world, 30).to_bytes()


def test_a_late_save_of_a_dead_worker_changes_nothing_for_its_successor(world, saving):
    kill(world, saving)
    world.send(*EVENTS[10:])
    successor = world.worker()
    run_until_idle(successor)
    saving.services.aside.unanswered[0].answer()
    stop(successor)
    assert world.store.peek("shop").state == learned_directly(world, 30).to_bytes()


def test_if_a_save_fails_everything_counts_as_unsaved_and_is_saved_again(world, saving, monkeypatch):
    monkeypatch.setattr("omdml.workers.learning.worker.RETRY_S", 0.0)
    (save,) = saving.services.aside.unanswered
    save.set_exception(StoreError("away"))
    world.send(*EVENTS[10:])
    run_until_idle(saving, turns=3)
    assert mark(world) in (None, 0)
    stop(saving)
    assert mark(world) == 30
    assert world.store.peek("shop").state == learned_directly(world, 30).to_bytes()


def test_a_partition_that_is_given_up_waits_for_the_answer_first(world, saving):
    saving._owned.revoked(list(saving.partitions))
    assert not saving.services.aside.unanswered
    assert (mark(world), world.store.peek("shop").version) == (10, 10)


def test_a_worker_that_is_told_to_stop_waits_for_the_answer(world, saving):
    saving.stop()
    saving.run()
    assert (mark(world), world.store.peek("shop").version) == (10, 10)
