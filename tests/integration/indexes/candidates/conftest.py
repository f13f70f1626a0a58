"""A shop whose nodes take candidates from an index."""

from __future__ import annotations

import pytest

from tests.support.catalogues.candidates import GALLERY
from tests.support.catalogues.changing import plain_catalogue
from tests.support.catalogues.indexes import Lance
from tests.support.shops import Shop
from tests.support.worlds import DIMS


@pytest.fixture(autouse=True)
def small_numbers(monkeypatch):
    """Have nodes ask the index although there are few items, and for forty candidates."""
    monkeypatch.setattr(f"{GALLERY}.FEW_NUMBERS", 10 * sum(DIMS.values()))
    monkeypatch.setattr(f"{GALLERY}.DEPTH", 40)
    monkeypatch.setattr("omdml.workers.node.galleries.candidates.LOOK_S", 0.05)


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path, items=plain_catalogue)
    shop.learn()
    shop.publish()
    return shop


@pytest.fixture
def lance(tmp_path):
    return Lance(tmp_path / "vectors")
