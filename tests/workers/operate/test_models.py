"""Models that operators reset, copy or delete, whatever state the store is in."""

from __future__ import annotations

import shutil

import pytest
from click.testing import CliRunner

from omdml.errors import ConfigurationError, StoreError
from omdml.streams.placement import Placement, PlacementChanged
from omdml.workers.cli import main
from omdml.workers.configuration.specs import Specs
from omdml.workers.operate import models
from tests.support.files.replays import LoggedShop
from tests.support.learning.restored_stores import kept_checkpoints, put_checkpoints
from tests.support.worlds import World, events, run_until_idle


@pytest.fixture
def world(tmp_path):
    """A model that learned 30 events, and whose worker is gone."""
    world = World(tmp_path)
    send(world, 30)
    return world


def send(world, count, seed=0):
    """Let a worker learn so many events, and end."""
    world.send(*events(count, seed))
    worker = world.worker()
    run_until_idle(worker, turns=10)
    worker.stop()
    worker.run()


def reset(world):
    spec = models.configured_spec(Specs(world.configuration, {"items": world.catalogue}), "shop")
    return models.reset(world.store, spec, "shop", "test")


def live(world):
    return world.store.current("shop").version


def test_a_model_whose_checkpoints_are_all_damaged_can_be_reset(world):
    damaged = [(saved, b"?") for saved, _ in kept_checkpoints(world.store, "shop")]
    put_checkpoints(world.store, "shop", damaged)
    assert reset(world) is None
    assert live(world) == 0
    send(world, 10, seed=3)
    assert (world.store.peek("shop").version, live(world)) == (10, 10)


def test_remains_of_an_interrupted_deletion_go_if_the_command_is_run_again(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    shop = LoggedShop(tmp_path)
    shop.tell(*events(30))
    shop.worked()
    command, folder = ["models", "delete", "shop", "--yes", "-c", str(shop.file)], tmp_path / "state" / "models"
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", interrupted)
        CliRunner().invoke(main, command)
    assert list(folder.rglob("*.safetensors"))
    assert "has no model of this name" in " ".join(CliRunner().invoke(main, command).output.split())
    assert list(folder.iterdir()) == []


def test_a_pinned_model_that_is_reset_goes_live_again_once_it_is_unpinned(world):
    # Given a pinned version, and a worker that claims the model after a reset
    world.store.move("shop", 30, pin=True)
    assert reset(world) == 30
    assert live(world) == 30
    send(world, 5, seed=3)
    # If it is unpinned, I expect what was learned since to be live, and what is learned then
    assert world.store.move("shop", None, pin=False).version == 5
    send(world, 5, seed=4)
    assert live(world) == 10


def test_a_reset_that_dies_before_its_last_step_leaves_what_was_learned(world, monkeypatch):
    def dies(*written):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "save", dies)
        with pytest.raises(KeyboardInterrupt):
            reset(world)
    assert (live(world), world.store.peek("shop").version) == (0, 30)
    send(world, 5, seed=3)
    assert live(world) == 35
    # If it is repeated, I expect it to succeed.
    assert reset(world) == 35
    assert (live(world), world.store.peek("shop").version) == (0, 0)


@pytest.mark.parametrize("step", ["save", "publish", "note"])
def test_a_model_that_is_deleted_while_it_is_copied_is_reported_as_deleted(tmp_path, monkeypatch, step):
    world = World(tmp_path, models={"shop": {"learner": "lomdml", "rank": 3}, "m-*": {"learner": "lomdml", "rank": 3}})
    send(world, 30)
    method = getattr(world.store, step)

    def deleted_before(*arguments, **options):
        world.store.delete("m-3")
        return method(*arguments, **options)

    monkeypatch.setattr(world.store, step, deleted_before)
    spec = models.configured_spec(Specs(world.configuration, {"items": world.catalogue}), "m-3")
    with pytest.raises(StoreError, match=r"'m-3' was deleted while it was copied, .* copy it again") as caught:
        models.copy(world.store, "shop", "m-3", spec, world.log.topic_id, Placement.first("crc32", 1), "test")
    assert "emptied" not in str(caught.value)
    assert world.store.models() == ["shop"]


def test_a_copy_begun_while_models_move_is_made_again_at_its_new_home(tmp_path, monkeypatch):
    world = World(tmp_path, models={"shop": {"learner": "lomdml", "rank": 3}, "m-*": {"learner": "lomdml", "rank": 3}})
    send(world, 30)
    topic_id = world.log.topic_id
    before, after = world.store.placement(topic_id), world.store.placement(topic_id).grown(2, {0: 30})
    name = next(name for name in map("m-{}".format, range(9)) if after.home(name) == 1)
    claim = world.store.claim

    def moved_after(model):
        claimed = claim(model)
        world.store.place(topic_id, before, after)
        return claimed

    spec = models.configured_spec(Specs(world.configuration, {"items": world.catalogue}), name)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(world.store, "claim", moved_after)
        with pytest.raises(PlacementChanged, match="start it again"):
            models.copy(world.store, "shop", name, spec, topic_id, before, "test")
    assert (world.store.peek(name), world.store.current(name)) == (None, None)
    models.copy(world.store, "shop", name, spec, topic_id, after, "test")
    assert world.store.peek(name).home == (topic_id, 1)


def test_a_command_that_would_begin_a_model_of_too_long_a_name_says_so(tmp_path):
    world = World(tmp_path)
    specs = Specs(world.configuration, {"items": world.catalogue})
    with pytest.raises(ConfigurationError, match="the name takes 300 characters once percent-encoded"):
        models.configured_spec(specs, "user-" + "x" * 295)
