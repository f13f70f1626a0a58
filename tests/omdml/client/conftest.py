"""A node with a token, over real HTTP."""

from __future__ import annotations

import pytest

from omdml.client import Client
from tests.support.shops import Shop, listening

TOKEN = "a-token-of-sixteen-or-more"


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


@pytest.fixture
def server(shop):
    with shop.serving() as node, listening(node, TOKEN) as server:
        # Five seconds, its default, may pass between two requests on a busy machine.
        server._server.config.timeout_keep_alive = 120
        yield server


@pytest.fixture
def client(server):
    with Client(server.url, TOKEN, model="shop") as client:
        yield client
