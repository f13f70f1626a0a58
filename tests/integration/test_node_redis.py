"""A node on a real Redis and a real Valkey: hints, and an outage in which everything is lost."""

from __future__ import annotations

import pytest

from streams.stores.opening import open_store
from tests.integration.waiting import until
from tests.shops import Shop


@pytest.fixture
def shop(tmp_path, redis_url):
    return Shop(tmp_path, store=open_store(redis_url))


def test_what_is_published_goes_live_by_a_hint(shop):
    with shop.serving(poll_interval_s=3600.0) as node:
        for _ in range(5):
            shop.learn()
            version = shop.publish()
            until(lambda version=version: node.search(ids=["i0"]).version == version)


def test_a_node_outlives_a_server_that_lost_everything(shop, any_redis):
    with shop.serving() as node:
        shop.learn()
        version = shop.publish()
        until(lambda: node.view().snapshot.version == version)
        any_redis.stop()
        until(lambda: node.stale_seconds > 0)
        assert node.search(ids=["i0"]).version == version
        any_redis.start()
        until(lambda: shop.store.current("shop") is None)
        assert node.search(ids=["i0"]).version == version
        shop.epoch = shop.store.claim("shop").epoch
        shop.learn()
        version = shop.publish()
        until(lambda: node.view().snapshot.version == version)
        until(lambda: node.stale_seconds == 0)
