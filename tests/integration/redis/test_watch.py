"""Watches of a store in real Redis and Valkey: hints, outages, idleness."""

from collections.abc import Iterator

import pytest
import redis
import structlog

from deploy.local import RedisServer
from omdml.streams.stores.redis.store import RedisStore
from tests.support.learning.store_samples import published, snapshot
from tests.support.waiting import until


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def store(redis_url: str) -> RedisStore:
    return RedisStore(redis_url)


@pytest.mark.parametrize("outage", ["killed", "paused"])
def test_a_watch_comes_back_after_an_outage_with_two_log_lines(
    store: RedisStore, any_redis: RedisServer, outage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omdml.streams.stores.redis.client.HEALTH_CHECK_S", 0.1)
    epoch = published(store, 1)
    watch = store.watch(["shop"])
    with structlog.testing.capture_logs() as logs:
        any_redis.kill() if outage == "killed" else any_redis.pause()
        # Not longer than the outage: an answer that is late for another reason would be a second one.
        with monkeypatch.context() as impatient:
            impatient.setattr("omdml.streams.stores.redis.watch.ANSWER_S", 0.2)
            until(lambda: watch.wait(0.05) == set() and logs)
        any_redis.resume()
        any_redis.start()
        until(lambda: watch.wait(0.05) == {"shop"})
    assert [line["event"] for line in logs] == ["store_out_of_reach", "store_back_in_reach"]
    store.publish(snapshot(2), epoch)
    assert watch.wait(10) == {"shop"}
    watch.close()


def test_a_watch_may_begin_during_an_outage(store: RedisStore, any_redis: RedisServer) -> None:
    any_redis.stop()
    watch = store.watch(["shop"])
    assert watch.wait(0.01) == set()
    any_redis.start()
    until(lambda: watch.wait(0.05) == {"shop"})
    watch.close()


def test_a_connection_that_was_cut_counts_as_news(store: RedisStore, client: redis.Redis) -> None:
    watch = store.watch(["shop", "faces"])
    client.client_kill_filter(_type="pubsub")
    hints = {"shop", "faces"}
    until(lambda: hints.difference_update(watch.wait(0.05)) or not hints)
    published(store, 1)
    assert watch.wait(10) == {"shop"}
    watch.close()


def test_an_idle_watch_still_hears(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omdml.streams.stores.redis.client.HEALTH_CHECK_S", 0.1)
    epoch = published(store, 1)
    watch = store.watch(["shop"])
    with structlog.testing.capture_logs() as logs:
        assert watch.wait(0.5) == set()
        store.publish(snapshot(2), epoch)
        assert watch.wait(10) == {"shop"}
    assert logs == []
    watch.close()
