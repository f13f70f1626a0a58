"""Settings that changed since the model began: adopted between two events, or refused with what to do."""

from __future__ import annotations

import pytest

from omdml import LOMDML
from omdml.errors import ConfigurationError
from omdml.streams.catalogues.building.build import add_items, build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.protocols.log import CommitResult
from omdml.streams.stores.folder.store import DirectoryStore
from tests.support.learning.reconfigured import EVENTS, changed, learned
from tests.support.worlds import DIMS, ITEMS, World, events, items, run_until_idle, triplets


def reasons_for(world, what):
    return [line["reason"] for line in world.store.history("shop") if line["what"] == what]


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_other_hyperparameters_are_adopted_between_two_events(tmp_path, kind):
    store = DirectoryStore(tmp_path / "state") if kind == "folder" else None
    world = learned(tmp_path, store=store)
    before = world.store.claim("shop").checkpoint
    again = changed(world, tmp_path, eta=0.5, beta=0.9)
    again.send(*EVENTS[45:])
    run_until_idle(again.worker())

    # I expect the state of a learner whose settings change after 45 events
    model = LOMDML(dims=dict(world.catalogue.dims), rank=3)
    model.learn_many(triplets(100)[:45], world.catalogue.features)
    model = model.learning_on(rank=3, eta=0.5, beta=0.9)
    model.learn_many(triplets(100)[45:], world.catalogue.features)
    after = world.store.claim("shop").checkpoint
    assert after.state == model.to_bytes()
    assert after.configuration != before.configuration
    (partition,) = world.log.partitions
    assert reasons_for(world, "adopted") == [f"eta 0.01 -> 0.5, beta 0.999 -> 0.9, from offset 45 of {partition} on"]


def test_a_crash_after_the_adoption_adopts_nothing_again(tmp_path):
    world = learned(tmp_path)
    again = changed(world, tmp_path, eta=0.5)
    again.send(*EVENTS[45:50])
    worker = again.worker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker.services.source, "commit", lambda offsets: CommitResult.RECORDED)
        run_until_idle(worker)
    world.log.expel(worker.services.source)
    again.send(*EVENTS[50:60])
    run_until_idle(again.worker())
    assert len(reasons_for(world, "adopted")) == 1
    assert world.store.claim("shop").checkpoint.version == 60


def test_a_default_that_is_written_out_changes_nothing(tmp_path):
    world = learned(tmp_path)
    again = changed(world, tmp_path, eta=0.01)
    again.send(*EVENTS[45:60])
    run_until_idle(again.worker())
    assert reasons_for(world, "adopted") == []


@pytest.mark.parametrize(
    ("models", "what"),
    [
        ({"shop": {"learner": "lomdml", "rank": 4}}, "rank 3 -> 4"),
        ({"shop": {"learner": "lomdml", "rank": 3, "dtype": "float64"}}, "dtype 'float32' -> 'float64'"),
        ({"shop": {"learner": "oasis"}}, "learner 'lomdml' -> 'oasis'"),
        ({"shop": {"learner": "lomdml", "rank": 3, "average": 50}}, "average 0 -> 50"),
    ],
)
def test_another_shape_is_refused_with_what_differs_and_the_command_to_run(tmp_path, models, what):
    world = learned(tmp_path)
    again = changed(world, tmp_path, models=models)
    again.send(*events(5))
    with pytest.raises(ConfigurationError) as refused:
        run_until_idle(again.worker())
    assert what in str(refused.value)
    assert "omdml replay --model shop --publish --replace" in str(refused.value)
    assert reasons_for(world, "adopted") == []
    assert world.store.claim("shop").checkpoint.version == 45


def test_other_dimensions_are_refused(tmp_path):
    world = learned(tmp_path)
    again = changed(world, tmp_path)
    again.catalogue = build_catalogue(
        tmp_path / "narrow", {"shape": items()[0]["shape"][:, :7]}, ids=[f"i{row}" for row in range(ITEMS)]
    )
    again.send(*events(5))
    with pytest.raises(ConfigurationError, match="dims"):
        run_until_idle(again.worker())


def test_a_new_generation_of_the_catalogue_is_adopted_and_goes_live(tmp_path):
    world = learned(tmp_path)
    again = changed(world, tmp_path / "new")
    again.catalogue = build_catalogue(tmp_path / "second", items(1)[0], ids=[f"i{row}" for row in range(ITEMS)])
    assert dict(again.catalogue.dims) == DIMS
    again.send(*EVENTS[45:60])
    run_until_idle(again.worker())
    checkpoint = world.store.claim("shop").checkpoint
    assert (checkpoint.version, checkpoint.generation) == (60, again.catalogue.generation)
    assert world.store.load("shop")[1].generation == again.catalogue.generation
    (partition,) = world.log.partitions
    before, after = world.catalogue.generation, again.catalogue.generation
    assert reasons_for(world, "generation") == [f"{before} -> {after}, from offset 45 of {partition} on"]


def test_items_that_were_added_since_change_no_start(tmp_path):
    feedback = EVENTS[:30]
    world = World(tmp_path)
    world.send(*feedback)
    run_until_idle(world.worker())
    more = {name: table[:50] + 3.0 for name, table in items(1)[0].items()}
    add_items(tmp_path / "items", more, ids=[f"new{row}" for row in range(50)])
    again = World(tmp_path / "other")
    again.catalogue = MappedCatalogue(tmp_path / "items")
    assert (len(again.catalogue.ids), again.catalogue.first) == (ITEMS + 50, ITEMS)
    again.send(*feedback)
    run_until_idle(again.worker())
    assert again.store.peek("shop").state == world.store.peek("shop").state
