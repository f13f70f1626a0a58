"""Models that begin from a parent: its state is taken once, and saved before the model learns anything."""

from __future__ import annotations

import numpy as np
import pytest
import structlog
from msgspec.structs import replace

from omdml import DCA
from omdml.learners import Learner
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.workers.commands.replay_output import learn
from omdml.workers.configuration.specs import Specs
from omdml.workers.learning.interruptions import Rewind
from omdml.workers.model import beginning
from omdml.workers.operate import models as upkeep
from omdml.workers.operate.replay import ReplayedModel, first_learner
from tests.support.worlds import (
    World,
    damage,
    events,
    kill,
    living_on,
    mark,
    other_than,
    run_until_idle,
    triplets,
    whole_log,
)

OPTIONS = {"learner": "dca", "coordinates": "features", "rank": 6}
MODELS = {"main": OPTIONS, "shop": {**OPTIONS, "parent": "main"}, "user-*": {**OPTIONS, "parent": "main"}}


@pytest.fixture(autouse=True)
def _nothing_logged_yet():
    """Forget what was logged: a process logs only once that models begin without their parent."""
    beginning._log_once.cache_clear()


def of_parents(folder, partitions=1):
    """A world with a parent, a named model and a pattern that begin from it."""
    return World(folder, partitions, MODELS)


def send(world, model, count, seed=0):
    """Put events of a model into the log, where it lives."""
    world.send(*events(count, seed, model), key=model)


def spec_of(world, name):
    return Specs(world.configuration, {"items": world.catalogue}).of(name)


def begun(world, parent, name="shop"):
    """A learner that begins with what a parent serves."""
    learner = spec_of(world, name).fresh()
    learner.begin_from(parent.metric, parent.version)
    return learner


def after(world, count, seed=0):
    """The parent after so many events, learned without any worker."""
    learner = spec_of(world, "main").fresh()
    learner.learn_many(triplets(count, seed), world.catalogue.features)
    return learner


def state(world, name):
    return world.store.peek(name).state


def test_a_model_begins_with_what_its_parent_serves_then_and_never_looks_again(tmp_path):
    world = of_parents(tmp_path)
    worker = world.worker()
    send(world, "main", 90)
    run_until_idle(worker)
    for name in ("shop", "user-1"):
        send(world, name, 40, seed=1)
    run_until_idle(worker)
    send(world, "main", 50, seed=2)
    for name in ("shop", "user-1"):
        send(world, name, 30, seed=3)
    run_until_idle(worker)
    parent, rows = after(world, 90), np.concatenate([triplets(40, 1), triplets(30, 3)])
    for name in ("shop", "user-1"):
        twin = begun(world, parent, name)
        twin.learn_many(rows, world.catalogue.features)
        assert state(world, name) == twin.to_bytes()
        assert world.store.load(name)[1].progress["parent_share"] == twin.figures["parent_share"]
    assert Learner.from_bytes(state(world, "main")).version == 140
    # A pattern's models share one start: the newest alone is kept.
    starts = worker.services.specs.of("user-1").starts
    assert sum(start.parent is not None for start in starts.values()) == 1


def test_a_parent_elsewhere_is_read_from_the_store_alone(tmp_path):
    world = of_parents(tmp_path, partitions=2)
    name = living_on(world, other_than(world, "main"))
    worker = world.worker()
    send(world, "main", 60)
    run_until_idle(worker)
    kill(world, worker)
    send(world, name, 5)
    run_until_idle(world.worker())
    assert Learner.from_bytes(state(world, name)).parent[1] == 60


def test_without_a_parent_yet_a_model_begins_from_nothing_and_the_log_says_so(tmp_path):
    world = of_parents(tmp_path)
    worker = world.worker()
    with structlog.testing.capture_logs() as lines:
        for name in ("user-1", "user-2"):
            send(world, name, 3)
        run_until_idle(worker)
    notes = [line for line in lines if line["event"] == "parent_not_used"]
    assert [(line["models"], line["parent"], line["reason"]) for line in notes] == [
        ("user-*", "main", "it has learned nothing yet")
    ]
    twin = spec_of(world, "user-1").fresh()
    twin.learn_many(triplets(3), world.catalogue.features)
    assert state(world, "user-1") == twin.to_bytes()
    # The parent comes too late for user-1.
    send(world, "main", 20)
    run_until_idle(worker)
    send(world, "user-1", 3, seed=1)
    send(world, "user-3", 3)
    run_until_idle(worker)
    assert Learner.from_bytes(state(world, "user-1")).parent is None
    assert Learner.from_bytes(state(world, "user-3")).parent[1] == 20


def test_a_parent_that_is_damaged_or_of_another_shape_is_not_used(tmp_path):
    world = of_parents(tmp_path)
    send(world, "main", 20)
    run_until_idle(world.worker())
    snapshot, epoch = world.store.load("main")[1], world.store.claim("main").epoch
    narrow = DCA(dims=dict(world.catalogue.dims), rank=3)
    narrow.learn_many(triplets(30), world.catalogue.features)
    for version, changes, why in (
        (101, {"generation": "of-before"}, "it is of the catalogue's generation of-before, today's is"),
        (102, {"metric": narrow.metric}, "in different coordinates"),
    ):
        world.store.publish(replace(snapshot, version=version, **changes), epoch)
        with structlog.testing.capture_logs() as lines:
            assert beginning.beginning(spec_of(world, "user-1"), world.store).parent is None
        assert why in lines[0]["reason"]
    damaged = replace(snapshot, version=103)
    world.store.publish(damaged, epoch)
    journal, key = world.store.journal("main"), (103, world.store.current("main").digest)
    journal.write(key, journal.read(key)[:-9])
    with structlog.testing.capture_logs() as lines:
        assert beginning.beginning(spec_of(world, "user-1"), world.store).parent is None
    assert lines[0]["parent"] == "main"
    assert "are not safetensors that omdml wrote" in lines[0]["reason"]


