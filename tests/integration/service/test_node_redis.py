"""A node on a real Redis and a real Valkey: hints, and an outage in which everything is lost."""

from __future__ import annotations

import pytest

from omdml.streams.stores.opening import open_store
from tests.support.shops import Shop
from tests.support.waiting import until


@pytest.fixture
def shop(tmp_path, redis_url):
    return Shop(tmp_path, store=open_store(redis_url))


def test_what_is_published_goes_live_by_a_hint(shop):
    with shop.serving(poll_interval_s=3600.0) as node:
        for _ in range(5):
            shop.learn()
            version = shop.publish()
            until(lambda version=version: node.search(ids=["i0"]).version == version)
        assert node.search(ids=["i0"]).version == shop.learner.version


def test_a_node_outlives_a_server_that_lost_everything(shop, any_redis):
    with shop.serving() as node:
        shop.learn()
        version = shop.publish()
        until(lambda: node.view().snapshot.version == version)
        any_redis.stop()
        until(lambda: node.stale_seconds > 0)
        assert node.search(ids=["i0"]).version == version
        any_redis.start()
        any_redis.flush()
        assert node.search(ids=["i0"]).version == version
        shop.epoch = shop.store.claim("shop").epoch
        shop.learn()
        version = shop.publish()
        until(lambda: node.view().snapshot.version == version)
        until(lambda: node.stale_seconds == 0)


def test_a_node_of_patterns_alone_follows_a_model_by_hints_once_asked_for(tmp_path, redis_url):
    shop = Shop(tmp_path, model="user-7", store=open_store(redis_url))
    shop.publish()
    with shop.node(models=["user-*"], poll_interval_s=3600.0) as node:
        assert node.search("user-7", ids=["i0"]).version == 0
        shop.learn()
        version = shop.publish()
        until(lambda: node.view("user-7").snapshot.version == version)
        assert node.alive
