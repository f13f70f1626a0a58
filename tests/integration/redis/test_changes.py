"""Items of a catalogue in a real Redis or Valkey that are put, changed and deleted."""

from __future__ import annotations

import numpy as np
import pytest
import redis
from numpy.testing import assert_array_equal

from omdml.errors import CatalogueError
from omdml.streams.catalogues.building.destinations import add_at
from omdml.streams.catalogues.changes.change import Change, ChangeError
from omdml.streams.catalogues.redis.catalogue import RedisCatalogue
from omdml.streams.catalogues.redis.upload import upload_catalogue
from tests.support.catalogues.changing import Twin, change, check_random_life, plain_catalogue, raw_item
from tests.support.deep import examples
from tests.support.worlds import ITEMS

VECTORS = raw_item(np.random.default_rng(3))
CHANGES = "omdml:catalogue:shop:{}:changes"


@pytest.fixture
def target(redis_url, tmp_path):
    upload_catalogue(plain_catalogue(tmp_path / "c"), f"{redis_url}#shop")
    return f"{redis_url}#shop"


@pytest.mark.parametrize("seed", range(examples(10)))
def test_random_changes_leave_what_a_dict_would_hold(redis_url, tmp_path, seed):
    upload_catalogue(plain_catalogue(tmp_path / "c", mapped=seed % 2 == 0), f"{redis_url}#shop")
    check_random_life(RedisCatalogue(redis_url, "shop"), lambda: RedisCatalogue(redis_url, "shop"), seed)


def test_every_reader_numbers_rows_alike_whether_they_were_listed_or_put(target):
    early, twin, draw = RedisCatalogue(target), Twin(), np.random.default_rng(1)
    for number in range(4):
        item_change = Change(id=f"i{number}", features=raw_item(draw))
        change(RedisCatalogue(target), item_change)
        twin.make(item_change)
        added = {name: np.array([values]) for name, values in raw_item(draw).items()}
        add_at(target, added, ids=[f"more-{number}"])
        twin.vectors[f"more-{number}"] = {name: x[0].tolist() for name, x in added.items()}
        if number % 2:
            early.refresh()
    early.refresh()
    late = RedisCatalogue(target)
    assert list(early.ids) == list(late.ids)
    for catalogue in (early, late):
        twin.check(catalogue)


def test_a_refused_request_changes_nothing(target):
    catalogue = RedisCatalogue(target)
    assert change(catalogue, Change(id="nobody", delete=True)).unknown == ["nobody"]
    with pytest.raises(ChangeError, match="is not in catalogue"):
        change(catalogue, Change(id="i1", delete=True), Change(id="nobody", attributes={}))
    assert (catalogue.shown.position, RedisCatalogue(target).shown.items) == (0, ITEMS)


def test_a_view_of_the_rows_stays_while_more_come(target):
    catalogue = RedisCatalogue(target)
    before = catalogue.features["shape"]
    copy = before.copy()
    for number in range(200):
        change(catalogue, Change(id=f"new-{number}", features=VECTORS))
    assert_array_equal(before, copy)
    assert catalogue.features["shape"].shape[0] == ITEMS + 200


def test_damage_in_the_list_of_changes_is_reported(target, redis_url):
    catalogue = RedisCatalogue(target)
    client = redis.Redis.from_url(redis_url)
    client.rpush(CHANGES.format(catalogue.generation), b"120 nonsense")
    with pytest.raises(CatalogueError, match=r"entry 0 of key .*changes is damaged"):
        catalogue.refresh()
    client.delete(CHANGES.format(catalogue.generation))
    change(catalogue, Change(id="i1", delete=True))
    client.delete(CHANGES.format(catalogue.generation))
    with pytest.raises(CatalogueError, match="0 entries, expected at least the 1 that were read before"):
        catalogue.refresh()
