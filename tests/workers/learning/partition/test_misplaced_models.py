"""A model waits if its checkpoint is of a partition on which it no longer lives. The advised commands end the wait."""

from __future__ import annotations

import msgspec
import pytest
import structlog

from omdml.errors import StoreError
from omdml.workers.doctor.checks.checkpoints import checkpoints, look_at_checkpoints
from omdml.workers.operate import models, published_replay
from omdml.workers.operate.replay import ReplayedModel
from tests.support.worlds import damage_newest, events, extents, kill, learned_on_two, letters, rehomed, run_until_idle

WAYS = ["its newest checkpoint is damaged", "a paused worker saved it later"]


def misplaced(folder, way):
    """A world whose model learned 8 events on its first home, and waits on its second with one more; its name."""
    world, worker, model = learned_on_two(folder)
    world.send(*events(3, 1, model=model), key=key_of_first_partition(world))
    run_until_idle(worker)
    worker.stop()
    worker.run()
    assert rehomed(world) == (2, 4)
    if way == WAYS[0]:
        damage_newest(world, model)
    else:
        late = events(2, 3, model=model)
        world.send(*late, key=key_of_first_partition(world))
        epoch, checkpoint, _ = world.store.claim(model)
        world.store.save(msgspec.structs.replace(checkpoint, next=checkpoint.next + 2), epoch)
    world.send(*events(1, 2, model=model), key=model)
    waiting = world.worker()
    run_until_idle(waiting)
    assert models_waiting(waiting) == 1
    return world, waiting, model


def key_of_first_partition(world):
    """A key that leads to the first partition, where the model lived as long as there were two partitions."""
    keys = (f"key-{number}" for number in range(1000))
    return next(key for key in keys if world.log.home(key) == world.log.partitions[0])


def models_waiting(worker):
    """How many models wait because they moved, by the metric."""
    return worker.services.metrics.registry.get_sample_value("omdml_worker_models_waiting", {"cause": "moved"})


def said_by_the_doctor(world):
    """What the doctor says of the checkpoints."""
    specs = world.worker().services.specs
    report = look_at_checkpoints(specs, world.store, world.store.models(), lambda: extents(world))
    finding = checkpoints(report, len(world.store.models()))
    return finding if isinstance(finding, str) else " ".join(str(remark) for remark in finding)


def replayed(world, model):
    """The model as ``omdml replay`` learns it."""
    spec, placement = world.worker().services.specs.of(model), world.store.placement(world.log.topic_id)
    replay = ReplayedModel(model, spec.fresh(), spec, placement, world.store.secret())
    for partition in world.log.partitions:
        replay.learn(world.log.read(partition, 0, 1000))
    replay.finish()
    return replay


def test_after_an_interrupted_rewind_worker_and_doctor_say_to_run_it_again(tmp_path):
    world, worker, model = learned_on_two(tmp_path)
    worker.stop()
    worker.run()
    rehomed(world)
    world.send(*events(3, 1, model=model), key=model)
    worker = world.worker()
    run_until_idle(worker)
    worker.stop()
    worker.run()
    # Given the first step of a rewind, and no other
    placement = world.store.placement(world.log.topic_id)
    world.store.place(world.log.topic_id, placement, placement.rewound({}, placement.partitioner))
    world.send(*events(1, 2, model=model), key=key_of_first_partition(world))
    with structlog.testing.capture_logs() as logs:
        run_until_idle(world.worker())
    (reason,) = (line["reason"] for line in logs if line["event"] == "model_waits")
    for text in (reason, said_by_the_doctor(world)):
        assert "if omdml topics rewind was interrupted, run it again" in text.lower()


@pytest.mark.parametrize("way", WAYS)
def test_the_doctor_says_that_it_waits_and_how_to_learn_it_again(tmp_path, way):
    world, _, model = misplaced(tmp_path, way)
    report = said_by_the_doctor(world)
    assert f"model {model} waits: it lives on partition 2 now" in report
    assert f"omdml replay --model {model} --publish --replace" in report


@pytest.mark.parametrize("way", WAYS)
def test_a_replay_that_is_published_in_its_place_ends_the_wait(tmp_path, way):
    world, waiting, model = misplaced(tmp_path, way)
    # Events that became dead letters, because they came by the old home too late, keep nobody from publishing.
    replay = replayed(world, model)
    published_replay.check_whole(replay, world.store)
    published_replay.publish(replay, world.store, waiting.services.letters, "test", replace=True)
    world.send(*events(4, 5, model=model), key=model)
    run_until_idle(waiting, turns=100)
    assert models_waiting(waiting) == 0
    assert (
        world.store.peek(model).version
        == waiting.partitions[world.log.home(model)].models.loaded[model].learner.version
    )
    assert waiting.partitions[world.log.home(model)].models.loaded[model].learner.version == 8 + 1 + 4
    assert {letter.reason for letter in letters(world)} == ({"wrong_partition"} if way == WAYS[1] else set())


@pytest.mark.parametrize("way", WAYS)
def test_a_reset_begins_it_again_with_the_events_that_wait(tmp_path, way):
    world, waiting, model = misplaced(tmp_path, way)
    models.reset(world.store, waiting.services.specs.of(model), model, "test")
    run_until_idle(waiting, turns=100)
    assert models_waiting(waiting) == 0
    assert waiting.partitions[world.log.home(model)].models.loaded[model].learner.version == 1


def test_strays_that_no_worker_has_read_yet_keep_a_replay_from_being_published(tmp_path):
    world, worker, model = learned_on_two(tmp_path)
    kill(world, worker)
    # Its home is the first partition, as nobody has called rehome.
    key = next(f"key-{number}" for number in range(1000) if world.log.home(f"key-{number}").number == 1)
    world.send(*events(2, 4, model=model), key=key)
    replay = replayed(world, model)
    with pytest.raises(StoreError, match="are on other partitions"):
        published_replay.check_whole(replay, world.store)
