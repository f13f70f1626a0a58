"""What a worker does if its store is away, was emptied, or is an older copy: nothing is lost, or it says what."""

from __future__ import annotations

import shutil

import pytest

from omdml import LOMDML
from omdml.errors import StoreError, StoreLost
from omdml.streams.stores.folder.store import DirectoryStore
from tests.support.worlds import World, events, run_until_idle, triplets


def test_a_lost_store_is_an_error_and_nothing_is_silently_learned_again(tmp_path):
    world = World(tmp_path)
    world.send(*events(50))
    worker = world.worker()
    run_until_idle(worker)
    worker.services.source.close()
    world.store = type(world.store)()
    with pytest.raises(StoreLost, match="emptied, or is another one"):
        run_until_idle(world.worker())
    assert (world.store.models(), world.store.marks(world.log.partitions)) == ([], {})


def test_nothing_is_lost_while_the_store_is_away(tmp_path, monkeypatch):
    world = World(tmp_path)
    world.send(*events(40))
    worker = world.worker()
    worker.step()

    def away(*_, **__):
        raise StoreError("store memory: away")

    with monkeypatch.context() as patch:
        for method in ("claim", "save", "publish", "move_mark", "current"):
            patch.setattr(world.store, method, away)
        world.send(*events(20, seed=1))
        world.send(*events(20, seed=2, model="user-9"), key="user-9")
        run_until_idle(worker)
    run_until_idle(worker)
    twin = LOMDML(dims=dict(world.catalogue.dims), rank=3)
    twin.learn_many(triplets(40), world.catalogue.features)
    twin.learn_many(triplets(20, seed=1), world.catalogue.features)
    assert world.store.claim("shop").checkpoint.state == twin.to_bytes()
    assert world.store.claim("user-9").checkpoint.version == 20


def test_a_store_older_than_the_commit_is_replayed_from_its_mark(tmp_path):
    world = World(tmp_path)
    world.store = DirectoryStore(tmp_path / "state")
    worker = world.worker()
    world.send(*events(30))
    run_until_idle(worker)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    world.send(*events(10, model="user-1"))
    run_until_idle(worker)
    world.log.expel(worker.services.source)
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "copy", tmp_path / "state")
    run_until_idle(world.worker())
    assert world.store.claim("user-1").checkpoint.version == 10


def test_a_store_that_was_emptied_under_a_living_worker_is_not_marked_again(tmp_path):
    world = World(tmp_path)
    world.send(*events(50))
    worker = world.worker()
    run_until_idle(worker)
    world.store.delete("shop")
    world.store.database.groups.pop("marks", None)
    world.send(b"{nonsense")
    with pytest.raises(StoreLost):
        run_until_idle(worker)
    assert world.store.marks(world.log.partitions) == {}


@pytest.mark.parametrize("both", [False, True], ids=["the younger model alone", "both"])
def test_an_older_copy_without_a_younger_model_is_noticed_under_a_living_worker(tmp_path, both):
    # Given a copy of a store, and a model that began after it
    world = World(tmp_path, models={"shop": {"learner": "lomdml", "rank": 3}, "m-*": {"learner": "lomdml", "rank": 3}})
    world.store = DirectoryStore(tmp_path / "state")
    world.send(*events(40))
    worker = world.worker()
    run_until_idle(worker)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    world.send(*events(30, seed=1, model="m-new"), *events(20, seed=2))
    run_until_idle(worker)

    # If that copy takes the store's place while the worker lives, and more events come
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "copy", tmp_path / "state")
    world.send(*events(10, seed=3, model="m-new"))
    if both:
        world.send(*events(10, seed=4))
    run_until_idle(worker)

    # I expect the worker to go on, and every event to be learned once.
    models = {name: world.store.peek(name).version for name in world.store.models()}
    assert models == {"m-new": 40, "shop": 70 if both else 60}


def test_a_store_that_was_emptied_stops_a_worker_that_is_about_to_save(tmp_path):
    world = World(tmp_path)
    world.store = DirectoryStore(tmp_path / "state")
    world.send(*events(50))
    worker = world.worker()
    run_until_idle(worker)
    shutil.rmtree(tmp_path / "state")
    DirectoryStore(tmp_path / "state").make()
    world.send(*events(5, seed=1))
    with pytest.raises(StoreLost, match="emptied, or is another one"):
        run_until_idle(worker)
