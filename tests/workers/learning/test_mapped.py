"""Models on mapped coordinates: every learner learns on them, and none goes on from what it learned on features."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from omdml import LEARNERS, LOMDML
from omdml.errors import CatalogueError, ConfigurationError, FeedbackError
from omdml.feedback import Triplet, encode
from omdml.streams.catalogues.building.build import KeptMap, add_items, build_catalogue
from omdml.workers.cli import main
from omdml.workers.configuration.specs import Specs
from omdml.workers.node.catalogues import CurrentModels
from omdml.workers.node.node import RetrievalNode
from omdml.workers.versions.serving import catalogue_kinds
from omdml.workers.versions.targets import misfit
from tests.support.waiting import wait_until_ready
from tests.support.worlds import ITEMS, World, events, items, letters, run_until_idle
from tests.workers.learning.every_learner import everything, feedback_for, learned_directly, models

BOTH = {"shop": {"learner": "lomdml", "rank": 3, "coordinates": "mapped"}, "plain": {"learner": "lomdml", "rank": 3}}


@pytest.fixture
def shop(tmp_path):
    return World(tmp_path, models=BOTH, mapped=True)


def mapped_items(world):
    """The items in the coordinates of the model ``shop``."""
    return world.catalogue.in_coordinates("mapped")


def inline(item, row, **changes):
    """An event that brings the vectors of its query along: those of an item of other data."""
    vectors = {name: x[row].tolist() for name, x in items(1)[0].items()}
    return Triplet(**{"model": "shop", "query": item, "relevant": "i1", "irrelevant": "i2", **changes},
                   features={item: vectors})  # fmt: skip


def test_models_of_every_learner_learn_on_mapped_coordinates(tmp_path):
    mapped = {name: {**model, "coordinates": "mapped"} for name, model in models().items()}
    shelf = World(tmp_path, models=mapped, mapped=True)
    for event in everything():
        shelf.send(encode(event), key=event.model)
    run_until_idle(shelf.worker())

    assert letters(shelf) == []
    for name in LEARNERS:
        twin = learned_directly(name, mapped_items(shelf), **LEARNERS[name].on_mapped)
        assert shelf.store.claim(name).checkpoint.state == twin.to_bytes(), name
        snapshot = shelf.store.load(name)[1]
        assert snapshot.version == twin.version == len(feedback_for(name))
        assert snapshot.metric.dims == mapped_items(shelf).dims


def test_items_that_are_added_or_brought_along_are_learned_by_their_coordinates(shop):
    worker = shop.worker()
    run_until_idle(worker, 5)
    new = {name: x[:1] for name, x in items(1)[0].items()}
    add_items(shop.catalogue.path, new, ids=["added"])
    triplet = Triplet(model="shop", query="added", relevant="i1", irrelevant="i2")
    shop.send(encode(triplet), encode(inline("brought", 5)), encode(inline("i7", 6)))
    run_until_idle(worker)

    assert letters(shop) == []
    mapped, twin = mapped_items(shop), LOMDML(dims=dict(mapped_items(shop).dims), rank=3)
    ((name, matrix),) = mapped.features.items()
    twin.start({name: matrix[:ITEMS]})
    twin.learn_many([(ITEMS, 1, 2)], mapped.features)
    for row in (5, 6):
        table = mapped.scale({name: x[row : row + 1] for name, x in items(1)[0].items()})
        twin.learn_many([(0, 1, 2)], {name: np.concatenate([table[name], matrix[1:3]])})
    assert shop.store.claim("shop").checkpoint.state == twin.to_bytes()


def test_a_node_searches_mapped_items_by_id_and_by_raw_vectors(shop):
    shop.send(*events(40), *events(40, model="plain"))
    run_until_idle(shop.worker())
    current = CurrentModels(Specs(shop.configuration, {"items": shop.catalogue}))
    with RetrievalNode(shop.store, current.catalogue, ["shop", "plain"]) as node:
        wait_until_ready(node)
        for name, table in (("shop", mapped_items(shop).features), ("plain", shop.catalogue.features)):
            embedding = shop.store.load(name)[1].metric.embed(table).astype(float)
            distances = ((embedding - embedding[7]) ** 2).sum(axis=1)
            nearest = [f"i{row}" for row in np.argsort(distances, kind="stable")[:6]]
            assert [hit.id for hit in node.search(name, ids=["i7"], k=5).items] == nearest[1:]
            raw = {modality: x[7].tolist() for modality, x in items()[0].items()}
            by_vector = node.search(name, features=raw, k=6).items
            assert [hit.id for hit in by_vector] == nearest
            assert by_vector[0].distance == pytest.approx(0, abs=1e-6)


def test_a_node_checks_feedback_against_the_modalities_that_events_bring(shop):
    current = CurrentModels(Specs(shop.configuration, {"items": shop.catalogue}))
    current.check(inline("brought", 3))
    with pytest.raises(FeedbackError, match="modality 'noise' is missing: the catalogue has noise, shape"):
        current.check(msgspec.structs.replace(inline("brought", 3), features={"brought": {"mapped": [0.0] * 119}}))


def test_a_model_does_not_go_on_in_other_coordinates_before_it_is_reset(shop, tmp_path):
    shop.send(*events(30))
    run_until_idle(shop.worker())
    on_features = {"shop": {"learner": "lomdml", "rank": 3}}
    other_world = World(tmp_path, models=on_features, mapped=True)
    checkpoint = shop.store.claim("shop").checkpoint
    with pytest.raises(ConfigurationError, match=r"another shape \(dims .*mapped-.* replay --model shop --publish"):
        Specs(other_world.configuration, {"items": other_world.catalogue}).of("shop").resumed(checkpoint)
    loaded = shop.store.load("shop")[1]
    assert misfit(loaded, catalogue_kinds(shop.configuration)("shop")) == ""
    assert f"learned on {dict(mapped_items(shop).dims)}" in misfit(
        loaded, catalogue_kinds(other_world.configuration)("shop")
    )


def test_a_model_on_a_map_that_is_not_there_is_named(tmp_path):
    world = World(tmp_path, models=BOTH)
    with pytest.raises(CatalogueError, match=r"models\.shop: catalogue .* has no map.*--map --replace"):
        Specs(world.configuration, {"items": world.catalogue})


def test_models_of_one_catalogue_see_one_object(shop):
    specs = Specs(shop.configuration, {"items": shop.catalogue})
    assert specs.of("plain").catalogue is shop.catalogue
    assert specs.of("shop").catalogue is specs.of("shop").catalogue
    assert list(specs.of("shop").catalogue.dims.values()) == [119]


def test_a_model_goes_on_over_new_items_of_its_map_and_not_under_another_map(shop, tmp_path):
    shop.send(*events(30))
    run_until_idle(shop.worker())
    checkpoint, first = shop.store.claim("shop").checkpoint, shop.catalogue
    ids = [f"i{row}" for row in range(ITEMS)]
    catalogue = build_catalogue(
        tmp_path / "kept", items(1)[0], ids=ids, mapped=KeptMap(first.map, first.manifest.modalities)
    )
    other = build_catalogue(tmp_path / "other", items(1)[0], ids=ids, mapped=True)
    assert catalogue.generation != first.generation

    assert Specs(shop.configuration, {"items": catalogue}).of("shop").resumed(checkpoint).version == 30
    with pytest.raises(ConfigurationError, match=r"another shape \(dims .* replay --model shop --publish"):
        Specs(shop.configuration, {"items": other}).of("shop").resumed(checkpoint)
    assert misfit(shop.store.load("shop")[1], other.manifest.in_coordinates("mapped"))


def test_the_doctor_names_a_model_whose_catalogue_has_no_map(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build_catalogue("items", items()[0])
    Path("omdml.toml").write_text(
        '[catalogues.items]\npath = "items"\n[models.shop]\nlearner = "lomdml"\ncoordinates = "mapped"\n'
    )
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 1
    assert "models.shop: catalogue items has no map" in " ".join(done.output.split())
