"""Models whose names have slashes, and names that no model can have."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from omdml.client import Client
from tests.support.shops import Shop, client_of, listening, refused

TOKEN = "0123456789abcdef-known"


@pytest.mark.parametrize("name", ["toys/wood", "../shop", "toys/history", "/"])
def test_a_model_with_a_slash_in_its_name_is_watched_and_moved(tmp_path, name):
    shop = Shop(tmp_path, model=name)
    shop.publish()
    shop.learn()
    with (
        shop.serving(models=[name]) as node,
        listening(node, TOKEN) as server,
        Client(server.url, model=name, token=TOKEN) as client,
    ):
        assert [line.version for line in client.history()] == [0, 20]
        assert client.rollback().version == 0
        with client_of(server) as plain:
            assert plain.get(f"/models/{quote(name, safe='')}/steps").status_code == 200
            assert 'route="/models/{model}/steps"' in plain.get("/metrics").text


@pytest.mark.parametrize("name", ["shop::part-1", "x" * 201, "é" * 34])
def test_a_name_that_no_model_can_have_is_unknown_whatever_the_patterns(tmp_path, name):
    with Shop(tmp_path).serving(models=["shop", "*"]) as node, listening(node) as server, client_of(server) as client:
        refused(client.get("/search", params={"id": "i1", "model": name}), 404, "unknown_model")
