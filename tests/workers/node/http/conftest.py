"""A shop, a node that has a version of it live, and a client of that node over HTTP."""

from __future__ import annotations

import pytest

from tests.support.shops import Shop, asking


@pytest.fixture(scope="module")
def standing_client(tmp_path_factory):
    """A client of a node that all tests of a file share, which leave it as it was."""
    with Shop(tmp_path_factory.mktemp("standing")).serving() as node, asking(node) as client:
        yield client


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
