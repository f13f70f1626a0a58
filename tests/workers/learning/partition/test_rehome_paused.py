"""A rehome while a worker is paused and does not know that it was expelled: each event keeps one fate."""

from __future__ import annotations

import msgspec
import pytest

from omdml.errors import ConfigurationError, CorruptError, StoreError
from omdml.streams.placement import Placement, PlacementChanged
from omdml.workers.events.decoding import by_partition
from omdml.workers.learning.partition.models import OwnedModels
from omdml.workers.model.relocation import move_back_to_cut
from omdml.workers.operate import topics
from tests.support.worlds import (
    World,
    events,
    extents,
    kill,
    learned_on_two,
    letters,
    living_on,
    mark,
    placed,
    rehomed,
    run_until_idle,
    stop,
)


def rehomed_under_a_worker(folder):
    """The world of ``learned_on_two`` after a rehome that its paused worker missed; three more events came too late."""
    world, worker, model = learned_on_two(folder)
    assert rehomed(world) == (2, 4)
    # Their sender has not heard of the new partitions, either.
    world.send(*events(3, 1, model=model), key=living_on(world, world.log.partitions[0]))
    return world, worker, model


def fates(world, model):
    """How much a model learned, and its letters, once a new worker has read everything."""
    run_until_idle(world.worker())
    return world.store.peek(model).version, [(letter.reason, letter.offset) for letter in letters(world)]


# The five first events are learned, and the three late ones become letters.
ONCE = (5, [("wrong_partition", 5), ("wrong_partition", 6), ("wrong_partition", 7)])


@pytest.mark.parametrize("ended", ["stopped", "killed amid a save", "its partition taken away"])
def test_a_worker_that_was_paused_during_a_rehome_saves_nothing_it_learns_later(tmp_path, monkeypatch, ended):
    world, worker, model = rehomed_under_a_worker(tmp_path)
    worker._owned.polled = by_partition(worker._fetch())
    worker._take()
    kill(world, worker)
    with monkeypatch.context() as just_before:
        # Its publications assume no placement, as if they had arrived just before the rehome. It saves after that.
        just_before.setattr(OwnedModels, "assumed", None)
        if ended == "stopped":
            worker.stop()
            worker.run()
        elif ended == "its partition taken away":
            worker._owned.revoked(list(worker.partitions))
        else:
            with pytest.raises(PlacementChanged):
                worker.schedule.save(worker.services.clock())
    assert (mark(world), world.store.peek(model).version) == (5, 5)
    assert fates(world, model) == ONCE


def test_a_worker_that_was_paused_during_a_rehome_shows_nothing_it_learns_later(tmp_path):
    world, worker, model = rehomed_under_a_worker(tmp_path)
    with pytest.raises(PlacementChanged):
        run_until_idle(worker)
    assert world.store.current(model).version == 5


def test_a_partition_taken_over_after_a_rehome_does_not_hide_it_from_the_others(tmp_path):
    world, worker, model = rehomed_under_a_worker(tmp_path)
    with pytest.raises(PlacementChanged):
        worker._owned.assigned({world.log.partitions[2]: None})
    kill(world, worker)
    assert fates(world, model) == ONCE


def assert_notices_a_rehome(world, worker, model):
    """Check that a worker ends after a rehome once events come, and that its successor learns each event once."""
    assert rehomed(world) == (2, 4)
    world.send(*events(3, 1, model=model), key=model)
    with pytest.raises(PlacementChanged):
        run_until_idle(worker)
    kill(world, worker)
    assert fates(world, model) == (8, [])


def test_a_worker_with_nothing_to_save_notices_a_rehome(tmp_path):
    world, worker, model = learned_on_two(tmp_path)
    assert_notices_a_rehome(world, worker, model)


def test_a_worker_that_joined_just_before_a_rehome_notices_it(tmp_path):
    world, worker, model = learned_on_two(tmp_path)
    kill(world, worker)
    worker = world.worker()
    worker._join()
    assert_notices_a_rehome(world, worker, model)


