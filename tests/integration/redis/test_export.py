"""An export of a model whose catalogue and snapshots lie in Redis, over an outage."""

from __future__ import annotations

import json

import numpy as np
import pytest

from omdml.streams.catalogues.opening import open_catalogue
from omdml.streams.catalogues.redis.upload import upload_catalogue
from omdml.streams.stores.opening import open_store
from tests.support.forks import ForkedProcess
from tests.support.processes import wait_for
from tests.support.shops import Shop


@pytest.fixture
def shop(tmp_path, any_redis):
    """A shop that learns on the items of a catalogue in Redis."""
    shop = Shop(tmp_path, store=open_store(any_redis.url))
    url = f"{any_redis.url}#items"
    upload_catalogue(shop.catalogue, url)
    shop.catalogue = open_catalogue(url)
    shop.publish()
    (tmp_path / "omdml.toml").write_text(
        f'[store]\nurl = "{any_redis.url}"\n[catalogues.items]\npath = "{url}"\n'
        '[models.shop]\nlearner = "lomdml"\nrank = 3\ncoordinates = "features"\n'
    )
    return shop


def test_an_export_follows_redis_and_waits_while_it_is_away(shop, tmp_path, any_redis):
    def version():
        manifest = tmp_path / "out/manifest.json"
        return json.loads(manifest.read_text())["version"] if manifest.exists() else -1

    process = ForkedProcess(tmp_path, "export", "shop", "out", "--follow", name="export")
    wait_for(lambda: version() == 0, "the first version", 60, process)
    any_redis.pause()
    wait_for(lambda: "waiting: " in process.said, "the export to notice", 60, process)
    any_redis.resume()
    shop.learn()
    newest = shop.publish()
    wait_for(lambda: version() == newest, "the newest version", 60, process)
    assert process.stop() == 0
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    last = np.load(tmp_path / "out" / manifest["parts"][-1]["name"] / "embeddings.npy")
    assert last.shape[1] == manifest["width"] == 16
