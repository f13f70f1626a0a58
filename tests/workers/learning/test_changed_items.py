"""Workers take in items that were put, changed and deleted."""

from __future__ import annotations

import numpy as np
import structlog

from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.changes.change import Change
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.workers.events import lookup
from tests.support import worlds
from tests.support.catalogues.changing import change, plain_catalogue, raw_item


def test_a_worker_whose_catalogue_was_replaced_goes_on_and_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(lookup, "FOLLOW_S", 0.0)
    world = worlds.World(tmp_path)
    world.catalogue = plain_catalogue(tmp_path / "plain")
    worker = world.worker()
    build_catalogue(tmp_path / "plain", worlds.items(seed=1)[0], replace=True)
    world.send(*worlds.events(20))
    with structlog.testing.capture_logs() as logs:
        worlds.run_until_idle(worker)
    assert world.store.peek("shop").version == 20
    (line,) = [entry for entry in logs if entry["event"] == "catalogue_not_refreshed"]
    assert line["action"] == "goes on with the items that it has"
    assert "if the catalogue was built again, restart workers, then nodes" in line["hint"]


def test_a_worker_learns_with_what_changed_and_refuses_what_was_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(lookup, "FOLLOW_S", 0.0)
    world = worlds.World(tmp_path)
    world.catalogue = plain_catalogue(tmp_path / "plain")
    worker = world.worker()
    world.send(*worlds.events(20))
    worlds.run_until_idle(worker)
    assert world.store.peek("shop").version == 20

    other = MappedCatalogue(tmp_path / "plain")
    near, far = raw_item(np.random.default_rng(1)), raw_item(np.random.default_rng(2))
    change(other, Change(id="i1", features=near), Change(id="new", features=far), Change(id="i3", delete=True))
    world.send(
        b'{"type":"triplet","model":"shop","query":"i0","relevant":"i1","irrelevant":"new"}',
        b'{"type":"triplet","model":"shop","query":"i0","relevant":"i1","irrelevant":"i3"}',
    )
    worlds.run_until_idle(worker)
    assert world.store.peek("shop").version == 21
    (letter,) = worlds.letters(world)
    assert (letter.reason, letter.offset) == ("unknown_item", 21)
    assert world.catalogue.rows(["i1", "new", "i3"]).tolist() == [worlds.ITEMS, worlds.ITEMS + 1, -1]
