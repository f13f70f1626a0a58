"""Models that go on from before the mark lose nothing, wherever their worker is cut off."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from omdml import LOMDML
from omdml.errors import StoreError
from omdml.workers.configuration.config import WorkerConfig
from omdml.workers.learning.interruptions import StoreChanged
from omdml.workers.learning.partition.watermark import Mark
from tests.support.deep import deep_after
from tests.support.learning.audits import audited
from tests.support.learning.restored_stores import kept_checkpoints, put_checkpoints
from tests.support.worlds import (
    World,
    configuration,
    damage,
    damage_newest,
    events,
    kill,
    letters,
    mark,
    refuse,
    run_until_idle,
    triplets,
)

WRITES = ("claim", "claim_all", "save", "save_all", "note", "publish", "publish_all", "move_mark")
SENT = list(events(40))
# Events in the older checkpoint, below the mark, and in the log at the end.
SAVED, AHEAD, ALL = 10, 30, 40


class Killed(BaseException):
    """Raised at the place at which a real process would be killed."""


class Cut:
    """A store that is cut off right after so many writes: the process is killed, or only the answer is lost."""

    def __init__(self, store, writes, error):
        self.store, self.left, self.error = store, writes, error

    def __getattr__(self, name):
        method = getattr(self.store, name)
        if name not in WRITES:
            return method

        def called(*arguments, **options):
            answer = method(*arguments, **options)
            self.left -= 1
            if self.left == 0:
                raise self.error
            return answer

        return called


def lacking(folder, eta=0.01):
    """A world whose model has one sound checkpoint, which ends before the mark."""
    world = World(folder)
    for part in (slice(0, SAVED), slice(SAVED, AHEAD)):
        worker = world.worker()
        world.send(*SENT[part])
        run_until_idle(worker)
        kill(world, worker)
    damage_newest(world, "shop")
    world.configuration = configuration(folder / "items", {"shop": {"learner": "lomdml", "rank": 3, "eta": eta}})
    world.send(*SENT[AHEAD : AHEAD + 5])
    return world


def restored_while_waiting(world, worker):
    """Have a worker wait for a model of which nothing can be read, then bring the older checkpoint back."""
    older = kept_checkpoints(world.store, "shop")[1:]
    damage(world, "shop")
    run_until_idle(worker, 5)
    put_checkpoints(world.store, "shop", older)


def learned(catalogue, eta):
    """The state after all events in order, with the settings that were in force at each of them."""
    model = LOMDML(dims=dict(catalogue.dims), rank=3)
    model.learn_many(triplets(ALL)[:SAVED], catalogue.features)
    model = model.learning_on(rank=3, eta=eta)
    model.learn_many(triplets(ALL)[SAVED:], catalogue.features)
    return model.to_bytes()


def cut_off(world, writes, error, prepare):
    """Run a worker whose store is cut off after ``writes`` writes, and kill it; returns whether it was cut off."""
    store = Cut(world.store, 0, error)
    worker = world.worker(store=store)
    worker.schedule.config = WorkerConfig(max_poll_records=4)
    prepare(world, worker)
    store.left = writes
    with suppress(Killed):
        run_until_idle(worker, 40)
    kill(world, worker)
    return store.left <= 0


@pytest.mark.parametrize(
    "error", deep_after(1, [Killed(), StoreError("the answer is lost")]), ids=["killed", "answer lost"]
)
@pytest.mark.parametrize(
    ("eta", "prepare", "first"),
    # A worker that is cut off after its first write has only claimed the restored model, and leaves no trace: hence 2.
    [(0.01, lambda *_: None, 1), (0.02, lambda *_: None, 1), (0.01, restored_while_waiting, 2)],
    ids=["newest damaged", "and other settings", "an older copy while it waits"],
)
def test_a_model_that_goes_on_from_before_the_mark_loses_nothing(tmp_path, monkeypatch, error, eta, prepare, first):
    monkeypatch.setattr("omdml.workers.learning.worker.RETRY_S", 0.0)
    expected = learned(World(tmp_path / "expected").catalogue, eta)
    for writes in itertools.count(first):
        # Given a model that lacks events below the mark, and a worker that is cut off after each of its writes in turn
        world = lacking(tmp_path / str(writes), eta)
        was_cut_off = cut_off(world, writes, error, prepare)
        # If another worker goes on, I expect it to learn every event once, in order.
        world.send(*SENT[AHEAD + 5 :])
        run_until_idle(world.worker(), 60)
        assert (mark(world), world.store.peek("shop").version, letters(world)) == (ALL, ALL, []), writes
        assert world.store.peek("shop").state == expected, writes
        assert audited(world)[1].wrong == {}
        if not was_cut_off:
            break
    assert writes > 5


def test_a_graceful_stop_while_marks_cannot_be_moved_loses_nothing(tmp_path, monkeypatch):
    world = lacking(tmp_path)
    worker = world.worker()
    worker.schedule.config = WorkerConfig(max_poll_records=4)
    monkeypatch.setattr("omdml.workers.learning.worker.RETRY_S", 0.0)
    with monkeypatch.context() as full:
        full.setattr(world.store, "move_mark", refuse)
        run_until_idle(worker, 3)
        worker.stop()
        with suppress(StoreError):
            worker.run()
    world.send(*SENT[AHEAD + 5 :])
    run_until_idle(world.worker())
    assert (mark(world), world.store.peek("shop").version) == (ALL, ALL)


@pytest.mark.parametrize("back", [10, 30])
def test_a_mark_goes_back_although_an_earlier_owner_moved_it_on_meanwhile(tmp_path, back):
    world = World(tmp_path)
    (partition,) = world.log.partitions
    world.store.move_mark(partition, None, 30)
    earlier, owner = (Mark(partition, world.store) for _ in range(2))
    for watermark in (earlier, owner):
        watermark.start(None, world.log.start)
    earlier.move(35)
    owner.go_back(back)
    assert (mark(world), owner.offset) == (back, back)
    # I expect the earlier owner to hear of it, and not to move it on from what it knows.
    with pytest.raises(StoreChanged):
        earlier.move(40)
    assert mark(world) == back
