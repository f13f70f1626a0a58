"""A shop, a node that has a version of it live, and a client of that node over HTTP."""

from __future__ import annotations

import pytest

from tests.support.shops import Shop, asking


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


@pytest.fixture
def node(shop):
    with shop.serving() as node:
        yield node


@pytest.fixture
def client(node):
    with asking(node) as client:
        yield client
