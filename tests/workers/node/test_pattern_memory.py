"""A node's option ``memory_mb`` bounds the galleries of patterns' models, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.workers.configuration.loading import load
from omdml.workers.wiring.node import serve_node
from tests.support.shops import Shop
from tests.support.worlds import DIMS

MODELS = ["shop", "user-0", "user-1", "user-2"]
# Two galleries of so many items take more than the least that the option may be.
ITEMS = 15_000


def many_items(folder):
    draw = np.random.default_rng(0)
    build_catalogue(folder, {name: draw.normal(0, 1, (ITEMS, length)) for name, length in DIMS.items()})
    return MappedCatalogue(folder)


@pytest.fixture
def models_held(tmp_path, monkeypatch):
    """Asks a node with these options about all models; returns those that it still holds, and a gallery's megabytes."""
    shop = Shop(tmp_path, items=many_items)
    for name in MODELS:
        shop.store.publish(shop.snapshot(model=name), shop.store.claim(name).epoch)

    def held(**options):
        def ask(node, *_):
            with node:
                for name in MODELS:
                    node.search(name, ids=[shop.catalogue.ids[0]])
                views = {name: node.loaded(name) for name in MODELS}
            loaded.update({name: view.nbytes / 1e6 for name, view in views.items() if view})

        loaded: dict[str, float] = {}
        monkeypatch.setattr("omdml.workers.node.http.server.serve", ask)
        monkeypatch.setattr("omdml.workers.wiring.node.open_stores", lambda configuration: shop.store)
        models = {name: {"learner": "lomdml", "rank": 3} for name in ("shop", "user-*")}
        settings = {"catalogues": {"items": {"path": str(tmp_path / "items")}}, "models": models, "node": options}
        settings["log"] = {"path": str(tmp_path / "feedback")}
        serve_node(load(None, {}, settings))
        return list(loaded), loaded["shop"]

    return held


def test_models_beyond_the_memory_are_dropped_the_oldest_first(models_held):
    loaded, size = models_held()
    assert loaded == MODELS
    assert models_held(memory_mb=3.5 * size)[0] == MODELS
    assert models_held(memory_mb=2.5 * size)[0] == ["shop", "user-1", "user-2"]
    # The model that is named counts for nothing, and stays.
    assert models_held(memory_mb=1.0)[0] == ["shop", "user-2"]