@pytest.mark.parametrize("saves", [0, 1])
def test_a_kill_changes_nothing_once_the_beginning_is_saved(tmp_path, saves, monkeypatch):
    world = of_parents(tmp_path)
    first = world.worker()
    send(world, "main", 90)
    run_until_idle(first)
    send(world, "shop", 40, seed=1)
    # The worker dies after so many checkpoints of the model, in the middle of a turn.
    save_all, saved = world.store.save_all, []

    def counted(saves_now, placement=None):
        mine = [checkpoint for checkpoint, _ in saves_now if checkpoint.model == "shop"]
        if mine and len(saved) == saves:
            raise KeyboardInterrupt
        saved.extend(mine)
        return save_all(saves_now, placement)

    with monkeypatch.context() as dying:
        dying.setattr(world.store, "save_all", counted)
        with pytest.raises(KeyboardInterrupt):
            run_until_idle(first)
    kill(world, first)
    assert [(entry.version, entry.next) for entry in saved[:1]] == [(0, 90)][:saves]
    second = world.worker()
    if saves:
        # Meanwhile the parent learned on: only a beginning that nobody saved would take that.
        later = replace(world.store.load("main")[1], version=91, metric=after(world, 91).metric)
        world.store.publish(later, world.store.claim("main").epoch)
    run_until_idle(second)
    twin = begun(world, after(world, 90))
    twin.learn_many(triplets(40, 1), world.catalogue.features)
    assert state(world, "shop") == twin.to_bytes()
    assert mark(world) == 130
    tally = world.store.peek("shop").progress["tally"]
    assert (tally["since"], tally["until"], tally["learned"], tally["anew"]) == (90, 130, 40, True)


def test_a_deleted_model_that_waited_begins_where_it_waited(tmp_path):
    world = of_parents(tmp_path)
    first = world.worker()
    send(world, "main", 90)
    send(world, "shop", 10)
    run_until_idle(first)
    kill(world, first)
    damage(world, "shop")
    second = world.worker()
    send(world, "shop", 20, seed=1)
    send(world, "main", 10, seed=1)
    second.step()
    world.store.delete("shop")
    send(world, "shop", 20, seed=2)
    # So much time passes that the worker looks at the waiting model again, in the middle of a turn.
    for _ in range(100):
        world.now()
    (home,) = world.log.partitions
    with pytest.raises(Rewind):
        second.partitions[home].take(list(world.log.read(home, 130, 100)))
    checkpoint = world.store.peek("shop")
    assert (checkpoint.version, checkpoint.next, checkpoint.progress["tally"]["since"]) == (0, 100, 100)
    kill(world, second)
    run_until_idle(world.worker())
    twin = Learner.from_bytes(checkpoint.state)
    twin.learn_many(np.concatenate([triplets(20, 1), triplets(20, 2)]), world.catalogue.features)
    assert state(world, "shop") == twin.to_bytes()


def test_a_named_model_is_not_published_before_its_first_event(tmp_path):
    world = of_parents(tmp_path)
    run_until_idle(world.worker())
    assert world.store.current("main").version == 0
    assert world.store.current("shop") is None


def test_a_reset_begins_from_what_the_parent_serves_at_that_moment(tmp_path):
    world = of_parents(tmp_path)
    worker = world.worker()
    send(world, "main", 30)
    run_until_idle(worker)
    send(world, "shop", 10)
    run_until_idle(worker)
    send(world, "main", 30, seed=1)
    run_until_idle(worker)
    upkeep.reset(world.store, spec_of(world, "shop"), "shop", "test")
    learner = Learner.from_bytes(state(world, "shop"))
    assert (learner.version, learner.parent[1]) == (0, 60)
    assert world.store.load("shop")[1].metric.embed(world.catalogue.features).tobytes() == (
        learner.metric.embed(world.catalogue.features).tobytes()
    )


def test_a_replay_begins_with_what_the_checkpoint_says_and_ends_at_its_bytes(tmp_path):
    world = of_parents(tmp_path)
    worker = world.worker()
    send(world, "main", 30)
    run_until_idle(worker)
    send(world, "shop", 25, seed=1)
    run_until_idle(worker)
    send(world, "main", 30, seed=2)
    run_until_idle(worker)
    spec, placement = spec_of(world, "shop"), Placement.first("crc32", 1)
    learner = first_learner(spec, "shop", world.store)
    replayed = ReplayedModel("shop", learner, spec, placement, world.store.secret())
    learn([replayed], iter([whole_log(world)]))
    assert replayed.learner.to_bytes() == state(world, "shop")
    # A model without a checkpoint begins with what the parent serves today.
    assert first_learner(spec, "user-9", world.store).parent[1] == 60
    assert replayed.home == Partition(world.log.topic_id, 0)