def test_a_rehome_goes_back_if_a_worker_saved_while_it_looked(tmp_path):
    world, worker, model = learned_on_two(tmp_path)
    extents_before, owned = extents(world), worker.partitions[world.log.partitions[0]]
    world.send(*events(3, 1, model=model), key=living_on(world, world.log.partitions[0]))
    place = world.store.place

    def after_a_save(topic_id, before, after):
        world.store.place = place
        worker._owned.polled = by_partition(worker._fetch())
        worker._take()
        owned.models.keep([owned.models.loaded[model]])
        return place(topic_id, before, after)

    world.store.place = after_a_save
    with pytest.raises(
        StoreError, match=rf"model '{model}' has learned partition 0 up to 8, beyond 5: .* run this command again"
    ):
        topics.rehome(extents_before, world.store)
    assert world.store.placement(world.log.topic_id).count == 2
    kill(world, worker)
    stop(world.worker())
    assert rehomed(world) == (2, 4)
    assert fates(world, model) == (8, [])


def test_a_model_saved_on_its_old_home_after_moving_waits_and_says_why(tmp_path):
    world, worker, model = rehomed_under_a_worker(tmp_path)
    kill(world, worker)
    # In a folder, a process can do this if it slept between its look at the placement and its write.
    epoch, checkpoint, _ = world.store.claim(model)
    world.store.save(msgspec.structs.replace(checkpoint, next=8), epoch)
    world.send(*events(1, 2, model=model), key=model)
    worker = world.worker()
    run_until_idle(worker)
    assert worker.services.metrics.registry.get_sample_value("omdml_worker_models_waiting", {"cause": "moved"}) == 1
    with pytest.raises(CorruptError, match=r"holds what partition 0 has up to offset 8: .* omdml replay --model"):
        worker.partitions[world.log.home(model)].claiming.claim(model)


def test_a_worker_unaware_of_a_rehome_publishes_no_moved_model(tmp_path):
    world = World(tmp_path, partitions=2, models={"user-15": {"learner": "lomdml", "rank": 2}})
    worker = world.worker()
    worker._join()
    worker.services.source.poll(1, 0.0)
    world.log.add_partitions(2)
    placement = world.store.placement(world.log.topic_id)
    assert world.store.place(world.log.topic_id, placement, placement.grown(4, {}))
    with pytest.raises(PlacementChanged, match=r"omdml topics rehome, or a cut of the log"):
        worker._owned.introduce()
    assert world.store.current("user-15") is None


def test_a_worker_unaware_of_a_rehome_notes_no_refusals(tmp_path):
    world, worker, model = learned_on_two(tmp_path)
    kill(world, worker)
    world.configuration = World(tmp_path / "other", models={"shop": {"learner": "lomdml", "rank": 3}}).configuration
    worker, before = world.worker(), world.store.peek(model)
    worker._join()
    worker.services.source.poll(1, 0.0)
    assert rehomed(world) == (2, 4)
    world.send(*events(3, 1, model=model), key=living_on(world, world.log.partitions[0]))
    worker._owned.polled = by_partition(worker._fetch())
    with pytest.raises(PlacementChanged):
        worker._take()
    assert world.store.peek(model) == before


def test_a_cut_after_a_rehome_ends_the_worker_and_moves_nothing_back(tmp_path):
    world, worker, model = rehomed_under_a_worker(tmp_path)
    kill(world, worker)
    home, before = world.log.partitions[0], Placement.first("crc32", 2)
    with pytest.raises(PlacementChanged):
        move_back_to_cut(world.store, before, home, 2)
    assert world.store.peek(model).next == 5


def test_a_rehome_under_events_that_keep_coming_says_to_stop_the_senders(tmp_path):
    world = World(tmp_path)
    placed(world)
    world.log.add_partitions(1)
    world.send(*events(3))
    with pytest.raises(ConfigurationError, match=r"3 events are not learned and saved yet\. Stop the senders"):
        rehomed(world)


def test_events_that_routers_write_while_a_rehome_decides_have_one_fate_each(tmp_path):
    world, worker, model = learned_on_two(tmp_path)
    worker.stop()
    worker.run()
    old, place = living_on(world, world.log.partitions[0]), world.store.place

    def place_late(*arguments):
        # These come after the look at the ends of the partitions: by the old number of partitions, and by the new one.
        world.send(*events(3, 1, model=model), key=old)
        world.send(*events(2, 2, model=model), key=model)
        return place(*arguments)

    world.store.place = place_late
    assert rehomed(world) == (2, 4)
    assert fates(world, model) == (7, [("wrong_partition", offset) for offset in (5, 6, 7)])
